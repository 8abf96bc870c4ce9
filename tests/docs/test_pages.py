"""The programs of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from tools.fences import markdown
from tools.site_names import public_modules

import overt
from overt.result import ErrorInfo, Limit, State, Status
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


def test_the_words_of_that_table_are_what_its_program_counts() -> None:
    """Again is what happens at least as often after the answer as before it; the page's own run checks the counts."""
    text = (DOCS / "corrections" / "replay.md").read_text("utf-8")
    rows = [line.split("|")[2:4] for line in text[text.index("| in the wak") :].split("\n\n")[0].splitlines()]
    said = [["recorded" not in cell and "carried" not in cell for cell in row] for row in rows[2:8]]
    counted = re.findall(r"^#> [a-z ]+ (\d+) +(\d+) +(\d+)$", text, re.MULTILINE)[:6]
    assert said == [
        [int(after) - int(parked) >= int(parked) for after in later] for parked, *later in counted
    ]


def test_the_table_of_vocabularies_has_their_words() -> None:
    text = (DOCS / "corrections" / "stops.md").read_text("utf-8")
    rows = {
        row[0].strip("` "): re.findall(r"`(\w+)`", row[1])
        for row in re.findall(r"^\|(.*?)\|(.*?)\|", text, re.MULTILINE)
    }
    sources = get_args(ErrorInfo.model_fields["source"].annotation)
    wanted = {"Status": [*Status], "Limit": [*Limit], "State": [*State], "source of an error": [*sources]}
    assert {name: sorted(rows[name]) for name in wanted} == {
        name: sorted(map(str, words)) for name, words in wanted.items()
    }


def test_what_pages_outside_of_the_site_name_is_there() -> None:
    text = (ROOT / "VERSIONING.md").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = {*re.findall(r"^(\w[\w-]*):", makefile, re.MULTILINE), "fix", "test", "check"}
    for name in ("VERSIONING.md", "CONTRIBUTING.md", "README.md"):
        for command in re.findall(r"`make ((?:[a-z-]+ ?)+)", (ROOT / name).read_text("utf-8")):
            assert set(command.split()) <= targets, f"{name}: make {command}"
    assert sorted(
        re.findall(r"`(overt[.\w]*)`", text.partition("public modules are")[2].partition(". Every")[0])
    ) == sorted(public_modules())
    closed = text.partition("values of ")[2].partition(", of every")[0]
    assert all(hasattr(overt, name) for name in re.findall(r"`(\w+)`", closed))
    gates = re.search(r"^GATES := (.*)$", makefile, re.MULTILINE)
    table = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| target | holds |")[2].partition("\n\n")[0]
    )
    listed = {
        name
        for row in re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert gates
    assert listed - {"pytest"} <= set(gates[1].split())


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
