"""Reading a model's reply: what it says, what it asks for, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from overt._canonical import encode, jsonable
from overt._output import FINAL, OutputSpec
from overt._text import clean, told
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.delegation import offers_delegates
from overt.core.effects import CallModel
from overt.core.tree import Node
from overt.message import ModelResponse, ToolCall, Usage

if TYPE_CHECKING:
    from overt.driver.crew import Canonical, Member

__all__ = ("read_reply", "tokens_of")


def read_reply(
    member: Member, node: Node, effect: CallModel, response: ModelResponse, *, native: bool, checks: bool
) -> i.ModelDone:
    """Return a reply as the core takes it: calls validated, usage checked, typed output parsed.

    Args:
        member: The agent.
        node: The handle.
        effect: The model call.
        response: What the model gave.
        native: Whether the model was told the output's schema, instead of being offered the final tool.
        checks: Whether calls are ruled on before the reply is recorded; then `ruled` says that there are some.

    Raises:
        TypeError: The model is none.
    """
    if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's own model
        raise TypeError(f"the model returned {type(response).__name__}, not a ModelResponse")
    message = response.message
    if not isinstance(message.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise TypeError(f"the model returned a text of type {type(message.text).__name__}")
    calls: tuple[f.CallSpec, ...] = ()
    output = refused = None
    unfinished = response.finish_reason in f.UNFINISHED
    if message.tool_calls:
        shelf = _Shelf(member, node, final=member.output is not None and not native)
        calls = tuple(
            _call(shelf, call, response.invalid_arguments.get(index))
            for index, call in enumerate(message.tool_calls)
        )
        if member.output is not None and not native and not unfinished:
            calls, output = _final(member.output, message.tool_calls, calls, response.invalid_arguments)
    elif member.output is not None and not unfinished:
        output, refused = _parsed(member.output, message.text, native=native)
    return i.ModelDone(
        effect.id,
        clean(message.text),
        calls,
        tokens_of(response.usage),
        None,
        clean(response.finish_reason),
        clean(response.model),
        None if message.reasoning is None else clean(message.reasoning),
        None if message.opaque is None else encode(jsonable(message.opaque)),
        checks and output is None and bool(calls),
        output,
        refused,
    )


def tokens_of(usage: Usage | None) -> f.Tokens | None:
    """Return the usage of a call as the core takes it.

    Raises:
        TypeError: It holds what is no count.
    """
    if usage is None:
        return None
    sent, received, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
    written = usage.cache_write_tokens
    for count in (sent, received, total, usage.cached_tokens, usage.reasoning_tokens, written):
        if type(count) is not int or not 0 <= count < 2**53:
            raise TypeError(f"the model reported {count!r:.40} tokens")
    return f.Tokens(
        sent,
        received,
        usage.cached_tokens,
        usage.reasoning_tokens,
        0 if total == sent + received else total,
        written,
    )


def _final(
    output: OutputSpec,
    asked: Sequence[ToolCall],
    calls: tuple[f.CallSpec, ...],
    invalid: Mapping[int, str],
) -> tuple[tuple[f.CallSpec, ...], str | None]:
    """Look for the call that gives the typed output."""
    found = [at for at, call in enumerate(calls) if call.name == FINAL]
    if not found:
        return calls, None
    if len(calls) > 1:
        alone = f"not taken: call {FINAL} alone, once every other call has its result"
        return tuple(c._replace(args=None, error=alone) if c.name == FINAL else c for c in calls), None
    try:
        value = output.canonical(invalid[0] if 0 in invalid else asked[0].arguments)
    except (ValueError, TypeError) as error:
        return tuple(c._replace(args=None, error=told(error)) for c in calls), None
    return tuple(c._replace(args=None, error=None) for c in calls), value


def _parsed(output: OutputSpec, text: str, *, native: bool) -> tuple[str | None, str | None]:
    """Return the typed output of a reply without calls, or what to tell the model."""
    try:
        return output.canonical(text), None
    except (ValueError, TypeError) as error:
        if native:
            return None, told(error)
        return None, f"Give the final answer by calling {FINAL}."


class _Shelf:
    """What the model was offered."""

    __slots__ = ("final", "member", "offers", "room")

    def __init__(self, member: Member, node: Node, *, final: bool) -> None:
        self.member: Member = member
        self.room: bool = (member.task is not None or bool(member.delegates)) and offers_delegates(node)
        self.offers: tuple[str, ...] | None = None if node.wake is None else node.wake.offers
        self.final: bool = final

    def tool(self, name: str) -> Canonical | None:
        """Return what a name stands for, `None` where nothing of it was offered."""
        member = self.member
        tool: Canonical | None = member.tools.get(name)
        if tool is None and self.room:
            tool = member.delegates.get(name) or (member.task if name == "task" else None)
        return None if self.offers is not None and name not in self.offers else tool

    def unknown(self, name: str) -> str:
        """Return what a model is told that calls something else."""
        member = self.member
        names = [*member.tools]
        if self.room:
            names += [*member.delegates, *(() if member.task is None else ("task",))]
        names = [known for known in names if self.offers is None or known in self.offers]
        if self.final:
            names.append(FINAL)
        listed = ", ".join(names) or "none"
        return (
            f"unknown tool: {name!r}. The tools: {listed}."
            if name
            else f"a call without a name. The tools: {listed}."
        )


def _call(shelf: _Shelf, call: ToolCall, invalid: str | None) -> f.CallSpec:
    name = clean(call.name)
    tool = shelf.tool(name)
    raw = "{}"
    if invalid is None:
        if not isinstance(cast("object", call.arguments), Mapping):
            return f.CallSpec(name, raw, None, "invalid arguments: not a JSON object")
        try:
            raw = _text(call.arguments)
        except (TypeError, ValueError, RecursionError) as error:
            return f.CallSpec(name, raw, None, f"invalid arguments: {error}")
    try:
        from_json(raw)
    except ValueError as error:
        # What the journal could not read back is not written into it: nested too deeply, a number with 5,000 digits.
        return f.CallSpec(name, "{}", None, f"invalid arguments: {error}")
    if tool is None:
        return f.CallSpec(name, raw, None, shelf.unknown(name))
    try:
        # Text that is no JSON object may still do: none at all, for a tool without arguments.
        args = tool.canonical(call.arguments if invalid is None else invalid)
    except (ValueError, TypeError) as error:
        return f.CallSpec(name, raw, None, told(error))
    return f.CallSpec(name, raw, None if args == raw else args)


def _text(arguments: dict[str, JsonValue]) -> str:
    try:
        text = to_json(arguments).decode()
    except ValueError:
        # Half a surrogate pair, or no JSON: the slow way cleans the one and names the other.
        return encode(jsonable(arguments))
    return encode(jsonable(arguments)) if "NaN" in text or "Infinity" in text else text
