"""The programs of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.fences import markdown

from tests.docs.pages import ROOT, run_page

DOCS = ROOT / "docs"


PAGES = [
    page
    for page in markdown()
    if page.is_relative_to(DOCS)
    and re.search(r"^[ \t]*([`~]{3,} *(python|console)|<!-- *check:)", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_every_block_of_a_page(
    page: Path, tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_page(page, tmp_path, anyio_backend, monkeypatch)


def test_the_table_of_what_a_resume_replays_is_the_same_wherever_it_stands() -> None:
    head = "| in the wake that asked"
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", DOCS / "corrections" / "replay.md")]
    tables = [text[text.index(head) :].split("\n\n")[0] for text in texts]
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 9


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_from_outside_of_the_site_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", (ROOT / name).read_text("utf-8")):
        path, _, anchor = target.partition("#")
        page = ROOT / (path or name)
        assert page.is_file(), target
        headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
        assert not anchor or anchor in [
            re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings
        ], target


def test_every_decision_is_listed_and_short() -> None:
    index = (DOCS / "decisions" / "README.md").read_text("utf-8")
    files = sorted(path for path in (DOCS / "decisions").glob("[0-9]*.md"))
    assert len(files) >= 8
    for path in files:
        assert f"({path.name})" in index
        assert len(path.read_text("utf-8").splitlines()) <= 20, path.name
