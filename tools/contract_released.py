"""The contract as it was released, and what has changed since: `stubs/released/`.

`VERSION.txt` has every name of the contract with its facets, raised errors included, a line each. `changes.toml` has an
entry for every name that differs from the latest of them: whether the difference is breaking or additive, which is
computed here and has to be said there, and the reason. An entry that matches no difference fails.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tools.contract_facets import Facets
from tools.contract_raises import hierarchy, lineage
from tools.contract_tree import read_toml

__all__ = ("NO_CHANGES", "Change", "changes", "frozen", "latest", "read_frozen", "wrong_entries")

NO_CHANGES = """\
# What differs from the latest release in this folder: an entry a name, with `kind` ("breaking" or "additive", as
# `tools/contract.py check` says) and `reason`. A class that is new or gone stands for its members. VERSIONING.md says
# what counts as breaking. `tools/contract.py freeze` empties this file.
#
# ["overt.Budget.max_retries"]
# kind = "additive"
# reason = "Retries may have a cap of their own."
"""
_END = "# sha256 "
BREAKING, ADDITIVE = "breaking", "additive"
ENUMS = ("StrEnum", "Enum", "IntEnum", "Flag")


@dataclass(frozen=True)
class Change:
    """How one name differs from what was released."""

    path: str
    kind: str
    what: str


# ------------------------------------------------------------------ on disk


def frozen(contract: Mapping[str, Facets], raises: Mapping[str, tuple[str, ...]]) -> str:
    """Return the contract as text: a name a line, its facets below it."""
    text = "".join(f"{path}\n{_lines(facets)}" for path, facets in _whole(contract, raises).items())
    return f"{text}{_END}{_digest(text)}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _lines(facets: Facets) -> str:
    return "".join(f"    {facet} = {value}\n" for facet, value in facets.items())


def _whole(contract: Mapping[str, Facets], raises: Mapping[str, tuple[str, ...]]) -> dict[str, Facets]:
    whole: dict[str, Facets] = {}
    for path in sorted(contract):
        facets = {facet: "nothing" if value is None else value for facet, value in contract[path].items()}
        whole[path] = {**facets, **({"raises": f"({', '.join(raises[path])})"} if path in raises else {})}
    return whole


def read_frozen(text: str) -> dict[str, Facets]:
    """Return what `frozen` wrote; anything else is a `ValueError`."""
    text, end, digest = text.rpartition(_END)
    if not end or digest.strip() != _digest(text):
        raise ValueError(
            "cut off or changed: it does not end with the digest of what is in it; fetch it from the history"
        )
    found: dict[str, Facets] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("    "):
            facet, _, value = line.strip().partition(" = ")
            found[path][facet] = value
        else:
            path = line
            found[path] = {}
    return found


def latest(folder: Path) -> Path | None:
    """Return the file of the latest release; `None` before the first."""
    files = [path for path in folder.glob("*.txt") if re.fullmatch(r"\d+(\.\d+)*", path.stem)]
    return max(files, key=lambda path: tuple(map(int, path.stem.split("."))), default=None)


# ------------------------------------------------------------------ what has changed


def changes(
    old: Mapping[str, Facets], contract: Mapping[str, Facets], raises: Mapping[str, tuple[str, ...]]
) -> list[Change]:
    """Return what differs, by name; what is new or gone stands for its members."""
    new = _whole(contract, raises)
    parents = hierarchy(contract)
    found: list[Change] = []
    for path in sorted(old.keys() | new.keys()):
        outer = path.rpartition(".")[0]
        if path not in new:
            if outer in new or outer not in old:
                found.append(Change(path, BREAKING, "gone"))
        elif path not in old:
            if outer in old or outer not in new:
                found.append(_added(path, new))
        else:
            parts = list(_differences(old[path], new[path], parents))
            if parts:
                kind = ADDITIVE if all(additive for additive, _ in parts) else BREAKING
                # What breaks comes first.
                found.append(Change(path, kind, "; ".join(what for _, what in sorted(parts))))
    return found


def _added(path: str, new: Mapping[str, Facets]) -> Change:
    facets = new[path]
    outer = new.get(path.rpartition(".")[0], {})
    bases = outer.get("bases") or ""
    names = [part.strip().partition("[")[0] for part in bases[1:-1].split(",")]
    if any(name.rpartition(".")[2] in ENUMS for name in names):
        return Change(path, BREAKING, "new value of a closed vocabulary")
    if "Protocol" in names:
        return Change(path, BREAKING, "new member of a protocol, which implementations lack")
    field = facets.get("kind") == "attribute" and "default" not in facets
    made = "pydantic.BaseModel" in names or "@dataclass(" in (outer.get("decorators") or "")
    if field and (made and "init=False" not in (outer.get("decorators") or "")):
        return Change(path, BREAKING, "new field without a default")
    if (
        field
        and "TypedDict" in names
        and "total=False" not in bases
        and "NotRequired[" not in str(facets.get("type"))
    ):
        return Change(path, BREAKING, "new key that has to be there")
    return Change(path, ADDITIVE, "new")


def _differences(old: Facets, new: Facets, parents: Mapping[str, list[str]]) -> Iterator[tuple[bool, str]]:
    """Yield whether a facet's difference is additive, and what it is."""
    grown = _overloads_grown(old, new)
    # What is said of a parameter that is new or gone is part of the change of `parameters`.
    shapes = {
        facet.removesuffix("parameters"): (_parameters(old.get(facet)), _parameters(new.get(facet)))
        for facet in {*old, *new}
        if facet.endswith("parameters")
    }
    for facet in dict.fromkeys([*old, *new]):
        before, after = old.get(facet, "nothing"), new.get(facet, "nothing")
        if before == after:
            continue
        prefix, _, name = re.sub(r"(default|type) of ", "\0", facet).partition("\0")
        if name and prefix in shapes:
            was, now = shapes[prefix]
            # A default that comes or goes is seen in `parameters` already.
            if (name in was) != (name in now) or "nothing" in (before, after):
                continue
        yield (
            grown or _is_additive(facet, str(before), str(after), parents),
            f"{facet} was {before}, is {after}",
        )


