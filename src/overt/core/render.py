"""Texts the core writes: what a model is told of an inbox, of a child, of a result too long to show."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence, Set
from typing import Any, cast

from overt._frozen import trusted
from overt.core.tree import Call, CallState, Item, Node, Tree, Wake
from overt.message import Message, ToolMessage
from overt.result import State

__all__ = (
    "batch_messages",
    "bounded",
    "child_outcome",
    "committed",
    "reply_of",
    "shown",
    "status_text",
    "user_text",
)


def bounded(text: str, limit: int, call: str) -> str:
    """Return head and tail of a result, and between them a marker; never more than `limit` characters.

    The marker says how much is left out and what gives the host all of it; where it would take more than three
    quarters of the room it is a mere ellipsis. Cut is between characters as readers see them.
    """
    marker = _marker(len(text) - limit, len(text), call)
    # What is left out is as much more as the marker is long, which may have a digit more for it.
    wider = _marker(len(text) - limit + len(marker), len(text), call)
    marker = wider if 4 * len(marker) <= 3 * limit else "…"
    room = limit - len(marker)
    head, tail = room - room // 3, len(text) - room // 3
    head, tail = _before(text, head), _after(text, tail)
    if marker != "…":
        marker = _marker(tail - head, len(text), call)
    return text[:head] + marker + text[tail:]


def shown(text: str, limit: int, call: str) -> str:
    """Return a tool's output as the model is shown it; `call` is the call's id."""
    return text if len(text) <= limit else bounded(text, limit, call)


def reply_of(data: object) -> str | None:
    """Return the result that an answer about a call gives in the tool's place, `None` where it gives none."""
    if not isinstance(data, dict) or set(cast("dict[str, object]", data)) != {"output"}:
        return None
    output = cast("dict[str, object]", data)["output"]
    return (
        output if isinstance(output, str) else json.dumps(output, separators=(",", ":"), ensure_ascii=False)
    )


def _marker(left_out: int, size: int, call: str) -> str:
    return f'\n[… {left_out} of {size} characters left out; tool_result("{call}") has all …]\n'


LONGEST = 32
"""Code points of what readers see as one character; text that goes on longer is cut anywhere."""


def _before(text: str, at: int) -> int:
    """Return where the character ends that a cut at `at` would part, counted from the front."""
    place = at
    while place > 0 and _joins(text, place):
        place -= 1
        if at - place > LONGEST:
            return at
    return place


def _after(text: str, at: int) -> int:
    place = at
    while place < len(text) and _joins(text, place):
        place += 1
        if place - at > LONGEST:
            return at
    return place


