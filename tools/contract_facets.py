"""What users can see of one object, as named facets: kind, parameters, types, defaults, values, bases."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import cast

import griffe
from tools.contract_text import default, parse, text, type_parameters
from tools.contract_tree import Item, Tree, is_public

__all__ = ("QUIET_DUNDERS", "QUIET_MEMBERS", "Facets", "describe")

Facets = dict[str, str | None]
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
    said = [parameter.annotation for parameter in parameters if parameter.annotation is not None]
    said += [function.returns] if function.returns is not None else []
    for name, how in type_parameters(tree, scope, said).items():
        facets[f"type parameter {name}"] = how
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
    # griffe takes `ClassVar` out of the annotation, and says where the value is instead.
    of_class = (
        scope.is_class and attribute.annotation is not None and "instance-attribute" not in attribute.labels
    )
    facets: Facets = {"kind": "class attribute" if of_class else "attribute"}
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
    facets: Facets = {
        "kind": "class",
        "bases": f"({', '.join(inside)})",
        "decorators": decorators(tree, cls),
    }
    for name, how in type_parameters(tree, scope, cls.bases).items():
        facets[f"type parameter {name}"] = how
    order = positional_fields(tree, cls, facets["decorators"] or "")
    return facets | {"positional fields": f"({', '.join(order)})"} if order else facets


def positional_fields(tree: Tree, cls: griffe.Class, said: str) -> list[str]:
    """Return the fields a dataclass takes by position, in order: no other facet says in which."""
    if "@dataclass(" not in said or "kw_only=True" in said or "init=False" in said:
        return []
    return [
        name
        for name, member in members(tree, cls).items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "property" not in member.labels
        and "ClassVar[" not in str(member.annotation)
    ]


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
