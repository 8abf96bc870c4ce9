"""The contract in `stubs/` beside the source: what differs, what is missing, what is pending."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe
from tools.contract_facets import QUIET_DUNDERS, Facets, describe
from tools.contract_tree import Tree, contract_names, is_type_parameter, source_names

__all__ = ("Comparison", "allowlist", "check", "compare", "read_pending")


@dataclass
class Comparison:
    """The contract and the source as flat lists of named facets."""

    contract: dict[str, Facets]
    source: dict[str, Facets]
    unknown_modules: list[str]
    """Source modules the contract has no stub for: not doors."""
    missing_modules: list[str]
    """Doors of the contract that the source does not have."""
    stub_only: list[str]
    """Type variables of the stubs, which users do not import."""
    tree: Tree
    """The source."""
    doors: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """Names of the contract without an implementation; a missing class stands for its members."""
        gone = [path for path in self.contract if path not in self.source]
        return [path for path in gone if path.rpartition(".")[0] not in gone]

    @property
    def extra(self) -> list[str]:
        """Names of the source that the contract does not have."""
        new = [path for path in self.source if path not in self.contract]
        return [
            p for p in new if p.rpartition(".")[0] not in new and p.rpartition(".")[2] not in QUIET_DUNDERS
        ]

    def differences(self) -> Iterator[str]:
        """Yield one line for each facet that differs."""
        for path, contract in self.contract.items():
            source = self.source.get(path)
            if source is None:
                continue
            for facet in dict.fromkeys([*contract, *source]):
                says, does = contract.get(facet, "nothing"), source.get(facet, "nothing")
                if says == does or (does is not None and left_open(facet, says, does)):
                    continue
                besides = contract["kind"] != source["kind"] and facet != "kind"
                if besides:
                    continue
                does = "nothing, and leaves it to be inferred" if does is None else does
                yield f"{path}: contract says {facet} {says}, source says {does}"


def left_open(facet: str, says: str | None, does: str) -> bool:
    """Say whether one side writes `...` for what it cannot repeat: what is computed, or an overload's default."""
    if does == "..." and "default of" in facet:
        return says != "nothing"
    if says != "..." or "default" not in facet or does == "nothing":
        return False
    try:
        ast.literal_eval(does)
    except ValueError:
        return True
    return False


def compare(package: str, source_dir: Path, stubs_dir: Path) -> Comparison:
    """Load both trees and describe what the contract promises and what the source has."""
    stubs, source = Tree.load(package, stubs_dir), Tree.load(package, source_dir)
    doors = {module.path: module for module in stubs.modules()}
    for door in sorted(doors, key=lambda path: (path.count("."), path)):
        for tree in (stubs, source):
            for name in sorted(contract_names(doors[door])):
                target = tree.find(f"{door}.{name}")
                if target is not None:
                    tree.public.setdefault(target.path, f"{door}.{name}")
                tree.public.setdefault(f"{door}.{name}", f"{door}.{name}")
    adopt_homes(source, stubs)
    contract: dict[str, Facets] = {}
    actual: dict[str, Facets] = {}
    for door, module in doors.items():
        found = source.find(door)
        offered = source_names(found) if isinstance(found, griffe.Module) else set[str]()
        for tree, names, into in ((stubs, contract_names(module), contract), (source, offered, actual)):
            for name in sorted(names):
                add(tree, door, name, into)
    return Comparison(
        contract=contract,
        source=actual,
        unknown_modules=[module.path for module in source.modules() if module.path not in doors],
        missing_modules=[door for door in doors if not isinstance(source.find(door), griffe.Module)],
        stub_only=[
            f"{door}.{name}"
            for door, module in doors.items()
            for name, member in module.members.items()
            if not member.is_alias and is_type_parameter(member) and source.find(f"{door}.{name}") is None
        ],
        tree=source,
        doors=tuple(doors),
    )


def adopt_homes(source: Tree, stubs: Tree) -> None:
    """Take a name that is not handed on yet for the one thing in the source that is called so."""
    homes: dict[str, list[str]] = {}
    for module in source.modules():
        for name, member in module.members.items():
            if not member.is_alias and not member.is_module:
                homes.setdefault(name, []).append(member.path)
    for path in set(stubs.public.values()):
        found = homes.get(path.rpartition(".")[2], [])
        if source.find(path) is None and len(found) == 1:
            source.public.setdefault(found[0], path)


def add(tree: Tree, door: str, name: str, into: dict[str, Facets]) -> None:
    path = f"{door}.{name}"
    module = tree.find(door)
    target = tree.find(path)
    overloads = module.overloads.get(name) if isinstance(module, griffe.Module) else None
    if target is None and overloads:
        into.update(describe(tree, path, overloads))
    elif target is not None:
        home = tree.public.get(target.path, path)
        if home != path:  # handed on: described where it is at home
            into[path] = {"kind": f"re-export of {home}"}
        elif not is_type_parameter(target):
            into.update(describe(tree, path, target))
    elif isinstance(module, griffe.Module) and module.exports is not None:  # in `__all__`, and nowhere else
        into[path] = {"kind": "nothing"}


def read_pending(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = (line.partition("#")[0].strip() for line in lines)
    return [entry for entry in entries if entry]


def matches(entry: str, path: str) -> bool:
    return entry.count(".") == path.count(".") and fnmatch.fnmatchcase(path, entry)


def check(comparison: Comparison, pending: Sequence[str]) -> list[str]:
    """Return what is wrong, a line each."""
    problems = list(comparison.differences())
    unlisted = [path for path in comparison.missing if not any(matches(entry, path) for entry in pending)]
    problems += [f"{path}: contract has it, source says nothing" for path in unlisted]
    problems += [f"{path}: source has it, contract says nothing" for path in comparison.extra]
    for entry in pending:
        built = [path for path in comparison.contract if path in comparison.source and matches(entry, path)]
        if built:
            more = f" and {len(built) - 1} more" if len(built) > 1 else ""
            problems.append(
                f"{entry}: pending, but source has {built[0]}{more}; list what is missing by name"
            )
        elif not any(matches(entry, path) for path in comparison.missing):
            problems.append(f"{entry}: pending, but the contract has no such name")
    return problems


def allowlist(comparison: Comparison) -> list[str]:
    """Return what stubtest reports on account of pending names and of modules that are not doors."""
    # A module within one that is listed, or a private one, is never reported, and an unused entry fails.
    unknown = set(comparison.unknown_modules)
    reported = [
        path
        for path in comparison.unknown_modules
        if (path.endswith("__") or "._" not in path)
        and not any(path.startswith(f"{other}.") for other in unknown)
    ]
    doors = dict.fromkeys([*comparison.missing, *reported], r"(\..*)?")
    names = dict.fromkeys([*comparison.missing_modules, *comparison.stub_only], "")
    return sorted(re.escape(path) + rest for path, rest in (doors | names).items())
