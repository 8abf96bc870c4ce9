"""Builds the documentation into `site/`: `python -m tools.site_build`.

A site that is there already is left alone, if nothing it is made of has changed. Several processes may call for it at
once: one builds, the others wait. So `make docs`, the gate and the tests share one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from tools import llms
from tools.npm import NoNode, package

__all__ = ("BuildFailed", "build", "main", "render", "vendor")

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
VENDOR = ROOT / "docs" / "assets" / "vendor"
MADE_OF = (
    "mkdocs.yml",
    "docs/**/*",
    "src/overt/**/*.py",
    "stubs/**/*.pyi",
    "tools/*.py",
    "tools/node/package.json",
)
MADE_BY = (
    "griffe-pydantic",
    "griffelib",
    "mkdocs",
    "mkdocs-autorefs",
    "mkdocs-material",
    "mkdocstrings-python",
)


class BuildFailed(Exception):
    """The build said that something is wrong."""


def vendor() -> None:
    """Put Mermaid where the build takes it from, with its licence.

    Raises:
        NoNode: It is not installed; says what to do.
    """
    home = package("@mermaid-js/tiny")
    VENDOR.mkdir(exist_ok=True)
    for source, name in (("dist/mermaid.tiny.js", "mermaid.js"), ("LICENSE", "mermaid.LICENSE")):
        made = VENDOR / name
        if not made.exists() or made.read_bytes() != (home / source).read_bytes():
            shutil.copy(home / source, made)


def build() -> bool:
    """Build the site, strictly; return whether there was anything to do.

    Raises:
        BuildFailed: A link, an anchor or a name leads nowhere; says where.
        NoNode: What draws the diagrams is not installed, and no page asks for it elsewhere.
    """
    with _alone():
        vendor()
        stamp, digest = SITE / ".built", _digest()
        if stamp.exists() and stamp.read_text("utf-8") == digest:
            return False
        stamp.unlink(missing_ok=True)
        render(ROOT / "mkdocs.yml")
        llms.write(SITE)
        stamp.write_text(digest, "utf-8")
        return True


def render(configuration: Path) -> None:
    """Have the pages of a configuration written.

    Raises:
        BuildFailed: There was a warning.
    """
    # Not `--quiet`: what is not logged is not counted, so nothing would ever fail.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(configuration)]
    notices_off = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(
        command,
        cwd=configuration.parent,
        env={**os.environ, **notices_off},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = f"{done.stdout}{done.stderr}".splitlines()
        raise BuildFailed("\n".join(line for line in lines if not line.startswith("INFO ")).strip())


@contextmanager
def _alone() -> Iterator[None]:
    with (ROOT / ".site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest() -> str:
    made = hashlib.sha256("".join(f"{name} {version(name)}\n" for name in MADE_BY).encode())
    paths = {path for pattern in MADE_OF for path in ROOT.glob(pattern) if path.is_file()}
    for path in sorted(paths):
        made.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return made.hexdigest()


def main() -> int:
    """Build; return the exit code."""
    try:
        build()
    except (BuildFailed, NoNode) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
