"""What a run cost, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from overt._frozen import Frozen
from overt.message import Usage
from overt.result import State, Unpriced

__all__ = ("Ledger",)


_WHY = {"no_price": "no price", "no_usage": "no usage"}


def _usd(ledger: Ledger) -> str:
    """What a subtree cost; at least so much where not all of it could be priced."""
    if ledger.total.model_calls == 0:
        return "0"
    if ledger.cost is None and not ledger.priced:
        return "unknown"
    text = f"{ledger.priced:.6f}".rstrip("0").rstrip(".")
    return text if ledger.cost is not None else f">= {text}"


class Ledger(Frozen):
    """One handle's account and those below it. `total` is `own` plus the totals of `children`, always.

    `str(ledger)` is a table for the terminal; notebooks show it as HTML; `to_mermaid()` draws it.
    """

    handle: str
    agent: str
    state: State
    status: str
    """How its last wake stands; empty where it had none."""
    own: Usage
    total: Usage
    cost: Decimal | None = None
    """USD of `total`; `None` unless every call could be priced."""
    unpriced: tuple[Unpriced, ...] = ()
    """Model calls in `total` that could not be priced."""
    priced: Decimal = Decimal(0)
    """USD of those that could."""
    children: tuple[Ledger, ...] = ()

    def walk(self) -> Iterator[tuple[int, Ledger]]:
        """Yield every handle with its depth, parents first."""
        yield 0, self
        for child in self.children:
            for depth, ledger in child.walk():
                yield depth + 1, ledger

    def _priced(self) -> bool:
        return bool(self.priced) or self.cost is not None

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            ("handle", "status", "turns", "tool calls", "own tokens", "total tokens")
        ]
        money = self.total.model_calls > 0 and self._priced()
        if money:
            rows[0] = (*rows[0], "total USD")
        for depth, ledger in self.walk():
            name = ledger.handle if depth == 0 else "  " * depth + ledger.handle.rsplit("/", 1)[-1]
            rows.append(
                (
                    name,
                    ledger.status or (str(ledger.state) if ledger.agent else ""),
                    str(ledger.own.turns),
                    str(ledger.own.tool_calls),
                    f"{ledger.own.total_tokens:,}",
                    f"{ledger.total.total_tokens:,}",
                    *(() if not money else (_usd(ledger),)),
                )
            )
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines: list[str] = []
        for row in rows:
            cells = [
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._unknown()])

    def _unknown(self) -> list[str]:
        """Absent is not zero: the sums above it are of what was reported."""
        lines: list[str] = []
        count = self.total.unreported_calls
        if count:
            calls, who = ("model call", "it") if count == 1 else ("model calls", "they")
            lines.append(f"{count} {calls} reported no usage: what {who} used is unknown.")
        if self.cost is None and self.priced:
            what = ", ".join(
                f"{item.calls} of {item.model or 'a call that was cut off'} ({_WHY[item.reason]})"
                for item in self.unpriced
            )
            lines.append(f"Not all could be priced: {what}. The rest cost {self.priced:f} USD.")
        return lines

    def _repr_html_(self) -> str:
        import html

        head, *rows = self._rows()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(cell).replace('  ', '&emsp;')}</td>" for cell in row)
            + "</tr>"
            for row in rows
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._unknown())
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def to_mermaid(self) -> str:
        """Return the tree as a Mermaid flowchart."""
        import html

        lines = ["flowchart TD"]
        names: dict[str, str] = {}
        for number, (_, ledger) in enumerate(self.walk()):
            names[ledger.handle] = f"n{number}"
            tokens = f"own {ledger.own.total_tokens:,} of {ledger.total.total_tokens:,} tokens"
            label = f"{ledger.handle.rsplit('/', 1)[-1]}<br/>{tokens}"
            lines.append(f'    n{number}["{html.escape(label, quote=True).replace("&lt;br/&gt;", "<br/>")}"]')
            parent = ledger.handle.rpartition("/")[0]
            if parent in names:
                lines.append(f"    {names[parent]} --> n{number}")
        return "\n".join(lines)
