"""Build sdist and wheel, install the wheel where nothing else is, on every Python it is for, and use it there.

The wheel is built from the sdist, so the sdist is complete; `twine check` reads both. Then, in an environment of its
own for each interpreter: the number of distributions, a run with the scripted model, and an import of every public
module, with what needs an extra saying which. On the interpreter this is started with also the typing tests and the
sample host application, under mypy and basedpyright, which come from its environment.

An interpreter that is not on this machine is named and left out, never the one this is started with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
VERSIONS = ((3, 11), (3, 12), (3, 13))
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
# What needs an extra is refused by name, where it is used and not where its module is imported.
IMPORTS = """
import importlib, sys
from overt.errors import DefinitionError

EXTRAS = {
    "overt.models.AnthropicModel": ("anthropic", lambda model: model("m", api_key="k").check()),
    "overt.models.GoogleModel": ("google", lambda model: model("m", api_key="k").check()),
    "overt.models.OpenAIModel": ("openai", lambda model: model("m", api_key="k").check()),
    "overt.models.OpenAIResponsesModel": ("openai", lambda model: model("m", api_key="k").check()),
    "overt.models.PydanticAIModel": ("pydantic-ai", lambda model: model("openai:m").check()),
    "overt.GenAIPrices": ("prices", lambda prices: prices()),
    "overt.stores.EncryptedStore": ("encryption", lambda store: store(None, b"k" * 32)),
    "overt.stores.PostgresStore": ("postgres", lambda store: store("host=h")),
    "overt.sources.mcp.AgentServer": ("mcp", None),
    "overt.sources.mcp.MCPTool": ("mcp", None),
    "overt.sources.mcp.ToolServer": ("mcp", lambda server: server.stdio("s", command="c")),
    "overt.sources.mcp.serve": ("mcp", None),
}
names = 0
for door in sys.argv[1:]:
    module = importlib.import_module(door)
    for name in module.__all__:
        extra, use = EXTRAS.get(f"{door}.{name}", (None, None))
        names += 1
        try:
            found = getattr(module, name)
            if use is not None:
                use(found)
        except DefinitionError as error:
            assert extra is not None, f"{door}.{name}: {error}"
            assert f"pip install 'overt[{extra}]'" in str(error), f"{door}.{name}: {error}"
        else:
            assert use is None, f"{door}.{name} is used without overt[{extra}]"
print(names)
"""


def run(*command: str | Path, at: Path) -> str:
    """Run a command where nothing of the caller's environment leads to its own packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MYPYPATH")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    # As in make-env: no interpreter is downloaded, and certificates are the system's (the last is the older name).
    clean = {"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", **clean}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=at, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


# ------------------------------------------------------------------ interpreters and environments


def interpreters() -> Iterator[tuple[tuple[int, int], str | None]]:
    """Yield every version with an interpreter that runs; `None` where this machine has none."""
    for version in VERSIONS:
        if version == sys.version_info[:2]:
            yield version, sys.executable
            continue
        name = f"python{version[0]}.{version[1]}"
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
        kept = sorted(pyenv.glob(f"{version[0]}.{version[1]}.*/bin/{name}"), reverse=True)
        # What is on PATH may be a launcher for a version that is not there.
        yield (
            version,
            next((str(found) for found in (shutil.which(name), *kept) if found and runs(found)), None),
        )


