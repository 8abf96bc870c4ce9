"""Hold the public contract in `stubs/` against the source. Nothing is imported; both trees are read by griffe.

    check       compare both, docstrings' `Raises:` with `stubs/raises.toml`, and all of it with the latest release;
                non-zero exit on any difference
    pending     print the contract's names that have no implementation, ready for `stubs/pending.txt`
    allowlist   print what stubtest has to overlook because it is pending, as regular expressions
    raises      print `stubs/raises.toml` as the docstrings have it
    render X    print the stub of a source symbol, to paste while drafting
    freeze V    write the contract of release V to `stubs/released/`, and empty `changes.toml` there

`stubs/pending.txt` holds one dotted name a line; `*` at the end stands for one segment. An entry that exists in
the source fails: the list can only shrink. `stubs/released/changes.toml` says why something is no longer as released.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.contract_compare import Comparison, allowlist, check, compare, read_pending
from tools.contract_raises import Promises, draft, promises, read_promises, wrong_promises
from tools.contract_released import (
    NO_CHANGES,
    Change,
    changes,
    frozen,
    latest,
    read_frozen,
    wrong_entries,
)
from tools.contract_render import render
from tools.contract_tree import Tree

__all__ = ("main",)


COMMANDS = ("check", "pending", "allowlist", "raises", "render", "freeze")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the commands; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("name", nargs="*", help="what to render, or the version to freeze")
    parser.add_argument("--again", action="store_true", help="freeze a version anew that is not released yet")
    parser.add_argument("--package", default="overt")
    parser.add_argument("--source", type=Path, default=Path("src"))
    parser.add_argument("--stubs", type=Path, default=Path("stubs"))
    given = parser.parse_args(argv)
    package, source, stubs = cast("str", given.package), cast("Path", given.source), cast("Path", given.stubs)
    names = cast("list[str]", given.name)
    try:
        return perform(
            cast("str", given.command), package, source, stubs, names, again=cast("bool", given.again)
        )
    except ValueError as error:  # a file that is no such file; says which
        print(error)
        return 2


def perform(
    command: str, package: str, source: Path, stubs: Path, names: Sequence[str], *, again: bool
) -> int:
    """Run a command; `ValueError` where a file cannot be read."""
    if command == "render":
        tree = Tree.load(package, source)
        print("\n".join(render(tree, name) for name in names or [package]))
        return 0
    comparison = compare(package, source, stubs)
    if command in {"pending", "allowlist"}:
        print("\n".join(comparison.missing if command == "pending" else allowlist(comparison)))
        return 0
    promised = promises(comparison.tree, comparison.contract)
    if command == "raises":
        print(draft(promised.own, comparison.doors), end="")
        return 0
    problems = check(comparison, read_pending(stubs / "pending.txt"))
    problems += wrong_promises(read_promises(stubs / "raises.toml"), promised)
    if command == "freeze":
        return freeze(comparison, promised, problems, stubs, names, again=again)
    release = latest(stubs / "released")
    changed: list[Change] = []
    if release is None and (stubs / "released").exists():
        problems.append(f"{stubs / 'released'}: there is no release in it; fetch its files from the history")
    if release is not None:
        try:
            was = read_frozen(release.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{release}: {error}") from error
        changed = changes(was, comparison.contract, promised.whole)
        problems += wrong_entries(changed, release.parent / "changes.toml", release.stem)
    print("\n".join(problems) or told(comparison, promised, changed, release))
    return 1 if problems else 0


def told(comparison: Comparison, promised: Promises, changed: Sequence[Change], release: Path | None) -> str:
    errors = sum(len(errors) for errors in promised.own.values())
    breaking = sum(change.kind == "breaking" for change in changed)
    since = (
        f"; since {release.stem} {breaking} breaking, {len(changed) - breaking} additive" if release else ""
    )
    return (
        f"contract: {len(comparison.contract)} names, {len(comparison.missing)} pending, "
        f"{errors} promised errors{since}"
    )


def freeze(
    comparison: Comparison,
    promised: Promises,
    problems: Sequence[str],
    stubs: Path,
    names: Sequence[str],
    *,
    again: bool,
) -> int:
    """Write down what is released; only what stubs, source and docstrings agree about."""
    if problems:
        print("\n".join(problems))
        return 1
    if len(names) != 1:
        raise SystemExit("freeze takes one version, such as 0.1.0")
    path = stubs / "released" / f"{names[0]}.txt"
    if path.exists() and not again:
        raise SystemExit(
            f"{path} is there: a release is frozen once, and `--again` is for one that is not out yet"
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text(frozen(comparison.contract, promised.whole), encoding="utf-8")
    (path.parent / "changes.toml").write_text(NO_CHANGES, encoding="utf-8")
    print(f"{path}: {len(comparison.contract)} names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
