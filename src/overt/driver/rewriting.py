"""What `before_llm` makes of the transcript: checked before anything is sent, and written down as what is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic_core import from_json

from overt._canonical import encode, jsonable
from overt._text import clean, told
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.apply_policy import MESSAGE
from overt.core.effects import CallModel
from overt.core.tree import Node
from overt.driver.asking import Failed, call_hook
from overt.driver.shown import copy_of
from overt.hooks import BeforeLLM, LLMOverride
from overt.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from overt.driver.crew import Member
    from overt.driver.loop import Driver

__all__ = ("broken", "rewrite")

T = TypeVar("T")

KINDS = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


async def rewrite(
    driver: Driver, member: Member, node: Node, effect: CallModel, model: str, before: int
) -> None:
    """Ask `before_llm`, and make what it changes a fact.

    Raises:
        Failed: The hook failed, or left a call without its result or a result without its call.
        StoreError: The store failed.
    """
    assert member.hooks is not None
    assert member.hooks.before_llm is not None
    wake = node.wake
    assert wake is not None
    # Its own: those models are shown stay the same from turn to turn, and what is done to them no fact would say.
    messages = tuple(map(copy_of, node.messages))
    tools = member.offered(node)
    event = BeforeLLM(handle=node.id, turn=wake.turns + 1, model=model, messages=messages, tools=tuple(tools))
    override: LLMOverride | None = await call_hook(
        driver, member.hooks.before_llm, event, (LLMOverride,), before
    )
    if override is None:
        return
    text = None
    if override.messages is not None:
        text = _parts(driver, node.messages, messages, _all(override.messages, "messages"))
    names = None
    if override.tools is not None:
        kept = [getattr(t, "name", t) for t in _all(override.tools, "tools")]
        names = _names([t.name for t in tools], kept)
    if text is not None or names is not None:
        await driver.step(i.Override(effect.id, text, names))


def _all(given: Sequence[T], what: str) -> tuple[T, ...]:
    try:
        return tuple(given)
    except Exception as error:
        raise _failed(
            "TypeError", f"before_llm gave {what} of type {type(given).__name__}: {error}"
        ) from error


def _parts(
    driver: Driver, before: Sequence[Message], shown: Sequence[Message], after: Sequence[Message]
) -> str | None:
    """Return the new transcript as indices into the old one and messages; `None` where it is the same.

    Args:
        driver: Whose run it is.
        before: The transcript.
        shown: What the hook was shown of it, which it may have changed in place.
        after: What it gave.
    """
    index = {id(message): at for at, message in enumerate(shown)}
    parts: list[object] = []
    for message in after:
        at = index.get(id(message))
        if at is not None and (message is before[at] or message == before[at]):
            parts.append(at)
            continue
        if not isinstance(cast("object", message), KINDS):
            raise _failed("TypeError", f"before_llm gave a {type(message).__name__} among the messages")
        parts.append(_plain(driver, message))
    if parts == list(range(len(before))):
        return None
    wrong = broken(after) if after else "no message at all"
    if wrong is not None:
        raise _failed("BrokenTranscript", f"before_llm left {wrong}; nothing was sent")
    try:
        text = encode(jsonable(parts, "messages"))
        for part in cast("list[object]", from_json(text)):
            if not isinstance(part, int):
                MESSAGE.validate_python(part)
    except (TypeError, ValueError, RecursionError) as error:
        raise _failed("TypeError", f"before_llm gave messages that cannot be recorded: {error}") from error
    return text


def _plain(driver: Driver, message: Message) -> object:
    """Return a message as JSON, which can be read back: a copy with other fields is not checked by anybody."""
    try:
        plain = message.model_dump(mode="json", exclude_defaults=True, warnings=False) | {
            "role": message.role
        }
        if driver.crew.redaction is not None:
            plain = driver.crew.redaction.message(plain)
        MESSAGE.validate_python(plain)
    except Exception as error:
        raise _failed(
            "TypeError", f"before_llm gave a message that cannot be recorded: {told(error)}"
        ) from error
    return plain


def _names(offered: Sequence[str], kept: Sequence[object]) -> tuple[str, ...]:
    for name in kept:
        if name not in offered:
            listed = ", ".join(offered) or "none"
            raise _failed("UsageError", f"before_llm offers {name!r:.80}, which is not offered: {listed}")
    return tuple(str(name) for name in kept)


def _failed(type: str, message: str) -> Failed:
    return Failed(f.ErrorSpec(type, clean(message), "hook"))


def broken(messages: Sequence[Message]) -> str | None:
    """Return what is wrong with calls and results in a transcript, `None` where each call has its result after it."""
    open_calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in open_calls:
                return f"the result of call {message.call_id!r} ({message.name}) without its call"
            del open_calls[message.call_id]
            continue
        if open_calls:
            break
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id in open_calls:
                    return f"two calls {call.id!r} in one message"
                open_calls[call.id] = call.name
    for id, name in open_calls.items():
        return f"call {id!r} ({name}) without its result"
    return None
