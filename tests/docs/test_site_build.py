"""What leads nowhere fails the build."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools import site_build
from tools.npm import NoNode

from tests.docs.pages import ROOT

MKDOCS = """
site_name: x
theme: {name: null, custom_dir: theme}
docs_dir: pages
plugins: []
validation: {omitted_files: warn, absolute_links: warn, unrecognized_links: warn, anchors: warn}
nav: [{Page: index.md}]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A configuration with one page and the validation of ours."""
    (tmp_path / "theme").mkdir()
    (tmp_path / "theme" / "main.html").write_text("{{ page.content }}", "utf-8")
    (tmp_path / "theme" / "404.html").write_text("", "utf-8")
    (tmp_path / "pages").mkdir()
    (tmp_path / "mkdocs.yml").write_text(MKDOCS, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("# A\n\n[x](gone.md)\n", "gone.md"),
        ("# A\n\n[x](#gone)\n", "#gone"),
        ("# A\n\n[x](/gone.md)\n", "/gone.md"),
    ],
    ids=["page", "anchor", "absolute"],
)
def test_a_link_to_nowhere_fails(small: Path, page: str, told: str) -> None:
    (small / "pages" / "index.md").write_text(page, "utf-8")
    with pytest.raises(site_build.BuildFailed, match=told):
        site_build.render(small / "mkdocs.yml")


def test_a_page_without_one_is_built(small: Path) -> None:
    (small / "pages" / "index.md").write_text("# A\n\n[x](#a)\n", "utf-8")
    site_build.render(small / "mkdocs.yml")
    assert "<h1" in (small / "site" / "index.html").read_text("utf-8")


def test_the_validation_is_that_of_our_site() -> None:
    ours = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nvalidation:\n")[2].partition("\n\n")[0]
    assert "{" + ", ".join(line.strip() for line in ours.splitlines()) + "}" in MKDOCS


def test_without_mermaid_nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tools.npm.FOLDER", tmp_path)
    rendered: list[Path] = []
    monkeypatch.setattr(site_build, "render", rendered.append)
    with pytest.raises(NoNode, match="make npm"):
        site_build.build()
    assert rendered == []


def test_what_is_there_already_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "tools/node/package.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(site_build, "ROOT", tmp_path)
    monkeypatch.setattr(site_build, "SITE", tmp_path / "site")
    monkeypatch.setattr(site_build, "vendor", lambda: None)
    monkeypatch.setattr("tools.llms.write", lambda site: None)
    monkeypatch.setattr(site_build, "render", lambda configuration: (tmp_path / "site").mkdir(exist_ok=True))
    assert [site_build.build(), site_build.build()] == [True, False]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "new.md").write_text("# New\n", "utf-8")
    assert [site_build.build(), site_build.build()] == [True, False]
