"""What a host's `Upgrade` makes of what is recorded: arguments as a tool takes them now, questions as it asks them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from overt._canonical import encode, jsonable
from overt._text import told
from overt.core import facts as f
from overt.core.batch import Call, CallState, Memory
from overt.core.replay import fits
from overt.core.tree import RequestState, Tree, Wake
from overt.core.views import request_view
from overt.driver.answers import fits_schema
from overt.driver.crew import RunnableTool
from overt.request import Request
from overt.upgrade import Upgrade

__all__ = ("Refusal", "UpgradeFailed", "one_line", "question_now", "upgraded")


class UpgradeFailed(Exception):
    """A function of the host's `Upgrade` raised, or returned what it may not; the message says so."""


class Refusal(NamedTuple):
    """Recorded arguments that a tool does not take, and nothing makes it take."""

    tool: str
    call: str
    """Id of the last call that had them."""
    why: str
    open: bool
    """Whether the call is open: else it is what a replay would look for and not find."""


OVER = (CallState.DONE, CallState.FINAL, CallState.WAITING)


def upgraded(
    tree: Tree, wake: Wake, name: str, now: str, tool: RunnableTool, upgrade: Upgrade
) -> tuple[list[tuple[str, str]], list[Refusal]]:
    """Look at every recorded call of a wake to a tool.

    Args:
        tree: The run.
        wake: The wake.
        name: The tool's name as the run has it.
        now: Its name in this process.
        tool: The tool.
        upgrade: The host's.

    Returns:
        Arguments that have another form now, with that form; and those the tool refuses that are still needed.
    """
    open_calls = {c.key: c for c in wake.batch or () if c.name == name and _is_open(c)}
    present: dict[str, str] = {}
    if wake.origins is not None:
        for (known, args), firsts in wake.origins.arguments.items():
            if known == name:
                present.update(dict.fromkeys(firsts, args))
    changed: dict[str, str] = {}
    refused: list[Refusal] = []
    taken: dict[str, str | None] = {}
    for memory in wake.memory.values():
        if memory.tool != name:
            continue
        call = open_calls.get(memory.key)
        texts = {present.get(memory.args, memory.args): False}
        if memory.edit is not None:
            texts[memory.edit] = False
        if call is not None:
            texts[call.run_args] = True
        for text, entered in texts.items():
            if text not in taken:
                taken[text] = _take(now, tool, text, upgrade, changed)
            why = taken[text]
            if why is not None and (entered or _is_needed(tree, wake, memory, tool)):
                id = memory.call if call is None else call.id
                refused.append(Refusal(now, id, why, call is not None))
                break
    return list(changed.items()), refused


def _is_open(call: Call) -> bool:
    return call.error is None and not call.task and call.state not in OVER


def _is_needed(tree: Tree, wake: Wake, memory: Memory, tool: RunnableTool) -> bool:
    """Whether a replay that does not find this call again does twice what is to be done once, or asks anew."""
    if tree.policy != "rewind" or memory.key in wake.kept():
        return False
    if tool.on_replay == "reuse" and (memory.finished or memory.unsettled):
        return True
    asked = memory.slots if memory.guard is None else (*memory.slots, memory.guard)
    return memory.once is not None or any(tree.requests[id].status == "answered" for id in asked)


def _take(name: str, tool: RunnableTool, text: str, upgrade: Upgrade, changed: dict[str, str]) -> str | None:
    """Note the form that arguments have now, where it is another; return why the tool does not take them."""
    try:
        after = tool.canonical(text)
    except (ValueError, TypeError) as error:
        if upgrade.arguments is None:
            return one_line(error)
        try:
            after = tool.canonical(_upgraded_arguments(upgrade, name, text))
        except UpgradeFailed as failed:
            return str(failed)
        except (ValueError, TypeError) as still:
            return f"also not as Upgrade.arguments has them: {one_line(still)}"
    if after != text:
        changed[text] = after
    return None


def _upgraded_arguments(upgrade: Upgrade, name: str, text: str) -> dict[str, object]:
    assert upgrade.arguments is not None
    try:
        given: object = upgrade.arguments(name, json.loads(text))
    except Exception as error:
        raise UpgradeFailed(f"Upgrade.arguments raised {type(error).__name__}: {one_line(error)}") from error
    if not hasattr(given, "keys"):
        raise UpgradeFailed(f"Upgrade.arguments returned {type(given).__name__}, not a mapping")
    return dict(cast("dict[str, object]", given))


def one_line(error: BaseException) -> str:
    """Return what an exception says on one line."""
    first, *rest = told(error).splitlines() or [type(error).__name__]
    return f"{first} {'; '.join(line.strip() for line in rest)}".strip()


def question_now(
    tree: Tree, request: RequestState, wanted: f.Question, upgrade: Upgrade
) -> f.Question | None:
    """Return an answered question in its upgraded form, if that is what is asked now and the answer fits.

    Args:
        tree: The run.
        request: The question; it has its answer.
        wanted: What is asked now.
        upgrade: The host's.

    Raises:
        UpgradeFailed: The host's function did.
    """
    if upgrade.questions is None or request.answer is None:
        return None
    try:
        given = upgrade.questions(request_view(tree, request))
    except Exception as error:
        raise UpgradeFailed(f"Upgrade.questions raised {type(error).__name__}: {one_line(error)}") from error
    if given is None:
        return None
    if not isinstance(given, Request):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's own function
        raise UpgradeFailed(f"Upgrade.questions returned {type(given).__name__}, not a Request or None")
    kept: dict[str, Any] = json.loads(request.question.data)
    try:
        data = {**given.data, **({"call": kept["call"]} if "call" in kept else {})}
        text = encode(jsonable(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise UpgradeFailed(f"Upgrade.questions returned data that is no JSON: {one_line(error)}") from error
    # Of a type that has changed only the answer has to fit: its schema is not for the host to write down.
    now = wanted._replace(expires_at=request.question.expires_at)
    form = f.Question(given.kind, given.prompt, given.url, text, now.schema, now.expires_at)
    if not fits(form, now):
        return None
    answer = request.answer
    return now if not answer.ok or fits_schema(now.schema, answer.data) else None
