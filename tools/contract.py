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
import ast
import fnmatch
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import griffe

Facets = dict[str, str | None]
Item = griffe.Object | griffe.Alias

# Typing constructs have several homes; one is as good as another.
HOMES = ("typing.", "typing_extensions.", "collections.abc.", "builtins.", "types.")
TYPE_PARAMETERS = ("TypeVar(", "ParamSpec(", "TypeVarTuple(")
# Methods that do not change how a class is used, or that dataclass, enum or pydantic write themselves.
QUIET_DUNDERS = {
    "__class_getitem__", "__copy__", "__deepcopy__", "__del__", "__delattr__", "__doc__", "__eq__", "__format__",
    "__get_pydantic_core_schema__", "__get_pydantic_json_schema__", "__getstate__", "__hash__", "__init_subclass__",
    "__match_args__", "__module__", "__post_init__", "__pydantic_init_subclass__", "__reduce__", "__repr__",
    "__repr_args__", "__setattr__", "__setstate__", "__slots__", "__str__",
}  # fmt: skip
QUIET_DECORATORS = {
    "override", "overload", "property", "functools.cached_property", "staticmethod", "classmethod",
    "abc.abstractmethod", "functools.wraps", "functools.cache", "functools.lru_cache", "enum.unique",
    "pydantic.field_validator", "pydantic.model_validator", "pydantic.field_serializer",
    "pydantic.model_serializer", "pydantic.computed_field",
}  # fmt: skip
QUIET_DATACLASS_OPTIONS = {"slots", "repr", "eq", "weakref_slot"}
QUIET_MEMBERS = {"model_config"}


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
        root = cast("griffe.Module", loader.load(package, try_relative_path=False))
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


# ------------------------------------------------------------------ expressions


