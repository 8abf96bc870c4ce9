"""Which interpreters the wheel is tried on. The rest of the tool is run by `make wheel`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tools import check_wheel


def test_one_that_is_not_there_is_named_and_the_running_one_is_always_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    launcher = tmp_path / "python3.99"
    launcher.write_text(
        "#!/bin/sh\nexit 127\n", encoding="utf-8"
    )  # as pyenv's, of a version that is not there
    launcher.chmod(0o755)
    monkeypatch.setattr(check_wheel, "VERSIONS", (sys.version_info[:2], (3, 98), (3, 99)))
    assert list(check_wheel.interpreters()) == [
        (sys.version_info[:2], sys.executable),
        ((3, 98), None),
        ((3, 99), None),
    ]


def test_what_pyenv_keeps_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = tmp_path / "versions" / "3.99.1" / "bin" / "python3.99"
    kept.parent.mkdir(parents=True)
    kept.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(check_wheel, "VERSIONS", ((3, 99),))
    assert list(check_wheel.interpreters()) == [((3, 99), str(kept))]


def test_every_module_with_a_stub_is_imported() -> None:
    assert check_wheel.doors() == [
        "overt",
        "overt.errors",
        "overt.events",
        "overt.models",
        "overt.operations",
        "overt.sources.mcp",
        "overt.stores",
        "overt.testing",
    ]
