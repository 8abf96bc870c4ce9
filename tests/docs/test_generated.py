"""What the reference takes from the code is what the code has now."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from tools import gen_docs, gen_vocabulary
from tools.site_names import public_modules

from overt.core.lifecycle import TRANSITIONS, Move
from overt.events import Event, TextDelta
from overt.result import Status
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", gen_docs.PARTS)
def test_a_page_has_what_the_code_has(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert gen_docs.render(page, text) == text, "run tools/gen_docs.py"


def test_every_move_is_in_the_table_and_in_the_drawing() -> None:
    text = gen_docs.lifecycle()
    for (source, move), target in TRANSITIONS.items():
        rows = [line for line in text.splitlines() if line.startswith(f"| `{move}` |")]
        assert any(f"{source} → {target}" in row for row in rows)
        assert f"    {source} --> {target}: {move}" in text
    assert set(gen_docs.MOVES) == set(Move)


def test_a_page_without_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match="place for lifecycle"):
        gen_docs.render("reference/states.md", "# States\n")


def test_a_word_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(gen_vocabulary.SOURCES, "hook")
    with pytest.raises(ValueError, match=r"\['hook'\]"):
        gen_vocabulary.sources()


def test_a_meaning_without_a_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gen_vocabulary.TYPES, "NeverSaid", "")
    with pytest.raises(ValueError, match="NeverSaid"):
        gen_vocabulary.types()


def test_types_of_errors_are_read_off_the_source() -> None:
    ours = {"ReplayDiverged", "GuardrailDenied", "EmptyReply", "Refusal", "StreamIncomplete"}
    assert ours <= gen_vocabulary.error_types()


def test_a_status_of_the_page_is_a_status() -> None:
    words = re.findall(r"^\| `(\w+)` \|", gen_vocabulary.enum("result", Status), re.MULTILINE)
    assert words == [str(status) for status in Status]


def test_every_event_is_in_the_catalogue_in_the_order_of_the_union() -> None:
    kinds = re.findall(r"^\| `(\w+)` \| \[", gen_docs.events(), re.MULTILINE)
    union = get_args(get_args(Event)[0])
    assert kinds == [cls.model_fields["kind"].default for cls in union]
    assert kinds[0] == TextDelta.model_fields["kind"].default


def test_the_page_of_public_names_has_each_once() -> None:
    text = (DOCS / "reference" / "index.md").read_text("utf-8")
    for module in public_modules():
        section = text.partition(f"## {module} {{")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| \[`(\w+)`\]", section, re.MULTILINE)
        exported = [name.rpartition(".")[2] for name in gen_docs.names() if name.rpartition(".")[0] == module]
        assert sorted(listed) == sorted(exported), module