class Normal(ast.NodeTransformer):
    """Rewrite an expression so that two spellings of one meaning become one text."""

    def __init__(self, tree: Tree, scope: griffe.Object, *, strings: bool = True) -> None:
        self.tree, self.scope, self.strings = tree, scope, strings

    def name(self, dotted: str) -> ast.expr:
        head, _, tail = dotted.partition(".")
        try:
            path = self.scope.resolve(head)
        except griffe.GriffeError:
            path = head
        path = f"{path}.{tail}" if tail else path
        target = self.tree.find(path)
        if target is not None and is_type_parameter(target):
            return ast.Name(target.name)
        parameter = self.tree.find(path.rpartition(".")[0]) if tail in {"args", "kwargs"} else None
        if parameter is not None and is_type_parameter(parameter):
            return ast.parse(f"{parameter.name}.{tail}", mode="eval").body
        if target is not None:
            path = self.tree.public.get(target.path, target.path)
            private = path == target.path and not self.tree.public.get(path)
            if (
                private
                and isinstance(target, griffe.Attribute)
                and target.value is not None
                and target.parent
            ):
                return parse(self.tree, target.parent, target.value)  # a private alias: see through it
        return ast.parse(short(path), mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.name(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        dotted = ast.unparse(node)
        return self.name(dotted) if re.fullmatch(r"[\w.]+", dotted) else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if self.strings and isinstance(node.value, str):
            try:
                return cast("ast.expr", self.visit(ast.parse(node.value, mode="eval").body))
            except SyntaxError:
                return node
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        head = cast("ast.expr", self.visit(node.value))
        name = ast.unparse(head)
        if name == "Literal":
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            parts = sorted(parts, key=ast.unparse)
            return ast.Subscript(head, ast.Tuple(parts) if len(parts) > 1 else parts[0])
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = [cast("ast.expr", self.visit(part)) for part in parts]
        if name in {"Annotated", "ClassVar"}:
            return parts[0]
        if name == "Optional":
            return union([*parts, ast.Constant(None)])
        if name == "Union":
            return union(parts)
        return ast.Subscript(head, ast.Tuple(parts) if len(parts) != 1 else parts[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = cast("ast.expr", self.visit(node.left)), cast("ast.expr", self.visit(node.right))
        return union([left, right]) if isinstance(node.op, ast.BitOr) else ast.BinOp(left, node.op, right)


def short(path: str) -> str:
    for home in HOMES:
        rest = path.removeprefix(home)
        if rest != path and "." not in rest:
            return rest
    return path


def union(parts: Sequence[ast.expr]) -> ast.expr:
    flat: dict[str, ast.expr] = {}
    todo = list(parts)
    while todo:
        part = todo.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            todo += [part.left, part.right]
        else:
            flat[ast.unparse(part)] = part
    ordered = [flat[key] for key in sorted(flat, key=lambda key: (key == "None", key))]
    result = ordered[0]
    for part in ordered[1:]:
        result = ast.BinOp(result, ast.BitOr(), part)
    return result


def parse(tree: Tree, scope: griffe.Object, expression: object, *, strings: bool = True) -> ast.expr:
    node = ast.parse(str(expression).strip(), mode="eval").body
    return cast("ast.expr", Normal(tree, scope, strings=strings).visit(node))


def text(tree: Tree, scope: griffe.Object, expression: object, *, strings: bool = True) -> str:
    return ast.unparse(parse(tree, scope, expression, strings=strings))


def default(tree: Tree, scope: griffe.Object, value: object) -> str | None:
    """Return a field's default as text: `...` for a computed one, `None` for none at all."""
    node = parse(tree, scope, value, strings=False)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pydantic.Field", "dataclasses.field"}:
        options = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default_factory" in options:
            return "..."
        given = options.get("default") or (node.args[0] if node.args else None)
        if given is None or (ast.unparse(node.func) == "pydantic.Field" and ast.unparse(given) == "..."):
            return None
        return ast.unparse(given)
    return ast.unparse(node)


# ------------------------------------------------------------------ facets of one object


def decorators(tree: Tree, item: griffe.Class | griffe.Function) -> str:
    found: list[str] = []
    for decorator in item.decorators:
        node = parse(tree, item.parent or tree.root, decorator.value, strings=False)
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        if name in QUIET_DECORATORS or re.fullmatch(r"\w+\.(setter|deleter|getter)", name):
            continue
        if name == "dataclasses.dataclass":
            given = node.keywords if isinstance(node, ast.Call) else []
            kept = sorted(ast.unparse(k) for k in given if k.arg not in QUIET_DATACLASS_OPTIONS)
            found.append(f"@dataclass({', '.join(kept)})")
        else:
            found.append(f"@{ast.unparse(node)}")
    return " ".join(sorted(found)) or "none"


def yields(function: griffe.Function) -> bool:
    try:
        nodes = ast.walk(ast.parse(textwrap.dedent("\n".join(function.lines))))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Yield) for node in nodes)


def function_facets(tree: Tree, function: griffe.Function, prefix: str = "") -> Facets:
    is_async = "async" in function.labels and not yields(function)
    scope = cast("griffe.Object", function.parent or tree.root)
    kind = "async function" if is_async else "function"
    for label in ("classmethod", "staticmethod"):
        kind = f"{label} {kind}" if label in function.labels else kind
    facets: Facets = {f"{prefix}kind": kind, f"{prefix}decorators": decorators(tree, function)}
    shape: list[str] = []
    marks = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    keyword_only = False
    parameters = list(function.parameters)
    for index, parameter in enumerate(parameters):
        star = marks.get(parameter.kind, "") if parameter.kind else ""
        keyword_only = keyword_only or star == "*"
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            shape.append("*")
            keyword_only = True
        has_default = parameter.default is not None and not star
        shape.append(f"{star}{parameter.name}{'=' if has_default else ''}")
        if parameter.kind is griffe.ParameterKind.positional_only and (
            index + 1 == len(parameters)
            or parameters[index + 1].kind is not griffe.ParameterKind.positional_only
        ):
            shape.append("/")
        method = isinstance(scope, griffe.Class) and index == 0 and parameter.name in {"self", "cls"}
        if not method:
            annotation = parameter.annotation
            facets[f"{prefix}type of {parameter.name}"] = (
                text(tree, scope, annotation) if annotation else "nothing"
            )
        if has_default:
            facets[f"{prefix}default of {parameter.name}"] = text(
                tree, scope, parameter.default, strings=False
            )
    facets[f"{prefix}parameters"] = f"({', '.join(shape)})"
    facets[f"{prefix}return type"] = text(tree, scope, function.returns) if function.returns else "nothing"
    return facets


def attribute_facets(tree: Tree, attribute: griffe.Attribute) -> Facets:
    scope = cast("griffe.Object", attribute.parent or tree.root)
    known = text(tree, scope, attribute.annotation) if attribute.annotation else None
    if "property" in attribute.labels:
        writable = " with setter" if {"writable", "settable"} & attribute.labels else ""
        return {"kind": f"property{writable}", "type": known}
    if scope.is_module and attribute.value is not None and (known is None or known == "TypeAlias"):
        return {"kind": "attribute", "value": text(tree, scope, attribute.value)}
    facets: Facets = {"kind": "attribute"}
    if attribute.annotation is None and attribute.value is not None and "class-attribute" in attribute.labels:
        facets["value"] = text(tree, scope, attribute.value, strings=False)
    else:
        facets["type"] = known
        if scope.is_class and "class-attribute" in attribute.labels and attribute.value is not None:
            value = default(tree, scope, attribute.value)
            if value is not None:
                facets["default"] = value
    return facets


def bases(tree: Tree, cls: griffe.Class) -> list[str]:
    """Return the bases as text; a base class that is not in the contract is replaced by its own bases."""
    found: list[str] = []
    for base in cls.bases:
        hidden = hidden_base(tree, cls, base)
        new = (
            bases(tree, hidden)
            if hidden
            else [text(tree, cast("griffe.Object", cls.parent or tree.root), base)]
        )
        found += [name for name in new if name not in found and name != "object"]
    return found


def hidden_base(tree: Tree, cls: griffe.Class, base: object) -> griffe.Class | None:
    head = str(base).partition("[")[0]
    try:
        target = tree.find(cast("griffe.Object", cls.parent or tree.root).resolve(head))
    except griffe.GriffeError:
        return None
    return target if isinstance(target, griffe.Class) and target.path not in tree.public else None


def class_facets(tree: Tree, cls: griffe.Class) -> Facets:
    scope = cast("griffe.Object", cls.parent or tree.root)
    inside = [
        *bases(tree, cls),
        *(f"{k}={text(tree, scope, v, strings=False)}" for k, v in cls.keywords.items()),
    ]
    return {"kind": "class", "bases": f"({', '.join(inside)})", "decorators": decorators(tree, cls)}


def members(tree: Tree, cls: griffe.Class) -> dict[str, Item | list[griffe.Function]]:
    """Return the members users see, those of base classes outside the contract included."""
    found: dict[str, Item | list[griffe.Function]] = {}
    for base in reversed(cls.bases):
        hidden = hidden_base(tree, cls, base)
        if hidden:
            found |= members(tree, hidden)
    for name, member in cls.members.items():
        if not member.is_alias:
            found[name] = member
    # Overloads without an implementation, as stubs have them; beside them griffe makes up a dataclass's `__init__`.
    found |= {name: list(functions) for name, functions in cls.overloads.items() if functions}
    dunder = re.compile(r"__\w+__")
    return {
        name: member
        for name, member in found.items()
        if name not in QUIET_MEMBERS and (is_public(name) or dunder.fullmatch(name))
    }


def describe(tree: Tree, path: str, item: Item | Sequence[griffe.Function]) -> Iterator[tuple[str, Facets]]:
    """Yield a dotted name and its facets for `item` and everything in it."""
    if isinstance(item, griffe.Class):
        yield path, class_facets(tree, item)
        synthetic = (
            {"dataclass"} & item.labels and "__init__" in item.members and not item.members["__init__"].lineno
        )
        for name, member in members(tree, item).items():
            if not (synthetic and name == "__init__" and isinstance(member, griffe.Function)):
                yield from describe(tree, f"{path}.{name}", member)
    elif isinstance(item, griffe.Function) and not item.overloads:
        yield path, function_facets(tree, item)
    elif isinstance(item, griffe.Attribute):
        yield path, attribute_facets(tree, item)
    elif isinstance(item, griffe.Function) or not isinstance(item, (griffe.Object, griffe.Alias)):
        overloads = list(item.overloads or ()) if isinstance(item, griffe.Function) else list(item)
        facets: Facets = {"kind": f"{len(overloads)} overloads"}
        for number, overload in enumerate(overloads, 1):
            facets |= function_facets(tree, overload, f"overload {number}: ")
        yield path, facets


# ------------------------------------------------------------------ comparison


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
                left_open = (says == "..." and does != "nothing") or (
                    does == "..." and says != "nothing" and "default of" in facet  # as overloads write it
                )
                inferred = does is None and facet == "type"  # verifytypes sees to those
                besides = contract["kind"] != source["kind"] and facet != "kind"
                if says == does or left_open or inferred or besides:
                    continue
                yield f"{path}: contract says {facet} {says}, source says {does}"


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


# ------------------------------------------------------------------ render


class Outline(ast.NodeTransformer):
    """Turn source into stub: no bodies, no docstrings, no private names."""

    def body(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for node in nodes:
            name = getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", "")
            private = isinstance(name, str) and name.startswith("_") and not name.startswith("__")
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not private and not docstring and name not in QUIET_MEMBERS | QUIET_DUNDERS:
                kept.append(cast("ast.stmt", self.visit(node)))
        return kept or [ast.Expr(ast.Constant(...))]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = self.body(node.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Expr(ast.Constant(...))]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.body = [ast.Expr(ast.Constant(...))]
        return node


def render(tree: Tree, path: str) -> str:
    """Return stub text for the source symbol `path`; for a module, that of everything it offers."""
    target = tree.find(path)
    if target is None:
        raise SystemExit(f"{path}: not in the source")
    if isinstance(target, griffe.Module):
        return "\n".join(render(tree, f"{path}.{name}") for name in sorted(source_names(target)))
    file = target.filepath
    assert isinstance(file, Path)
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = [getattr(node, "name", None), *(getattr(t, "id", None) for t in getattr(node, "targets", []))]
        if target.name in names:
            return ast.unparse(ast.fix_missing_locations(Outline().visit(node))) + "\n"
    raise SystemExit(f"{path}: not at the top of {file}")


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
