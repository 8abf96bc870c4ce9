"""Every test the page on faults names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.docs.pages import ROOT

TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+|\*)`")


def names_in(path: Path) -> set[str]:
    """The tests of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def test_every_test_the_page_names_is_there() -> None:
    named = NAMED.findall(PAGE.read_text("utf-8"))
    assert len(named) > 50
    for file, test in named:
        found = names_in(TESTS / file)
        assert found, file
        assert test == "*" or test in found, f"{file}::{test}"


def test_every_row_of_the_page_names_one() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    heads = [line for line in rows if line.rstrip().endswith("| shown by |") or set(line) <= set("| -")]
    bare = [line for line in rows if line not in heads and not NAMED.search(line.split("|")[-2])]
    assert not bare
