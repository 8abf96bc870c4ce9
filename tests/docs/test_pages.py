"""The programs of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_the_table_of_what_a_resume_replays_is_the_same_on_both_pages() -> None:
    head = "| in the wake that asked"
    tables = [
        text[text.index(head) :].split("\n\n")[0]
        for text in (path.read_text("utf-8") for path in (ROOT / "README.md", DOCS / "concepts.md"))
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
