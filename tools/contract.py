"""Hold the public contract in `stubs/` against the source. Nothing is imported; both trees are read by griffe.

    check       compare both; non-zero exit on any difference
    pending     print the contract's names that have no implementation, ready for `stubs/pending.txt`
    allowlist   print what stubtest has to overlook because it is pending, as regular expressions
    render X    print the stub of a source symbol, to paste while drafting

`stubs/pending.txt` holds one dotted name a line; `*` at the end stands for one segment. An entry that exists in
the source fails: the list can only shrink.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.contract_compare import allowlist, check, compare, read_pending
from tools.contract_render import render
from tools.contract_tree import Tree

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("check", "pending", "allowlist", "render"))
    parser.add_argument("name", nargs="*", help="what to render")
    parser.add_argument("--package", default="overt")
    parser.add_argument("--source", type=Path, default=Path("src"))
    parser.add_argument("--stubs", type=Path, default=Path("stubs"))
    given = parser.parse_args(argv)
    package, source, stubs = cast("str", given.package), cast("Path", given.source), cast("Path", given.stubs)
    if given.command == "render":
        tree = Tree.load(package, source)
        print("\n".join(render(tree, name) for name in cast("list[str]", given.name) or [package]))
        return 0
    comparison = compare(package, source, stubs)
    if given.command == "check":
        pending = read_pending(stubs / "pending.txt")
        problems = check(comparison, pending)
        print(
            "\n".join(problems)
            or f"contract: {len(comparison.contract)} names, {len(comparison.missing)} pending"
        )
        return 1 if problems else 0
    print("\n".join(comparison.missing if given.command == "pending" else allowlist(comparison)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
