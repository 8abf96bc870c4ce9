"""What the README shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from sybil.example import SybilFailure

from tests.docs.pages import ROOT, run_page

pytestmark = pytest.mark.timeout(300)


def test_every_block_of_the_readme(
    tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_page(ROOT / "README.md", tmp_path, anyio_backend, monkeypatch) >= 8


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("```python\nprint(1)\n#> 2\n```\n", r"page.md, line 1.*printed \['1'\], the page says \['2'\]"),
        ("```python\n# one.py\nprint(1)\n```\n\n```console\n$ python one.py\n2\n```\n", r"printed \['1'\]"),
        ("```python\nprint(1)\n```\n", r"printed \['1'\], the page says \[\]"),
    ],
)
def test_a_page_that_says_otherwise_fails(
    tmp_path: Path, block: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(block, encoding="utf-8")
    with pytest.raises(SybilFailure, match=f"(?s){told}"):
        run_page(page, tmp_path, "asyncio", monkeypatch)


def test_an_exception_carries_the_line_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("A page.\n\n```python\nx = 1\nraise ValueError\n```\n", encoding="utf-8")
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # where it comes from is what counts
        run_page(page, tmp_path, "asyncio", monkeypatch)
    assert [entry.lineno + 1 for entry in caught.traceback if Path(entry.path) == page] == [5]
