"""Examples of docstrings are executed, each docstring on its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.fences import Page, docstrings, faults

from tests.docs.pages import ROOT, run_docstring

EXAMPLES = [found for path in sorted((ROOT / "src" / "overt").rglob("*.py")) for found in docstrings(path)]


@pytest.mark.parametrize("found", EXAMPLES, ids=lambda found: found.package.removeprefix("src_overt_"))
def test_every_example_of_a_docstring(
    found: Page, tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(faults(found)) == []
    ran = run_docstring(found, tmp_path, anyio_backend, monkeypatch)
    assert ran == sum(fence.language != "text" for fence in found.fences)


@pytest.mark.parametrize(
    "name",
    [
        "Agent",
        "tool",
        "ToolContext.ask",
        "pending",
        "Runtime.open",
        "Runtime.resume",
        "TaskResult",
        "Completion",
        "Budget",
    ],
)
def test_what_users_begin_with_has_one(name: str) -> None:
    assert any(found.package.endswith(f"__{name.replace('.', '_')}") for found in EXAMPLES)