def _joins(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it."""
    char = text[at]
    if char.isascii():
        return char == "\n" and text[at - 1] == "\r"
    return (
        unicodedata.category(char)[0] == "M"
        or char == "\u200d"
        or text[at - 1] == "\u200d"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or (_flag(char) and _odd_flags_before(text, at))
    )


def _flag(char: str) -> bool:
    """Whether two of them are one flag."""
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _odd_flags_before(text: str, at: int) -> bool:
    start = at
    while start > 0 and _flag(text[start - 1]):
        start -= 1
    return (at - start) % 2 == 1


def user_text(prompt: str, items: Sequence[Item], trusted: Set[str]) -> str:
    """Return the user message of a wake: the prompt, and the drained inbox as one block."""
    if not items:
        return prompt
    shown: dict[object, tuple[Item, int]] = {}
    for number, item in enumerate(items):
        spot = (item.sender, item.text) if item.channel == "timer" else number
        shown[spot] = (item, shown[spot][1] + 1 if spot in shown else 1)
    lines = ["<inbox>"]
    for item, count in shown.values():
        mark = "" if item.sender in trusted else ", untrusted"
        ticks = f", {count} ticks" if count > 1 else ""
        # Indented, so that no item can end the block or begin a line that passes for another's.
        text = "\n    ".join(item.text.splitlines())
        lines.append(f"[{_one_line(item.channel)} from {_one_line(item.sender)}{mark}{ticks}] {text}")
    lines.append("</inbox>")
    block = "\n".join(lines)
    return f"{prompt}\n\n{block}" if prompt else block


def _one_line(name: str) -> str:
    return " ".join(name.split())


def batch_messages(tree: Tree, batch: Sequence[Call], why: str) -> list[Message]:
    """Return the results of a batch in call order; calls without one read `not run (<why>)`."""
    limit = tree.plan.max_result_chars
    messages: list[Message] = []
    for call in batch:
        if call.state == CallState.DONE:
            text, is_error = call.output, call.is_error
            metadata: dict[str, Any] = json.loads(call.metadata) if call.metadata else {}
            if call.edit is not None and call.seen and not metadata.get("replied"):
                metadata["arguments"] = json.loads(call.edit)
            if call.changed:
                # The model would go on from the arguments it wrote.
                text = f"[run with arguments changed by whoever approved it: {call.edit}]\n{text}"
        elif call.state == CallState.FINAL and why == "done":
            text, is_error, metadata = "accepted", False, {}
        else:
            in_doubt = call.state == CallState.CUT
            what = "entered, outcome unknown" if in_doubt else "not run"
            text, is_error = f"{what} ({call.limit or why})", True
            metadata = {"in_doubt": True} if in_doubt else {}
        messages.append(
            trusted(
                ToolMessage,
                role="tool",
                text=shown(text, limit, call.id),
                call_id=call.id,
                name=call.said,
                is_error=is_error,
                metadata=metadata,
            )
        )
    return messages


def committed(tree: Tree, node: Node, wake: Wake | None) -> list[Message]:
    """Return the committed transcript: what a rewind starts from, with calls left open at a stop noted as not run."""
    if wake is None or wake.status in ("done", "incomplete"):
        return list(node.messages)
    if node.state not in (State.RUNNING, State.SUSPENDED) and wake.status != "error" and not wake.cut:
        return list(node.messages)
    checkpoint = wake.checkpoint
    kept = list(wake.full) if wake.full is not None else node.messages[: checkpoint.messages]
    return kept + batch_messages(tree, checkpoint.batch or (), "stopped")


def doubts(wake: Wake | None) -> list[str]:
    """Return the calls of a wake that were entered and left without an outcome, and are not to be repeated."""
    return (
        [] if wake is None else [f"{m.tool}({m.args})" for m in wake.memory.values() if m.doubt() is not None]
    )


def status_text(tree: Tree, node: Node) -> str:
    """Return what a handle's last wake said, or one sentence for people that contains the reason it did not."""
    text = _status_text(node)
    left = doubts(node.wake)
    if left and node.wake is not None and node.wake.status is not None:
        text = f"{text} In doubt, entered and left without an outcome: {', '.join(left)}."
    return text


def _status_text(node: Node) -> str:
    wake = node.wake
    if wake is None:
        return f"{node.id} has done nothing yet." if node.closed_reason is None else f"{node.id} is closed."
    match wake.status:
        case "done":
            return wake.text if wake.output is None else wake.output
        case "incomplete":
            cap = f" ({wake.limit_cap})" if wake.limit_cap is not None else ""
            where = "" if wake.limit_at == node.id else f" of {wake.limit_at}"
            judged = ""
            if wake.verdicts and not wake.verdicts[-1][0]:
                judged = f" The completion gate's last verdict: {wake.verdicts[-1][1]}"
            if wake.limit == "completion":
                rounds = f"{len(wake.verdicts)} round{'s' if len(wake.verdicts) != 1 else ''}"
                return f"Stopped at completion: {rounds} without a pass.{judged}"
            return f"Stopped at {wake.limit}{cap}{where} without a final answer.{judged}"
        case "error":
            assert wake.error is not None
            kind, message = wake.error.type, wake.error.message
            # The adapters' messages begin with the kind.
            return message if message.startswith(kind) else f"{kind}: {message}"
        case "interrupted":
            return f"Interrupted: {wake.reason}." if wake.reason else "Interrupted."
        case "closed":
            return f"Closed: {wake.reason}." if wake.reason else "Closed before it was done."
        case _:
            return "Still running."


def child_outcome(tree: Tree, child: Node) -> tuple[str, bool, str]:
    """Return what a settled child gives its parent: text, whether it is an error, metadata as JSON."""
    wake = child.wake
    status = "closed" if wake is None or wake.status is None else wake.status
    text = status_text(tree, child)
    done = status == "done"
    metadata: dict[str, object] = {
        "agent": child.agent,
        "handle": child.id,
        "status": status,
        "limit": None if wake is None else wake.limit,
        "turns": child.turns,
        "total_tokens": child.total.tokens,
    }
    if left := doubts(wake):
        metadata["in_doubt"] = left
    return text if done else f"[{status}] {text}", not done, json.dumps(metadata, separators=(",", ":"))
