"""The documentation is what the code has, and its programs run."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from overt.core.lifecycle import TRANSITIONS, Move
from overt.result import State
from tests.docs.pages import ROOT, run_page

DOCS = ROOT / "docs"


PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.parent.name != "decisions"
    and re.search(r"^```(python|console)", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_every_block_of_a_page(
    page: Path, tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_page(page, tmp_path, anyio_backend, monkeypatch)


@pytest.fixture
def gen_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tools" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lifecycle_on_the_page_is_the_table_of_the_core(gen_docs: ModuleType) -> None:
    page = (DOCS / "concepts.md").read_text("utf-8")
    assert gen_docs.render(page) == page, "run tools/gen_docs.py"
    for (source, move), target in TRANSITIONS.items():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{move}` |")]
        assert any(f"{source} → {target}" in row for row in rows)


def test_a_move_without_a_place_in_the_drawing_is_refused(
    gen_docs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges: dict[object, object] = dict(TRANSITIONS)
    edges[State.SUSPENDED, Move.PARK] = State.SUSPENDED
    monkeypatch.setattr(gen_docs, "TRANSITIONS", edges)
    with pytest.raises(ValueError, match="no place"):
        gen_docs.picture()


def test_the_table_of_what_a_resume_replays_is_the_same_on_both_pages() -> None:
    head = "| in the wake that asked"
    pages = (ROOT / "README.md", DOCS / "corrections" / "replay.md")
    tables = [
        text[text.index(head) :].split("\n\n")[0] for text in (path.read_text("utf-8") for path in pages)
    ]
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 9


def test_every_decision_is_listed_and_short() -> None:
    index = (DOCS / "decisions" / "README.md").read_text("utf-8")
    files = sorted(path for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert len(files) >= 8
    for path in files:
        assert f"({path.name})" in index
        assert len(path.read_text("utf-8").splitlines()) <= 20, path.name
