"""Raised errors as part of the contract, on the toy package."""

from __future__ import annotations

import pytest
from tests.tools.toy import Toy
from tools.contract import main
from tools.contract_raises import Promises, draft, promises, read_promises, wrong_promises

STORES = '''
__all__ = ("Broken", "Gone", "Shelf", "Store")

class Broken(Exception): ...
class Gone(Broken): ...

class Store:
    """A place.

    Raises:
        ValueError: The place is none.
    """

    def __init__(self) -> None:
        """Make it.

        Raises:
            Broken: It is.
        """

    def get(self) -> int:
        """Get it.

        Raises:
            Broken: It is.
        """

    @property
    def size(self) -> int:
        """Its size.

        Raises:
            Gone: It is.
        """

class Shelf(Store):
    def get(self) -> int:
        """Get it from a shelf.

        Raises:
            Broken: The shelf is.
            Gone: It is.
        """
'''
STUB = """
class Broken(Exception): ...
class Gone(Broken): ...

class Store:
    def __init__(self) -> None: ...
    def get(self) -> int: ...
    @property
    def size(self) -> int: ...

class Shelf(Store):
    def get(self) -> int: ...
"""
RAISES = """
["toy.stores"]
Store = ["Broken", "ValueError"]
"Store.get" = ["Broken"]
"Store.size" = ["Gone"]
"Shelf.get" = ["Gone"]
"""


@pytest.fixture
def raising(toy: Toy) -> Toy:
    toy.write("src/toy/stores.py", STORES)
    toy.write("stubs/toy/stores.pyi", STUB)
    toy.write("stubs/raises.toml", RAISES)
    return toy


def said(toy: Toy) -> Promises:
    comparison = toy.comparison
    return promises(comparison.tree, comparison.contract)


def wrong(toy: Toy) -> list[str]:
    return wrong_promises(read_promises(toy.stubs / "raises.toml"), said(toy))


def test_docstrings_and_file_agree_and_a_base_class_is_heard(raising: Toy) -> None:
    assert wrong(raising) == []
    found = said(raising)
    assert found.own["toy.stores.Shelf.get"] == ("Gone",)
    assert found.whole["toy.stores.Shelf.get"] == ("Broken", "Gone")
    assert found.whole["toy.stores.Store"] == ("Broken", "ValueError")
    raising.write("stubs/raises.toml", draft(found.own, ("toy", "toy.stores")))
    assert wrong(raising) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        (
            "src/toy/stores.py",
            '            Gone: It is.\n        """\n\nclass Shelf',
            '            Broken: It is.\n        """\n\nclass Shelf',
            "toy.stores.Store.size: contract says it raises Gone, its docstring says Broken",
        ),
        (
            "stubs/raises.toml",
            '"Store.size" = ["Gone"]',
            "",
            "toy.stores.Store.size: contract says it raises nothing, its docstring says Gone",
        ),
        (
            "stubs/raises.toml",
            "Store = [",
            '"Store.put" = ["Broken"]\nStore = [',
            "toy.stores.Store.put: contract says it raises Broken, its docstring says nothing",
        ),
        (
            "stubs/raises.toml",
            '"Shelf.get" = ["Gone"]',
            '"Shelf.get" = ["Broken", "Gone"]',
            "toy.stores.Shelf.get: contract says it raises Broken, Gone, its docstring says Gone",
        ),
        (
            "src/toy/stores.py",
            "            Broken: The shelf is.",
            "            KeyError: It is elsewhere.",
            "toy.stores.Shelf.get: raises KeyError, which toy.stores.Store.get does not promise",
        ),
        (
            "src/toy/stores.py",
            "            Broken: The shelf is.",
            "            _Lost: The shelf is.",
            "toy.stores.Shelf.get: its docstring raises _Lost, which users cannot import",
        ),
    ],
)
def test_a_difference_is_named(raising: Toy, name: str, old: str, new: str, problem: str) -> None:
    raising.edit(name, old, new)
    assert problem in wrong(raising)


def test_what_nobody_is_to_catch_may_be_raised_anywhere(raising: Toy) -> None:
    raising.edit(
        "src/toy/stores.py", "            Broken: The shelf is.", "            KeyboardInterrupt: Now."
    )
    assert wrong(raising) == [
        "toy.stores.Shelf.get: contract says it raises Gone, its docstring says Gone, KeyboardInterrupt"
    ]


def test_the_check_hears_of_it(raising: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--package", "toy", "--source", str(raising.source), "--stubs", str(raising.stubs)]
    assert main(["check", *where]) == 0
    assert "5 promised errors" in capsys.readouterr().out
    raising.edit("stubs/raises.toml", '"Store.get" = ["Broken"]', '"Store.get" = ["Gone"]')
    assert main(["check", *where]) == 1
    assert main(["raises", *where]) == 0
    assert '"Store.get" = ["Broken"]' in capsys.readouterr().out
