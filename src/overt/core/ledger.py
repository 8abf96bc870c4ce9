"""What was spent: posted once, where it arises, to the handle's own account and to every total above it.

The law: a handle's total is its own account plus its children's totals, after every fact. Nothing here ever goes
down, so a second wake, a rewind, an error or another process cannot lower a number a host has seen.
"""

from __future__ import annotations

from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow

from overt.core.facts import Tokens

__all__ = ("MONEY", "ZERO", "Account")

ZERO = Decimal(0)
MONEY = Context(prec=60, traps=[InvalidOperation, DivisionByZero, Overflow])
"""What money is counted in. The ambient one is the host's: in another process the same facts might come to less."""


class Account:
    """Counts of one handle, own or total."""

    __slots__ = (
        "cached",
        "cost",
        "input",
        "model_calls",
        "output",
        "priced",
        "reasoning",
        "tokens",
        "tool_calls",
        "turns",
        "unpriced",
        "unreported",
        "written",
    )

    def __init__(self) -> None:
        self.input: int = 0
        self.output: int = 0
        self.cached: int = 0
        self.written: int = 0
        self.reasoning: int = 0
        self.tokens: int = 0
        self.turns: int = 0
        self.model_calls: int = 0
        self.tool_calls: int = 0
        self.unreported: int = 0
        self.unpriced: int = 0
        self.priced: int = 0
        """Tokens of the calls that could be priced."""
        self.cost: Decimal = ZERO

    def reply(self, tokens: Tokens | None, cost: Decimal | None) -> None:
        """Post one reply."""
        self.turns += 1
        self.call(tokens, cost)

    def call(self, tokens: Tokens | None, cost: Decimal | None) -> None:
        """Post what a model call used, whether it brought a reply or not."""
        if tokens is None:
            self.unreported += 1
        else:
            self.input += tokens.input
            self.output += tokens.output
            self.cached += tokens.cached
            self.written += tokens.written
            self.reasoning += tokens.reasoning
            self.tokens += tokens.total or tokens.input + tokens.output
        if cost is None:
            self.unpriced += 1
        else:
            self.cost = MONEY.add(self.cost, cost)
            if tokens is not None:
                self.priced += tokens.total or tokens.input + tokens.output

    def snapshot(self) -> tuple[object, ...]:
        """Return every count, for comparison."""
        return tuple(getattr(self, name) for name in self.__slots__)
