"""What the README shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page

pytestmark = pytest.mark.timeout(300)


def test_every_block_of_the_readme(
    tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_page(ROOT / "README.md", tmp_path, anyio_backend, monkeypatch) >= 8
