"""The stub of a source symbol, to paste while drafting."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import griffe
from tools.contract_facets import QUIET_DUNDERS, QUIET_MEMBERS
from tools.contract_tree import Tree, source_names

__all__ = ("render",)


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