def _overloads_grown(old: Facets, new: Facets) -> bool:
    """Say whether overloads were only added behind those there were."""
    kinds = [re.fullmatch(r"(\d+) overloads", str(facets.get("kind"))) for facets in (old, new)]
    if None in kinds:
        return False
    return all(new.get(facet) == value for facet, value in old.items() if facet != "kind")


def _is_additive(facet: str, before: str, after: str, parents: Mapping[str, list[str]]) -> bool:
    if facet.endswith("parameters"):
        return _accepts_as_before(before, after)
    if facet == "default":
        return before == "nothing"
    if facet == "raises":  # whoever catches what was promised catches what is new
        return all(_names(before) & set(lineage(error, parents)) for error in _names(after) - _names(before))
    if facet == "bases":
        return _names(before) <= _names(after)
    if facet == "positional fields":
        return after.startswith(before.removesuffix(")"))
    if "type of " in facet:  # what a parameter takes
        return _union(before) < _union(after)
    if facet.endswith("return type"):
        return _union(after) < _union(before)
    return False


def _accepts_as_before(before: str, after: str) -> bool:
    """Say whether every call that fitted the old parameters fits the new ones."""
    old, new = _parameters(before), _parameters(after)
    if any(name not in new for name in old):
        return False
    positional = [name for name, (keyword, _) in old.items() if not keyword]
    if [name for name, (keyword, _) in new.items() if not keyword][: len(positional)] != positional:
        return False
    if ("/" in before) != ("/" in after) and "/" not in before:
        return False
    return all(
        optional or (name in old and not old[name][1])
        for name, (_, optional) in new.items()
        if not name.startswith("*")
    )


def _parameters(shape: str | None) -> dict[str, tuple[bool, bool]]:
    """Return names with whether they are given by keyword only, and whether they may be left out."""
    found: dict[str, tuple[bool, bool]] = {}
    keyword = False
    for part in (shape or "()")[1:-1].split(", "):
        star = part.startswith("*")
        if star and not part.startswith("**"):
            keyword = True
        if part not in {"", "*", "/"}:
            found[part.removesuffix("=")] = (keyword or star, star or part.endswith("="))
    return found


def _names(listed: str) -> set[str]:
    return {name.strip() for name in listed.strip("()").split(",") if name.strip() not in {"", "nothing"}}


def _union(type_: str) -> set[str]:
    return {part.strip() for part in type_.split(" | ")}


# ------------------------------------------------------------------ entries


def wrong_entries(found: list[Change], path: Path, release: str) -> list[str]:
    """Return where `changes.toml` and the differences do not go together, a line each."""
    entries = cast("dict[str, dict[str, str]]", read_toml(path))
    problems = [
        f"{name}: {path.name} has no entry of kind and reason, both text, and nothing else there"
        for name, entry in entries.items()
        if not isinstance(entry, dict)
        or not entry.keys() <= {"kind", "reason"}
        or not all(isinstance(value, str) for value in entry.values())
    ]
    if problems:
        return problems
    for change in found:
        entry = entries.get(change.path)
        if entry is None:
            problems.append(
                f"{change.path}: {change.kind} since {release}: {change.what}; {path.name} has no entry for it"
            )
        elif entry.get("kind") != change.kind:
            problems.append(
                f"{change.path}: {path.name} says {entry.get('kind')}, and it is {change.kind}: {change.what}"
            )
        elif not entry.get("reason", "").strip():
            problems.append(f"{change.path}: {path.name} gives no reason")
    differing = {change.path for change in found}
    problems += [
        f"{entry}: {path.name} has it, and it is as in {release}" for entry in entries.keys() - differing
    ]
    return problems
