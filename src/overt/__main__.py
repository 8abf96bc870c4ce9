"""The command `overt`, also as `python -m overt`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 for what went wrong, 2 for misuse, 130 after Ctrl-C."""
    from overt.cli import check  # what `--version` does not need
    from overt.demo import command

    parser = argparse.ArgumentParser(
        prog="overt", description="Agents with nothing to hide.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"overt {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    command.add_to(commands)
    check.add_to(commands)
    arguments = parser.parse_args(argv)
    return int(arguments.command(arguments))


def _version() -> str:
    try:
        return version("overt")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
