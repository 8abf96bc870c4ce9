"""Expressions of annotations and defaults as text, so that two spellings of one meaning are one text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import cast

import griffe
from tools.contract_tree import Tree, is_type_parameter

__all__ = ("default", "parse", "text", "type_parameters")

# Typing constructs have several homes; one is as good as another.
HOMES = ("typing.", "typing_extensions.", "collections.abc.", "builtins.", "types.")
# What a factory makes, where its name says it.
EMPTY = {"dict": "{}", "list": "[]", "tuple": "()"}


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
        if name == "Annotated":
            return parts[0]
        if name == "Optional":
            return union([*parts, ast.Constant(None)])
        if name == "Union":
            return union(parts)
        return ast.Subscript(head, ast.Tuple(parts) if len(parts) != 1 else parts[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = cast("ast.expr", self.visit(node.left)), cast("ast.expr", self.visit(node.right))
        return union([left, right]) if isinstance(node.op, ast.BitOr) else ast.BinOp(left, node.op, right)


def type_parameters(tree: Tree, scope: griffe.Object, expressions: Iterable[object]) -> dict[str, str]:
    """Return the type parameters that occur in `expressions`, each with how it is declared."""
    found: dict[str, str] = {}
    for expression in expressions:
        for node in ast.walk(ast.parse(str(expression).strip(), mode="eval")):
            if not isinstance(node, ast.Name):
                continue
            try:
                target = tree.find(scope.resolve(node.id))
            except griffe.GriffeError:
                continue
            if isinstance(target, griffe.Attribute) and is_type_parameter(target):
                home = target.parent or tree.root
                call = parse(tree, cast("griffe.Object", home), target.value, strings=False)
                assert isinstance(call, ast.Call)
                said = [ast.unparse(argument) for argument in call.args[1:]]
                said += sorted(ast.unparse(keyword) for keyword in call.keywords)
                found[target.name] = f"({', '.join(said)})"
    return found


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
    """Return a field's default as text: `...` for what a function makes, `None` for none at all."""
    node = parse(tree, scope, value, strings=False)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pydantic.Field", "dataclasses.field"}:
        options = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default_factory" in options:
            return EMPTY.get(ast.unparse(options["default_factory"]), "...")
        given = options.get("default") or (node.args[0] if node.args else None)
        if given is None or (ast.unparse(node.func) == "pydantic.Field" and ast.unparse(given) == "..."):
            return None
        return ast.unparse(given)
    return ast.unparse(node)
