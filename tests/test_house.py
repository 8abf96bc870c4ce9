"""House rules that no linter knows."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import sniffio

import overt

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "overt"
CEILING = 600
# Spelled so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(rb"/" + rb"work/|/" + rb"root/\.|/" + rb"home/\w+/")
BUILT = {".git", ".venv", "site", "build", "dist", "__pycache__"}


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and not BUILT & set(p.relative_to(ROOT).parts)]


def public_modules() -> list[str]:
    found = ("overt", *(module.name for module in pkgutil.walk_packages(overt.__path__, "overt.")))
    return [name for name in found if not any(part.startswith("_") for part in name.split("."))]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_file_is_below_the_ceiling(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= CEILING, f"{path.relative_to(ROOT)} has {lines} lines: it has two topics"


def test_no_file_names_a_path_of_one_machine() -> None:
    files = project_files()
    assert len(files) > 20
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in files
        if (match := MACHINE_PATHS.search(path.read_bytes()))
    ]
    assert not found


@pytest.mark.parametrize("name", public_modules())
def test_public_module_has_a_tuple_all_of_names_it_has(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__
    if not Path(module.__file__).read_bytes():
        return  # an empty package has nothing to list
    names = getattr(module, "__all__", None)
    assert isinstance(names, tuple), f"{name} needs a tuple __all__"
    assert len(set(names)) == len(names)
    assert not [n for n in names if not hasattr(module, n)]


async def test_async_tests_run_on_both_loops(anyio_backend_name: str) -> None:
    await anyio.lowlevel.checkpoint()
    assert sniffio.current_async_library() == anyio_backend_name
