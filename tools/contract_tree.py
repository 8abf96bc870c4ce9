"""A package as griffe reads it, and which of its names are the contract's. Nothing is imported."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import griffe

__all__ = (
    "Item",
    "Tree",
    "contract_names",
    "final",
    "is_public",
    "is_type_parameter",
    "read_toml",
    "reexports",
    "source_names",
    "unreadable",
)

Item = griffe.Object | griffe.Alias
TYPE_PARAMETERS = ("TypeVar(", "ParamSpec(", "TypeVarTuple(")


@dataclass
class Tree:
    """One side of the comparison: a package as griffe read it, and the contract's names in it."""

    root: griffe.Module
    package: str
    public: dict[str, str] = field(default_factory=dict[str, str])
    """Where a name is defined, to where users find it."""

    @classmethod
    def load(cls, package: str, where: Path) -> Tree:
        loader = griffe.GriffeLoader(search_paths=[where], allow_inspection=False)
        # griffe leaves out a module it cannot parse, and with it all that would be compared.
        if wrong := unreadable(where / package):
            raise ValueError(wrong)
        try:
            root = cast("griffe.Module", loader.load(package, try_relative_path=False))
        except ModuleNotFoundError as error:
            raise ValueError(f"{where}: there is no package {package}") from error
        loader.resolve_aliases(implicit=True, external=False)
        return cls(root=root, package=package)

    def find(self, path: str) -> griffe.Object | None:
        """Return what `path` names, through re-exports, or `None`."""
        outer: Item = self.root
        item: Item = self.root
        if path != self.package and not path.startswith(self.package + "."):
            return None
        for part in path.split(".")[1:]:
            found = item.members.get(part)
            if found is None:
                return None
            target = final(found)
            if target is None:
                return None
            outer, item = item, target
        # `from p.tool import tool` in p: importers of p get the function, griffe the module of that name.
        handed_on = outer.imports.get(item.name) if isinstance(outer, griffe.Module) else None
        if handed_on == f"{item.path}.{item.name}":
            inside = item.members[item.name]
            return final(inside) or cast("griffe.Object", item)
        return cast("griffe.Object", item)

    def modules(self, module: griffe.Module | None = None) -> Iterator[griffe.Module]:
        module = module or self.root
        yield module
        for member in module.members.values():
            if not member.is_alias and member.is_module:
                yield from self.modules(cast("griffe.Module", member))


def unreadable(folder: Path) -> str | None:
    """Return the first file of a package that is no Python, and where."""
    for path in sorted(folder.rglob("*.py*")):
        if path.suffix in {".py", ".pyi"}:
            try:
                ast.parse(path.read_text(encoding="utf-8"))
            except SyntaxError as error:
                return f"{path}:{error.lineno}: {error.msg}"
            except ValueError as error:
                return f"{path}: {error}"
    return None


def read_toml(path: Path) -> dict[str, object]:
    """Return what a file says, nothing where there is none; a `ValueError` names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def final(item: Item) -> griffe.Object | None:
    if not isinstance(item, griffe.Alias):
        return item
    try:
        return item.final_target
    except griffe.GriffeError:
        return None


# ------------------------------------------------------------------ names


def is_public(name: str) -> bool:
    return not name.startswith("_")


def is_type_parameter(item: Item) -> bool:
    return item.is_attribute and str(cast("griffe.Attribute", item).value or "").startswith(TYPE_PARAMETERS)


def reexports(module: griffe.Module) -> set[str]:
    """Names a stub hands on: `from x import y as y`."""
    path = module.filepath
    assert isinstance(path, Path)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = (alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names)
    return {alias.name for alias in imports if alias.asname == alias.name}


def contract_names(module: griffe.Module) -> set[str]:
    """Names a stub module promises."""
    names = {str(name) for name in module.exports or ()} | reexports(module)
    for name, member in module.members.items():
        if is_public(name) and not member.is_alias and not member.is_module and not is_type_parameter(member):
            names.add(name)
    return names | {name for name in module.overloads if is_public(name)}


def source_names(module: griffe.Module) -> set[str]:
    """Names a source module offers: its `__all__`, or else what it defines without an underscore."""
    if module.exports is not None:
        return {str(name) for name in module.exports if not str(name).startswith("__")}
    return {
        name for name, m in module.members.items() if is_public(name) and not m.is_alias and not m.is_module
    }
