"""The completion gate: who judges whether an agent that says it is done is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from typing_extensions import TypeVar

from overt.errors import DefinitionError
from overt.message import ToolCall
from overt.tool import ToolResult

__all__ = ("Attempt", "Completion")

OutputT = TypeVar("OutputT", default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[OutputT]):
    """The work of one attempt of a wake, as a verifier judges it.

    Attributes:
        text: The final text; of typed output its JSON.
        output: The output as the declared type; the text itself for `str`.
        tool_calls: Every call that has a result of its own, and that result, over all rounds of the attempt, in the
            order the calls were made and with the arguments that ran. Delegations are calls of `task`. Calls that were
            denied, declined, invalid or not run are not in it.
        number: The gate's round, from 1.
        run_id: The run.
        handle: Id of the handle whose work it is.
        deps: What the host gave the run as `deps`, the object itself; `None` without.
    """

    text: str
    output: OutputT | None
    tool_calls: Sequence[tuple[ToolCall, ToolResult]]
    number: int
    run_id: str = ""
    handle: str = ""
    deps: object = None


class Completion:
    """Judges an agent's work where it would be done, and sends it back with a reason where it is not.

    The reason goes into the same transcript, so that the agent sees its own work beside it. After `max_attempts`
    failing rounds the wake is `incomplete` with limit `completion`. Rounds count towards `max_turns` and every other
    cap. A stop of another kind is never judged. A replay of the wake starts the rounds anew. A verdict is durable; a
    verifier that was cut off, by a crash or a cancellation, is asked again for the same round.

    ```python
    from overt import Agent, Attempt, Completion
    from overt.testing import MockModel

    def has_total(attempt: Attempt) -> tuple[bool, str]:
        return "total" in attempt.text, "Say the total."

    model = MockModel(prompts=[["A report."], ["A report, total 7."]])
    gate = Completion(has_total, max_attempts=3)
    writer = Agent("writer", does="Writes.", completion=gate, model=model)
    result, _ = writer.run_sync("Write a report.")
    print(result.text, [verdict.ok for verdict in result.verdicts], result.total_tokens)
    #> A report, total 7. [False, True] 200
    ```

    Attributes:
        verify: Told the `Attempt`; returns whether it will do, and why not. A plain function runs in a worker thread.
            One that raises ends the wake as `error`, source `completion`; that is no failed verdict, and `recover` asks
            it again.
        max_attempts: Rounds, at least 1.
    """

    __slots__ = ("max_attempts", "verify")

    verify: Callable[[Attempt[Any]], tuple[bool, str] | Awaitable[tuple[bool, str]]]
    max_attempts: int

    def __init__(
        self,
        verify: Callable[[Attempt[Any]], tuple[bool, str] | Awaitable[tuple[bool, str]]],
        *,
        max_attempts: int,
    ) -> None:
        """Declare a gate.

        Raises:
            DefinitionError: `verify` is no function, or `max_attempts` is below 1.
        """
        if not callable(verify):
            raise DefinitionError(
                f"Completion: verify has to be a function of the attempt, not {type(verify).__name__}"
            )
        if type(max_attempts) is not int or max_attempts < 1:
            raise DefinitionError(f"Completion: max_attempts is an int of at least 1, not {max_attempts!r}")
        object.__setattr__(self, "verify", verify)
        object.__setattr__(self, "max_attempts", max_attempts)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Completion is frozen; {name} cannot be assigned")

    def __repr__(self) -> str:
        return (
            f"Completion({getattr(self.verify, '__name__', self.verify)!s}, max_attempts={self.max_attempts})"
        )
