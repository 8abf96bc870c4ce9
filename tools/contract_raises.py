"""The errors that public callables promise: `stubs/raises.toml` beside the `Raises:` of the docstrings.

The file has a table a module and a line a callable; a class stands for making one, its docstring and that of `__init__`
together. A method that overrides one of a public base class promises what that promises, and has a line for what is
more: an error that is caught where the base's are, or one that nobody is to catch.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import griffe
from tools.contract_facets import Facets, members
from tools.contract_tree import Tree, read_toml

__all__ = ("Promises", "draft", "promises", "read_promises", "wrong_promises")

Raised = dict[str, tuple[str, ...]]


@dataclass
class Promises:
    """What the docstrings of the source say."""

    own: Raised
    """By dotted name, what is said there and not by a base class already."""
    whole: Raised
    """By dotted name, inherited ones included."""
    problems: list[str]


def read_promises(path: Path) -> Raised:
    """Return the file's lines by dotted name."""
    tables = cast("dict[str, dict[str, list[str]]]", read_toml(path))
    for door, table in tables.items():
        for name, errors in table.items() if isinstance(table, dict) else [("", table)]:
            if not isinstance(errors, list):
                raise ValueError(f"{path}: {door}.{name} is no list of errors")
    return {
        f"{door}.{name}": tuple(sorted(errors))
        for door, table in tables.items()
        for name, errors in table.items()
    }


def draft(own: Raised, doors: Collection[str]) -> str:
    """Return the file that says what the docstrings say."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for path, errors in own.items():
        door = max((door for door in doors if path.startswith(f"{door}.")), key=len)
        found.setdefault(door, {})[path.removeprefix(f"{door}.")] = errors
    lines: list[str] = []
    for door in sorted(found):
        lines += ["", f'["{door}"]' if "." in door else f"[{door}]"]
        for name, errors in sorted(found[door].items()):
            listed = ", ".join(f'"{error}"' for error in errors)
            lines.append(f'"{name}" = [{listed}]' if "." in name else f"{name} = [{listed}]")
    return "\n".join(lines[1:]) + "\n"


# ------------------------------------------------------------------ docstrings


def promises(tree: Tree, contract: Mapping[str, Facets]) -> Promises:
    """Read what the docstrings of everything in `contract` promise."""
    logging.getLogger("griffe").setLevel(
        logging.CRITICAL
    )  # other sections of docstrings are others' business
    found = Promises({}, {}, [])
    parents = hierarchy(contract)
    waiting = [
        path for path, facets in contract.items() if not facets["kind"] or "re-export" not in facets["kind"]
    ]
    classes = {
        path: target
        for path in waiting
        if isinstance(target := tree.find(path), griffe.Class) and contract[path]["kind"] == "class"
    }
    for path, cls in classes.items():
        found.own[path] = (*said(cls), *said(cls.members.get("__init__")))
        for name, member in members(tree, cls).items():
            if name != "__init__" and f"{path}.{name}" in contract:
                whole = last(member)
                found.own[f"{path}.{name}"] = said(whole)
    for path in waiting:
        target = tree.find(path)
        if isinstance(target, griffe.Function) and path.rpartition(".")[0] not in classes:
            found.own[path] = said(target)
    for path, errors in found.own.items():
        unknown = [error for error in errors if error not in parents and not is_builtin(error)]
        found.problems += [
            f"{path}: its docstring raises {error}, which users cannot import" for error in unknown
        ]
        found.own[path] = tuple(sorted(set(errors)))
    inherit(tree, classes, found, parents)
    found.own = {path: errors for path, errors in found.own.items() if errors}
    return found


def inherit(
    tree: Tree, classes: Mapping[str, griffe.Class], found: Promises, parents: Mapping[str, list[str]]
) -> None:
    """Add to each method what base classes promise of it, and hold it to that."""
    above = {path: list(dict.fromkeys(bases_of(tree, cls))) for path, cls in classes.items()}
    said_here = dict(found.own)
    for path, cls in classes.items():
        for name in members(tree, cls):
            here = f"{path}.{name}"
            bases = [f"{base}.{name}" for base in above[path] if f"{base}.{name}" in said_here]
            promised = {error for base in bases for error in said_here[base]}
            found.whole[here] = tuple(sorted({*promised, *said_here.get(here, ())}))
            if not bases or here not in said_here:
                continue
            own = [error for error in said_here[here] if error not in promised]
            found.own[here] = tuple(own)
            for error in own:
                # What is no Exception is nobody's to catch.
                if "Exception" in lineage(error, parents) and not promised & set(lineage(error, parents)):
                    found.problems.append(f"{here}: raises {error}, which {bases[0]} does not promise")
    for path, errors in said_here.items():
        found.whole.setdefault(path, errors)
    found.whole = {path: errors for path, errors in found.whole.items() if errors}


def last(member: object) -> object:
    """Of overloads, the function they are of."""
    return member[-1] if isinstance(member, list) else member


def said(item: object) -> tuple[str, ...]:
    """Return the errors under `Raises:` in a docstring."""
    if not isinstance(item, (griffe.Function, griffe.Class, griffe.Attribute)) or item.docstring is None:
        return ()
    sections = item.docstring.parse("google", warnings=False)
    return tuple(
        str(raised.annotation).rpartition(".")[2]
        for section in sections
        if isinstance(section, griffe.DocstringSectionRaises)
        for raised in section.value
    )


def bases_of(tree: Tree, cls: griffe.Class) -> Iterator[str]:
    """Yield the public base classes of a class, nearest first."""
    for base in cls.bases:
        head = str(base).partition("[")[0]
        try:
            target = tree.find(cast("griffe.Object", cls.parent or tree.root).resolve(head))
        except griffe.GriffeError:
            continue
        if isinstance(target, griffe.Class):
            if target.path in tree.public:
                yield tree.public[target.path]
            yield from bases_of(tree, target)


# ------------------------------------------------------------------ the errors


def is_builtin(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def hierarchy(contract: Mapping[str, Facets]) -> dict[str, list[str]]:
    """Return the public exceptions by their short names, each with those of its base classes."""
    found: dict[str, list[str]] = {}
    rest = {path: facets["bases"] for path, facets in contract.items() if facets["kind"] == "class"}
    grown = True
    while grown:
        grown = False
        for path, bases in list(rest.items()):
            names = [base.strip().rpartition(".")[2] for base in (bases or "")[1:-1].split(",")]
            if any(name in found or is_builtin(name) for name in names):
                found[path.rpartition(".")[2]] = names
                del rest[path]
                grown = True
    return found


def lineage(error: str, parents: Mapping[str, list[str]]) -> Iterator[str]:
    yield error
    for parent in parents.get(error, ()):
        yield from lineage(parent, parents)
    if is_builtin(error):
        yield from (cls.__name__ for cls in cast("type", getattr(builtins, error)).__mro__)


# ------------------------------------------------------------------ comparison


def wrong_promises(listed: Raised, found: Promises) -> list[str]:
    """Return where the file and the docstrings differ, a line each."""
    problems = list(found.problems)
    for path in sorted(listed.keys() | found.own.keys()):
        says, does = listed.get(path), found.own.get(path)
        if says == does:
            continue
        problems.append(f"{path}: contract says it raises {shown(says)}, its docstring says {shown(does)}")
    return problems


def shown(errors: tuple[str, ...] | None) -> str:
    return ", ".join(errors) if errors else "nothing"
