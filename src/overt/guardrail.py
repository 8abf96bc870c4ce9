"""Guardrails: rules that see a call, a prompt or a final answer before it counts, and allow, deny or ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from typing_extensions import TypeForm

from overt._question import make_question
from overt.errors import DefinitionError, UsageError
from overt.message import ToolCall

__all__ = (
    "Allow",
    "Ask",
    "Deny",
    "Guardrail",
    "GuardrailEvent",
    "OutputEvent",
    "OutputGuardrail",
    "PromptEvent",
    "PromptGuardrail",
    "Ruling",
    "name_of",
    "require_approval",
)


@dataclass(frozen=True, slots=True)
class Allow:
    """The rule has nothing against it."""


@dataclass(frozen=True, slots=True)
class Deny:
    """It must not happen. A tool that is denied is never entered, whatever the other rules say.

    Attributes:
        reason: What the model and the journal are told.

    Raises:
        UsageError: `reason` is empty or no text.
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise UsageError(f"Deny needs a reason: a non-empty str, not {self.reason!r:.80}")


@dataclass(frozen=True, slots=True, init=False)
class Ask:
    """Somebody has to agree first. The run asks, and parks if nobody answers at once.

    The answer is bound to the validated arguments that are shown in `data["call"]`. For a call it may carry
    `{"arguments": {…}}`, which are validated, checked for `Deny` and run in place of those, or `{"output": …}`, a reply
    in the tool's place. A refusal makes the call an error result `declined: <reason>`, and it stays declined in every
    attempt.

    Attributes:
        prompt: The question, for people.
        kind: `"approval"` or a word of your own.
        answer_type: Type the data of an accepting answer has to fit; `None` takes no data but the two forms above.
        expires_at: From then on (aware) it counts as declined; `None`: never.
    """

    prompt: str
    kind: str
    answer_type: TypeForm[object] | None
    expires_at: datetime | None

    def __init__(
        self,
        prompt: str,
        *,
        kind: str = "approval",
        answer_type: TypeForm[object] | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        """Make the ruling.

        Raises:
            UsageError: A field is empty, reserved or without a time zone, or the type has no schema; names it.
        """
        make_question(
            kind=kind, prompt=prompt, url=None, data=None, answer_type=answer_type, expires_at=expires_at
        )
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "answer_type", answer_type)
        object.__setattr__(self, "expires_at", expires_at)


Ruling: TypeAlias = Allow | Deny | Ask
"""What a guardrail returns. Of several, `Deny` beats `Ask` beats `Allow`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailEvent:
    """A call that is about to be made; `task` and agents that are tools included.

    Attributes:
        run_id: The run.
        handle: Id of the calling handle.
        agent: Name of the calling agent.
        call: The call with its validated arguments; a copy.
        deps: What the host gave the run as `deps`, the object itself; `None` without.
    """

    run_id: str
    handle: str
    agent: str
    call: ToolCall
    deps: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEvent:
    """A prompt that is about to be given to an agent's model for the first time.

    Attributes:
        run_id: The run.
        handle: Id of the handle it is for.
        agent: Name of its agent.
        prompt: The user message: the prompt and the drained inbox.
        deps: What the host gave the run as `deps`, the object itself; `None` without.
    """

    run_id: str
    handle: str
    agent: str
    prompt: str
    deps: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvent:
    """A final answer that is about to become the result.

    Attributes:
        run_id: The run.
        handle: Id of the handle whose answer it is.
        agent: Name of its agent.
        text: The final text; of typed output its JSON.
        output: The output as the declared type; the text itself for `str`.
        deps: What the host gave the run as `deps`, the object itself; `None` without.
    """

    run_id: str
    handle: str
    agent: str
    text: str
    output: object
    deps: object = None


Guardrail: TypeAlias = Callable[[GuardrailEvent], Ruling | Awaitable[Ruling]]
"""Rules on calls. One that raises, returns anything else or takes too long denies.

A plain function runs on the event loop, before anything of the batch is entered: keep it short. One that waits for
something is an `async def`. It is asked before each entry: again after an answer, in every attempt, and by whoever goes
on with a run that was cut off while it was asked. What it said is durable, what it did outside is its own.
"""
PromptGuardrail: TypeAlias = Callable[[PromptEvent], Ruling | Awaitable[Ruling]]
"""Rules on a prompt, before the first model call of each attempt. A denied prompt ends the wake as `error`, type
`GuardrailDenied`."""
OutputGuardrail: TypeAlias = Callable[[OutputEvent], Ruling | Awaitable[Ruling]]
"""Rules on a final answer. A denied one ends the wake as `error`, type `GuardrailDenied`."""


class _RequireApproval:
    """What `require_approval` returns; a class, so that an agent can check the names it has."""

    __slots__ = ("tools", "when")

    def __init__(self, tools: tuple[str, ...], when: Callable[[Mapping[str, Any]], bool] | None) -> None:
        self.tools: tuple[str, ...] = tools
        self.when: Callable[[Mapping[str, Any]], bool] | None = when

    @property
    def __name__(self) -> str:
        return f"require_approval({', '.join(self.tools)})"

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __call__(self, event: GuardrailEvent) -> Ruling:
        call = event.call
        if call.name not in self.tools:
            return Allow()
        # Written first: `when` may do to what it is shown whatever it likes.
        listed = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        if self.when is not None and not self.when(call.arguments):
            return Allow()
        return Ask(f"Allow {call.name}({listed})?")


def require_approval(*tools: str, when: Callable[[Mapping[str, Any]], bool] | None = None) -> Guardrail:
    """Return a guardrail that asks before a tool is entered.

    ```python
    from overt import Agent, require_approval, tool
    from overt.testing import MockModel, call

    @tool(description="Pay money back.")
    def refund(order: str, amount: float) -> str:
        return f"refunded {amount:.2f}"

    dear = require_approval("refund", when=lambda arguments: arguments["amount"] > 50)
    model = MockModel([[call("refund", order="A-1", amount=20.0), call("refund", order="A-2", amount=90.0)]])
    clerk = Agent("clerk", does="Refunds.", tools=[refund], guardrails=[dear], model=model)
    result, _ = clerk.run_sync("Refund both.")
    print(result.status, result.usage.tool_calls, result.pendings[0].prompt)
    #> pending 1 Allow refund(amount=90.0, order='A-2')?
    ```

    Args:
        *tools: Names of tools; `"task"` is the one that delegates. An agent that has none of a name refuses it when it
            is declared; among a run's guardrails some agent of the run has to have it.
        when: Told the validated arguments; only what it says true to is asked about. `None` asks always. If it raises,
            the call is denied.

    Raises:
        DefinitionError: No name is given, or one is no text.
    """
    if not tools or not all(isinstance(name, str) and name for name in tools):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise DefinitionError('require_approval needs names of tools: require_approval("refund")')
    if when is not None and not callable(when):
        raise DefinitionError(f"require_approval: when has to be a function, not {type(when).__name__}")
    return _RequireApproval(tools, when)


def name_of(rule: object) -> str:
    """Return what a guardrail, verifier or hook is called in the journal."""
    name = getattr(rule, "__name__", None) or getattr(type(rule), "__name__", "rule")
    return str(name)
