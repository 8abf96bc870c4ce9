"""A ready-made `before_llm` hook that keeps a long transcript short."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from overt._canonical import encode
from overt._text import clean, size
from overt.errors import DefinitionError
from overt.hooks import BeforeLLM, LLMOverride
from overt.message import AssistantMessage, Message, SystemMessage, TextPart, ToolMessage, UserMessage

__all__ = ("compactor", "estimate_tokens")

_MARK = re.compile(r"\[Summary of (\d{1,9}) earlier messages, which it replaces\]\n*")


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages have: a quarter of the bytes of their text, arguments and reasoning.

    Images, files, and what only a provider understands are not counted.

    Example:
        >>> from overt import UserMessage
        >>> from overt.compaction import estimate_tokens
        >>> estimate_tokens([UserMessage(text="a" * 400)])
        100
    """
    return sum(map(_bytes, messages)) // 4


def compactor(
    *, max_tokens: int, keep_tail: int = 8, summarize: Callable[[Sequence[Message]], str | Awaitable[str]]
) -> Callable[[BeforeLLM], Awaitable[LLMOverride | None]]:
    """Return a `before_llm` hook that replaces the older part of a long transcript by a summary.

    Nothing happens up to `max_tokens`, by `estimate_tokens`; the agent's instructions and tools are not counted. Above
    it, what stands before the last `keep_tail` messages becomes one user message, which says that it is a summary and
    of how many messages. A call is never parted from its result: the tail is longer where it would be. Of the older
    part these are kept as they are, in front of the summary: system messages at the very beginning; the first user
    message, which is the task; and the last one, if there is none in the tail. A user message of a quarter of
    `max_tokens` or more is summarised as well. A later summary takes in the one before.

    The transcript stays as it is where there is nothing to replace, such as one large batch of calls, or where the
    summary is no shorter than what it stands for. Choose `keep_tail` such that the tail alone is well below
    `max_tokens`: otherwise every turn summarises.

    The hook keeps nothing between calls. A model that `summarize` asks is not in the run's ledger. What tools returned
    comes back as the words of a user: have the summary report instructions found in it, not repeat them.

    Example:
        >>> from overt import Hooks, compactor
        >>> hooks = Hooks(
        ...     before_llm=compactor(max_tokens=50_000, summarize=lambda messages: f"{len(messages)} steps were taken")
        ... )

    Args:
        max_tokens: Estimated size above which the transcript is compacted, at least 1.
        keep_tail: How many of the last messages stay in any case, at least 1.
        summarize: Told the messages to replace, the summary before among them; returns text. Sync or async; a plain
            function runs on the event loop. What it raises ends the wake as `error`, source `hook`.

    Raises:
        DefinitionError: A number is below 1, or `summarize` is no function.
    """
    for name, given in (("max_tokens", max_tokens), ("keep_tail", keep_tail)):
        if type(given) is not int or given < 1:
            raise DefinitionError(f"compactor: {name} is an int of at least 1, not {given!r:.80}")
    if not callable(summarize):
        raise DefinitionError(
            f"compactor: summarize has to be a function of the messages, not {type(summarize).__name__}"
        )

    async def compact(event: BeforeLLM) -> LLMOverride | None:
        messages = event.messages
        before = estimate_tokens(messages)
        if before <= max_tokens:
            return None
        cut = _cut(messages, len(messages) - keep_tail)
        kept, replaced = _divide(messages, cut, max_tokens)
        if all(map(_covers, replaced)):
            return None
        made = summarize(replaced)
        text = cast("object", await made if inspect.isawaitable(made) else made)
        if not isinstance(text, str) or not text.strip():
            raise TypeError(f"compactor: summarize has to return text, not {text!r:.80}")
        summary = UserMessage(text=_marked(clean(text), replaced))
        shorter = (*kept, summary, *messages[cut:])
        return LLMOverride(messages=shorter) if estimate_tokens(shorter) < before else None

    return compact


def _cut(messages: Sequence[Message], wanted: int) -> int:
    """The last place at or before `wanted` at which no call waits for its result."""
    waiting: Counter[str] = Counter()
    safe = 0
    for index, message in enumerate(messages[: max(wanted, 0)]):
        if isinstance(message, AssistantMessage):
            waiting.update(call.id for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.call_id in waiting:
            waiting[message.call_id] -= 1
            if not waiting[message.call_id]:
                del waiting[message.call_id]
        if not waiting:
            safe = index + 1
    return safe


def _divide(
    messages: Sequence[Message], cut: int, max_tokens: int
) -> tuple[list[Message], tuple[Message, ...]]:
    """What of the part before the cut stays, and what is summarised."""
    start = 0
    while start < cut and isinstance(messages[start], SystemMessage):
        start += 1
    # A summary in front took the first message in.
    asked = [index for index in range(start, cut) if _asks(messages[index])]
    stays: set[int] = set()
    if asked and asked[0] == start:
        stays.add(start)
    if asked and not any(map(_asks, messages[cut:])):
        stays.add(asked[-1])
    stays = {index for index in stays if 4 * estimate_tokens([messages[index]]) < max_tokens}
    kept = [*messages[:start], *(messages[index] for index in sorted(stays))]
    return kept, tuple(messages[index] for index in range(start, cut) if index not in stays)


def _asks(message: Message) -> bool:
    return isinstance(message, UserMessage) and not _covers(message)


def _covers(message: Message) -> int:
    """Of how many messages it is the summary; 0 for any other."""
    found = _MARK.match(message.text) if isinstance(message, UserMessage) else None
    return 0 if found is None else int(found[1])


def _marked(text: str, replaced: Sequence[Message]) -> str:
    count = sum(_covers(message) or 1 for message in replaced)
    # A model that was shown the mark may write it itself.
    return f"[Summary of {count} earlier messages, which it replaces]\n\n{_MARK.sub('', text, count=1)}"


def _bytes(message: Message) -> int:
    total = size(message.text)
    if isinstance(message, AssistantMessage):
        total += size(message.reasoning or "")
        total += sum(size(call.name) + size(encode(call.arguments)) for call in message.tool_calls)
    elif isinstance(message, UserMessage):
        total += sum(size(part.text) for part in message.parts if isinstance(part, TextPart))
    return total