def runs(python: str | Path) -> bool:
    probe = [str(python), "-c", "import venv, ssl, sqlite3"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def make_environment(at: Path, python: str, *packages: Path) -> Path:
    """Make an environment without pip, and install into it with what there is here: a second, where pip takes eight."""
    if python == sys.executable:
        venv.create(at, with_pip=False)
    else:
        run(python, "-m", "venv", "--without-pip", at, at=at.parent)
    inside = at / ("Scripts" if os.name == "nt" else "bin") / "python"
    uv = shutil.which("uv", path=os.pathsep.join([str(BIN), os.environ.get("PATH", "")]))
    if uv is not None:
        try:
            run(uv, "pip", "install", "--quiet", "--python", inside, *packages, at=at)
        except SystemExit as failed:
            # It does not read pip's configuration, so pip may reach a package index where uv does not.
            print(f"uv could not install, trying pip: {failed}", file=sys.stderr)
        else:
            return inside
    pip: tuple[str | Path, ...] = (sys.executable, "-m", "pip", "--python", inside)
    run(*pip, "install", "--quiet", "--disable-pip-version-check", *packages, at=at)
    return inside


def installed(python: Path, at: Path) -> list[str]:
    listing = "import importlib.metadata as m; print(*sorted({d.name for d in m.distributions()}), sep='\\n')"
    return run(python, "-c", listing, at=at).split()


# ------------------------------------------------------------------ what is checked


def build(at: Path) -> Path:
    """Return the wheel, made of the sdist, once twine has nothing to say of either."""
    # In the environment of the developers: an isolated one would be made twice, for the same hatchling.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", at, ROOT, at=ROOT)
    (sdist,) = at.glob("*.tar.gz")
    (wheel,) = at.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, at=at)
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


def doors() -> list[str]:
    """The public modules: those with a stub."""
    stubs = ROOT / "stubs"
    files = [path for path in stubs.rglob("*.pyi") if path.read_bytes()]
    names = (path.relative_to(stubs).with_suffix("").as_posix().replace("/", ".") for path in files)
    return sorted(name.removesuffix(".__init__") for name in names)


def check_use(python: Path, at: Path) -> str:
    """Run it and import all of it; return what is worth telling."""
    found = installed(python, at)
    if len(found) > MOST_DISTRIBUTIONS:
        raise SystemExit(f"{len(found)} distributions are more than {MOST_DISTRIBUTIONS}: {found}")
    where = run(python, "-W", "error", "-c", RUN, at=at).strip()
    if not Path(where).is_relative_to(at):
        raise SystemExit(f"another overt was used: {where}")
    names = run(python, "-W", "error", "-c", IMPORTS, *doors(), at=at).strip()
    return f"{len(found)} distributions, {names} names of {len(doors())} modules"


def check_types(python: Path, at: Path) -> None:
    """Check the typing tests and the sample host application against what is installed."""
    tests = at / "tests" / "typing"
    shutil.copytree(ROOT / "tests" / "typing", tests, ignore=shutil.ignore_patterns("__pycache__"))
    (at / "tests" / "__init__.py").touch()
    config = ROOT / "tools" / "mypy-wheel.ini"
    where: tuple[str | Path, ...] = ("--python-executable", python, "--cache-dir", at / "cache")
    run(BIN / "mypy", "--strict", *where, "--config-file", config, "tests", at=at)
    settings = {
        "include": ["tests"],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (at / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    run(BIN / "basedpyright", "--pythonpath", python, at=at)


def main() -> int:
    """Run every check; a failed one ends with a message."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder).resolve()
        begun = time.monotonic()

        def tell(what: str) -> None:
            print(f"{time.monotonic() - begun:5.1f} s  {what}", flush=True)

        wheel = build(at)
        check_content(wheel)
        tell(f"{wheel.name}: {wheel.stat().st_size // 1024} kB, as twine would have it")
        for version, python in interpreters():
            named = ".".join(map(str, version))
            if python is None:
                tell(f"Python {named}: SKIPPED, this machine has none")
                continue
            here = at / named
            here.mkdir()
            inside = make_environment(here / "clean", python, wheel)
            tell(f"Python {named}: {check_use(inside, here)}")
            if python == sys.executable:
                check_types(inside, here)
                tell(f"Python {named}: the typing tests and the sample host application are clean")
        if sys.version_info[:2] not in VERSIONS:
            raise SystemExit(f"Python {sys.version.split()[0]} is none of those the wheel is for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
