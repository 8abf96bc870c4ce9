"""Build sdist and wheel, install the wheel where nothing else is, and use it there.

The wheel is built from the unpacked sdist, so the sdist is complete. Then, in a clean environment: the number of
distributions, what the wheel holds, a run with the scripted model, and the typing tests under mypy and basedpyright,
which come from the environment this is started in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
MOST_DISTRIBUTIONS = 11
RUN = """
import overt
from overt.testing import MockModel, call, say

@overt.tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

agent = overt.Agent("adder", does="Adds.", tools=[add])
result, runtime = agent.run_sync("1 + 2?", model=MockModel([call("add", a=1, b=2), say("3")]))
assert (result.text, result.turns, result.usage.tool_calls) == ("3", 2, 1), result
assert len(runtime.events()) > 3
print(overt.__file__)
"""


def run(*command: str | Path, at: Path) -> str:
    """Run a command where nothing of the caller's environment leads to its own packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MYPYPATH")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=at, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_environment(at: Path, *packages: str | Path) -> Path:
    venv.create(at, with_pip=True)
    python = at / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, at=at)
    return python


def build(at: Path) -> Path:
    """Return the wheel, made of the sdist."""
    builder = make_environment(at / "builder", "hatchling>=1.26")
    run(builder, "-m", "hatchling", "build", "-t", "sdist", "-d", at, at=ROOT)
    (sdist,) = at.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        # Before 3.11.4 there is no filter; it is our own archive.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(at / "sdist", filter="data")
        else:
            archive.extractall(at / "sdist")
    (unpacked,) = (at / "sdist").iterdir()
    run(builder, "-m", "hatchling", "build", "-t", "wheel", "-d", at, at=unpacked)
    (wheel,) = at.glob("*.whl")
    return wheel


def check_content(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    package = {
        f"overt/{p.relative_to(ROOT / 'src' / 'overt').as_posix()}" for p in (ROOT / "src").rglob("*.py")
    }
    missing = (package | {"overt/py.typed"}) - set(names)
    beside = [name for name in names if not name.startswith("overt/") and ".dist-info/" not in name]
    if missing or beside or not any(name.endswith("/licenses/LICENSE") for name in names):
        raise SystemExit(
            f"{wheel.name}: missing {sorted(missing)}, beside the package {beside}, or no licence"
        )


def main() -> int:
    """Run every check; a failed one ends with a message."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        wheel = build(at)
        check_content(wheel)
        python = make_environment(at / "clean", wheel)
        listed: list[dict[str, str]] = json.loads(
            run(python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check", at=at)
        )
        installed = sorted({entry["name"] for entry in listed} - {"pip", "setuptools", "wheel"})
        if len(installed) > MOST_DISTRIBUTIONS:
            raise SystemExit(
                f"{len(installed)} distributions are more than {MOST_DISTRIBUTIONS}: {installed}"
            )
        where = run(python, "-c", RUN, at=at).strip()
        if not Path(where).is_relative_to(at):
            raise SystemExit(f"another overt was used: {where}")
        shutil.copytree(
            ROOT / "tests" / "typing", at / "typing", ignore=shutil.ignore_patterns("__pycache__")
        )
        run(
            BIN / "mypy",
            "--strict",
            "--python-executable",
            python,
            "--cache-dir",
            at / "cache",
            "--config-file",
            ROOT / "tools" / "mypy-wheel.ini",
            "typing",
            at=at,
        )
        (at / "pyrightconfig.json").write_text(
            json.dumps(
                {
                    "include": ["typing"],
                    "typeCheckingMode": "strict",
                    "enableTypeIgnoreComments": False,
                    "reportUnnecessaryTypeIgnoreComment": "error",
                }
            ),
            encoding="utf-8",
        )
        run(BIN / "basedpyright", "--pythonpath", python, at=at)
        print(f"{wheel.name}: {wheel.stat().st_size // 1024} kB, {len(installed)} distributions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
