"""Numbers in docstrings of public names are what the code has: each is held by an expression here, or is not ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import griffe
import pytest
from tools.gen_docs import names
from tools.prose import Check, covered, numbers

from tests.docs.pages import asserted

PROMPTS = re.compile(r"^ *(>>>|\.\.\.) .*(\n *\w+\(.*)?$", re.MULTILINE)
FREE = (0.0, 1.0)
"""Where something is counted from, and what has to be there at least."""
KEPT_BACK = 'all(overt.models._failures.denied("APIError", status) for status in (401, 403))'
HELD = {
    "overt.Agent": 'overt.Agent("a" * 128, does="d").name != ""',
    "overt.ErrorInfo.detail": KEPT_BACK,
    "overt.Options.guardrail_timeout": 'default("guardrail_timeout") == 30',
    "overt.Options.inbox_cap": 'default("inbox_cap") == 8',
    "overt.Options.max_concurrent_turns": 'default("max_concurrent_turns") == 8',
    "overt.Options.max_divergences": 'default("max_divergences") == 2',
    "overt.Options.shutdown": 'default("shutdown") == 0.2',
    "overt.Options.claim": 'default("claim") == 30',
    "overt.Options.max_result_chars": 'default("max_result_chars") == 100_000',
    "overt.Options.retry": 'default("retry").base == 0.5 and default("retry").max_retries == 2',
    "overt.RetryPolicy": "all(overt.policy.may_succeed_later(status) for status in (408, 409, 425, 429))",
    "overt.ToolContext": 'len(overt.core.keys.call_key("r", "h", "w", "t", "{}", "o")) == 32',
    "overt.tool": 'overt._signature.NAME.fullmatch("a" * 64) is not None',
    "overt.errors.ModelError": KEPT_BACK,
    "overt.models.AnthropicModel.generate": KEPT_BACK,
    "overt.models.GoogleModel": "overt.models.google._TIMEOUT.read == 600",
    "overt.models.GoogleModel.generate": KEPT_BACK,
    "overt.models.OpenAIModel.generate": KEPT_BACK,
    "overt.models.OpenAIResponsesModel": "overt.models._responses_wire._MIN_OUTPUT == 16",
    "overt.models.OpenAIResponsesModel.generate": KEPT_BACK,
    "overt.models.PydanticAIModel.generate": KEPT_BACK,
    "overt.stores.EncryptedStore": "overt.journal.encrypted.SIZE == 32",
    "overt.stores.EncryptedStore.generate_key": "len(overt.stores.EncryptedStore.generate_key()) == 44",
    "overt.stores.PostgresStore": "overt.journal._postgres_db._OLDEST // 10_000 == 13"
    ' and overt.journal._postgres_words._DEFAULTS["connect_timeout"] == "10"',
    "overt.testing.Cassette": "overt.testing.cassette._PIECE == 16",
    "overt.testing.MockModel": "overt.testing.mock._usage(100).input_tokens == 80"
    " and overt.testing.mock._usage(100).output_tokens == 20",
    "overt.sources.mcp.ToolServer.tools": "overt.sources.mcp.names._LONGEST == 64",
}
"""By name, what has to be true, with the numbers that its docstring says."""
OTHERS: dict[str, set[float | str]] = {
    "overt.events.Rewound.attempt": {2.0},  # the first one rewinds nothing
    "overt.models.AnthropicModel": {20_000.0, 4.5},  # the client's, and a model's name
    "overt.models.GoogleModel": {3.0},  # a model's name
    "overt.models.PydanticAIModel": {0.4},  # measured
    "overt.sources.mcp.ToolServer.stdio": {"2026-07-28"},  # the protocol's
    "overt.testing.VirtualClock": {0.1},  # an example of rounding
    "overt.tool": {3.0},  # an example of pydantic's
}
"""By name, the numbers that are not ours, or are an example's."""


def docstrings(path: str, thing: griffe.Object, seen: set[int]) -> Iterator[tuple[str, str]]:
    if thing.docstring is not None:
        yield path, thing.docstring.value
    for name, member in thing.all_members.items() if isinstance(thing, griffe.Class) else ():
        if (
            (name == "__init__" or not name.startswith("_"))
            and not member.is_alias
            and id(member) not in seen
        ):
            seen.add(id(member))
            inner = path if name == "__init__" else f"{path}.{name}"
            yield from docstrings(inner, member, seen)  # type: ignore[arg-type]  # aliases are left out


def said() -> dict[str, set[float | str]]:
    """Return the numbers of each docstring, those that its own examples print or have aside."""
    found: dict[str, set[float | str]] = {}
    seen: set[int] = set()
    for public, thing in names().items():
        for path, text in docstrings(public, thing, seen):
            numbered = {number for _, number in numbers(PROMPTS.sub("", text))}
            found[path] = found.get(path, set()) | numbered - set(FREE)
    return {path: numbered for path, numbered in found.items() if numbered}


def test_every_number_of_a_docstring_is_held_or_not_ours() -> None:
    found = said()
    assert len(found) > 30
    left = {
        path: numbered - OTHERS.get(path, set()) - (covered(HELD[path], set()) if path in HELD else set())
        for path, numbered in found.items()
    }
    assert {path: numbered for path, numbered in left.items() if numbered} == {}
    # And nothing is held that nobody says.
    assert {path for path in (*HELD, *OTHERS) if path not in found} == set()
    assert {path for path, numbered in OTHERS.items() if not numbered <= found[path]} == set()


@pytest.mark.parametrize("path", HELD)
def test_it_is_so(path: str) -> None:
    assert asserted(Check(source=HELD[path], line=1, start=0, end=0), __file__, {}) is None
