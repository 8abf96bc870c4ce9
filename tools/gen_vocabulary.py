"""The closed vocabularies of the package, as tables: what `gen_docs.py` writes into `reference/vocabulary.md`.

What a word means is read off its docstring. Where the code has the word as text only, its meaning stands here, and a
word without one, or a meaning without a word, is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Set
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import get_args

import griffe

from overt.core.facts import FACTS
from overt.core.work import REPLY_ERRORS
from overt.policy import ResumePolicy
from overt.result import ErrorInfo, Limit, State, Status

__all__ = ("PARTS", "cell", "error_types", "first_sentence", "table")

SOURCE = Path(__file__).parent.parent / "src" / "overt"
KINDS = {
    "approval": "Somebody has to agree: a guardrail asks, or a tool does.",
    "input": "A tool needs something only a person or the host knows. The default of `ToolContext.ask`.",
    "authorization": "Somebody has to sign in or consent elsewhere, mostly at the request's `url`.",
    "budget": "A cap is spent; the answer's `data` is how much more may be. The runtime's own, by `Suspend`.",
    "in_doubt": "Whether a call has happened that was entered and left without an outcome. The runtime's own.",
}
ON_REPLAY = {
    "rerun": "The default, and a declaration: running it twice is right. A finished call is entered again in a replay.",
    "reuse": "A finished call, also a failed one, is never entered again: a replay is given its recorded result.",
}
SOURCES = {
    "model": "The model call: the provider, its client, or what it replied.",
    "tool": "A tool's own `resolve`, where a call is in doubt. What a tool raises is a result for the model.",
    "wait_for": "A `wait_for` that raised; the run is parked all the same.",
    "guardrail": "A prompt or a final answer was denied.",
    "completion": "The completion gate's verifier.",
    "hook": "A hook, `on_limit`, or an `upgrade` rule.",
    "store": "The store.",
    "runtime": "The runtime itself: a replay that diverged, an agent that is gone.",
}
TYPES = {
    "APIConnectionError": "No answer came from the provider.",
    "APITimeoutError": "No answer came from the provider in time.",
    "ArgumentsInvalid": "`before_tool` changed arguments into some that the tool's schema refuses.",
    "AuthenticationError": "The provider's client has no credentials it can use.",
    "BrokenTranscript": "`before_llm` gave messages in which a call has no result behind it.",
    "Cancelled": "The model call ended in a cancellation of its own.",
    "ContentFilter": "The provider's content filter held the reply back.",
    "EmptyReply": "The reply has neither text nor calls.",
    "ErrorReply": "The provider answered with an error in the place of a reply.",
    "GuardrailDenied": "A guardrail denied a prompt or a final answer.",
    "InvalidReply": "The reply is not what the provider's protocol promises.",
    "ModelError": "A model of your own raised `ModelError` and gave no `type`.",
    "OutputTruncated": "The output limit cut the reply off.",
    "Refusal": "The model refused.",
    "ReplayDiverged": "A replayed wake wanted something else than its earlier attempt, past an unused answer or child.",
    "SpecDrift": "The agent that was at work is not in the code any more.",
    "StreamIncomplete": "A stream broke off before its end.",
    "SuspendedReply": "A provider parked the reply on its side, which cannot be carried on.",
    "TypeError": "A hook or `before_llm` gave a value of the wrong type.",
    "UpgradeFailed": "An `upgrade` rule raised or gave something that does not fit.",
    "UsageError": "A hook or `on_limit` gave what cannot be done.",
}
MAKERS = {"ErrorSpec", "_failed", "status_failure", "connection_failure", "other_failure"}
"""What makes an error and is given its type first."""


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, as a cell."""
    return cell(
        re.split(r"(?<=[.:])\s+(?=[A-Z`\[])", " ".join(text.partition("\n\n")[0].split()))[0].rstrip(":")
    )


def table(head: str, rows: Mapping[str, str]) -> str:
    """Return words and their meanings."""
    body = [f"| `{word}` | {cell(meaning)} |" for word, meaning in rows.items()]
    return "\n".join([f"| {head} | meaning |", "| --- | --- |", *body])


def fits(words: Set[str], meanings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the meanings.

    Raises:
        ValueError: They are not those of exactly these words; names the ones in question.
    """
    if wrong := set(words) ^ set(meanings):
        raise ValueError(f"no meaning, or no such word in the code: {sorted(wrong)}")
    return meanings


# ------------------------------------------------------------------ what the code has


@cache
def _module(name: str) -> griffe.Module:
    return griffe.visit(name, SOURCE / f"{name}.py", (SOURCE / f"{name}.py").read_text("utf-8"))


def _docstring(module: str, *path: str) -> str:
    item: griffe.Object | griffe.Alias = _module(module)
    for part in path:
        item = item.members[part]
    if item.docstring is None:
        raise ValueError(f"overt.{module}.{'.'.join(path)} has no docstring")
    return item.docstring.value


def enum(module: str, cls: type[StrEnum]) -> str:
    """Return an enum's members as they stand on the wire, and what each means."""
    rows = [
        f"| `{member.value}` | `{cls.__name__}.{name}` | {cell(_docstring(module, cls.__name__, name))} |"
        for name, member in cls.__members__.items()
    ]
    return "\n".join(["| value | member | meaning |", "| --- | --- | --- |", *rows])


def kinds() -> str:
    """Return the kinds of a request that the package knows."""
    return table("kind", fits(set(re.findall(r'`"(\w+)"`', _docstring("request", "Request", "kind"))), KINDS))


def on_replay() -> str:
    """Return what a tool may declare about its replays."""
    found = _module("tool").members["tool"]
    assert isinstance(found, griffe.Function)
    words = set(re.findall(r"'(\w+)'", str(found.parameters["on_replay"].annotation)))
    return table("`on_replay`", fits(words, ON_REPLAY))


def sources() -> str:
    """Return where an error may come from."""
    return table("source", fits(set(get_args(ErrorInfo.model_fields["source"].annotation)), SOURCES))


@cache
def error_types() -> frozenset[str]:
    """Return every `ErrorInfo.type` of our own: what the source gives to whatever makes an error."""
    found = {type for type, _ in REPLY_ERRORS.values()} | {"ModelError"}
    for path in SOURCE.rglob("*.py"):
        if {"demo", "testing"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [word.value for word in node.keywords if word.arg == "type" and name == "ModelError"]
            given += node.args[:1] if name in MAKERS else []
            found |= {
                each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return frozenset(found)


def types() -> str:
    """Return the types of errors that are ours."""
    return table("type", fits(error_types(), TYPES))


def facts() -> str:
    """Return the facts of the journal."""
    rows = {name: first_sentence(fact.__doc__ or "") for name, fact in sorted(FACTS.items())}
    return table("fact", rows)


PARTS: dict[str, Callable[[], str]] = {
    "status": lambda: enum("result", Status),
    "limit": lambda: enum("result", Limit),
    "state": lambda: enum("result", State),
    "policy": lambda: enum("policy", ResumePolicy),
    "on_replay": on_replay,
    "kinds": kinds,
    "sources": sources,
    "types": types,
    "facts": facts,
}
