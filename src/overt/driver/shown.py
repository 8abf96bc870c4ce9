"""What models are shown: copies of the transcript, so that nobody who reads can alter the run.

A message is copied once and is the same object from turn to turn, which is what lets an adapter convert it once.
Results of tools are in the transcript as models are shown them. Those that came in otherwise, with a history or from a
hook, are whole there, and bounded here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import from_json, to_json

from overt._frozen import trusted
from overt.core.render import shown
from overt.core.tree import Node
from overt.message import AssistantMessage, Message, ToolCall, ToolMessage

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("Shown", "copy_of", "shown_to")


def copy_of(message: Message) -> Message:
    """Return a message that shares no container with the one given; itself where it has none."""
    if isinstance(message, AssistantMessage):
        if not message.tool_calls and message.opaque is None:
            return message
        return trusted(
            AssistantMessage,
            role="assistant",
            text=message.text,
            tool_calls=tuple(
                trusted(ToolCall, id=c.id, name=c.name, arguments=from_json(to_json(c.arguments)))
                for c in message.tool_calls
            ),
            reasoning=message.reasoning,
            opaque=None if message.opaque is None else from_json(to_json(message.opaque)),
        )
    if isinstance(message, ToolMessage):
        return trusted(
            ToolMessage,
            role="tool",
            text=message.text,
            call_id=message.call_id,
            name=message.name,
            is_error=message.is_error,
            metadata=from_json(to_json(message.metadata)) if message.metadata else {},
        )
    return message


class Shown:
    """The transcript of one handle as its models see it."""

    __slots__ = ("_copies", "_list", "_sources")

    def __init__(self) -> None:
        self._list: list[Message] = []
        self._sources: list[Message] = []
        self._copies: list[Message] = []

    def of(self, node: Node, limit: int) -> tuple[Message, ...]:
        """Return the handle's messages, results no longer than `limit` characters.

        Costs what is new, beside the tuple itself.
        """
        messages, sources, copies = node.messages, self._sources, self._copies
        if messages is not self._list:
            self._replace(messages, limit)
            return tuple(self._copies)
        kept = len(sources)
        if kept > len(messages) or (kept and sources[-1] is not messages[kept - 1]):
            # The wake was rewound, or a stop's notes were taken back: keep what is still the same.
            kept = 0
            for source, message in zip(sources, messages, strict=False):
                if source is not message:
                    break
                kept += 1
            del sources[kept:], copies[kept:]
        for message in messages[kept:]:
            sources.append(message)
            copies.append(_bounded(message, limit))
        return tuple(copies)

    def _replace(self, messages: list[Message], limit: int) -> None:
        """Take over another transcript; what it has of the one before is still the same object."""
        known = {id(source): copy for source, copy in zip(self._sources, self._copies, strict=True)}
        self._copies = [known.get(id(message)) or _bounded(message, limit) for message in messages]
        self._list, self._sources = messages, list(messages)


def shown_to(driver: Driver, node: Node) -> tuple[Message, ...]:
    """Return a handle's transcript as its models see it, without the instructions."""
    kept = driver.shown.get(node.id)
    if kept is None:
        kept = driver.shown[node.id] = Shown()
    return kept.of(node, driver.tree.plan.max_result_chars)


def _bounded(message: Message, limit: int) -> Message:
    copy = copy_of(message)
    if isinstance(copy, ToolMessage) and len(copy.text) > limit:
        return copy.model_copy(update={"text": shown(copy.text, limit, copy.call_id)})
    return copy
