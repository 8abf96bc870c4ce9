"""The contract tool, on a toy package whose stub and source differ in known ways."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.tools.toy import Toy
from tools.contract import main
from tools.contract_compare import allowlist
from tools.contract_render import render
from tools.contract_tree import Tree

ROOT = Path(__file__).parent.parent.parent
DOORS = (
    "overt", "overt.errors", "overt.events", "overt.models", "overt.operations", "overt.sources.mcp", "overt.stores",
    "overt.testing",
)  # fmt: skip
FIRST_RENAMED = "toy.first: contract says type of more Sequence[toy.Part], source says nothing"


def test_two_spellings_of_one_interface_agree(toy: Toy) -> None:
    assert toy.problems() == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("size: int = 3", "size: str = 3", "toy.Part.size: contract says type str, source says int"),
        ("size: int = 3", "size: int = 4", "toy.Part.size: contract says default 4, source says 3"),
        ("size: int = 3", "size: int", "toy.Part.size: contract says default nothing, source says 3"),
        (
            "needed: int",
            "needed: int = ...",
            "toy.Part.needed: contract says default ..., source says nothing",
        ),
        (
            '["a", "b"]',
            '["a"]',
            "toy.Part.kind: contract says type Literal['a'], source says Literal['a', 'b']",
        ),
        ("str | Part", "str", "toy.Choice: contract says value str, source says str | toy.Part"),
        (
            "class Part(BaseModel)",
            "class Part(object)",
            "toy.Part: contract says bases (), source says (pydantic.BaseModel)",
        ),
        (
            "frozen=True",
            "frozen=False",
            "toy.Box: contract says decorators @dataclass(frozen=False), source says @dataclass(frozen=True)",
        ),
        ("(self) -> bool", "(self) -> int", "toy.Box.full: contract says type int, source says bool"),
        (
            "@property\n    def full",
            "def full",
            "toy.Box.full: contract says kind function, source says property",
        ),
        (
            "async def open",
            "def open",
            "toy.Box.open: contract says kind function, source says async function",
        ),
        (
            "None | int, /, ",
            "None | int, ",
            (
                "toy.Box.open: contract says parameters (self, key, *more, force=), "
                "source says (self, key, /, *more, force=)"
            ),
        ),
        (
            "None | int, /",
            "int, /",
            "toy.Box.open: contract says type of key int, source says int | None",
        ),
        (
            "force: bool = False",
            "force: bool = True",
            "toy.Box.open: contract says default of force True, source says False",
        ),
        (
            "-> Part | None",
            "-> Part",
            "toy.first: contract says return type toy.Part, source says toy.Part | None",
        ),
        (
            "*, hard: bool = False) -> str",
            "*, hard: bool = False) -> int",
            "toy.pick: contract says overload 2: return type int, source says str",
        ),
        (
            "    part: Part\n",
            "    part: Part\n    why: str\n",
            "toy.Failed.why: contract has it, source says nothing",
        ),
        ("    size: int = 3\n", "", "toy.Part.size: source has it, contract says nothing"),
        (
            "    needed: int\n",
            "    needed: ClassVar[int]\n",
            "toy.Part.needed: contract says kind class attribute, source says attribute",
        ),
        (
            "    content: T\n    name: str | None = None\n",
            "    name: str | None = None\n    content: T\n",
            (
                "toy.Box: contract says positional fields (name, content, items), "
                "source says (content, name, items)"
            ),
        ),
        (
            'TypeVar("T")',
            'TypeVar("T", covariant=True)',
            "toy.Box: contract says type parameter T (covariant=True), source says ()",
        ),
        (
            "items: list[int] = []",
            "items: list[int] = ...",
            "toy.Box.items: contract says default ..., source says []",
        ),
        (
            "total=False",
            "total=True",
            "toy.Keys: contract says bases (TypedDict, total=True), source says (TypedDict, total=False)",
        ),
        ("    depth: int\n", "    depth: str\n", "toy.Keys.depth: contract says type str, source says int"),
        ("    depth: int\n", "", "toy.Keys.depth: source has it, contract says nothing"),
        ('A = "a"', 'A = "A"', "toy.Kind.A: contract says value 'A', source says 'a'"),
        ('    B = "b"\n', "", "toy.Kind.B: source has it, contract says nothing"),
        ("def first(parts: Sequence[Part])", "def first(more: Sequence[Part])", FIRST_RENAMED),
    ],
)
def test_a_difference_is_named(toy: Toy, old: str, new: str, problem: str) -> None:
    toy.edit("stubs/toy/__init__.pyi", old, new)
    assert problem in toy.problems()


def test_an_attribute_whose_type_is_inferred_is_named(toy: Toy) -> None:
    toy.edit("src/toy/inner.py", "self.part: Part = part", "self.part = part")
    assert toy.problems() == [
        "toy.Failed.part: contract says type toy.Part, source says nothing, and leaves it to be inferred"
    ]


def test_a_name_that_is_only_listed_is_named(toy: Toy) -> None:
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "ghost")')
    assert toy.problems() == ["toy.ghost: source has it, contract says nothing"]


def test_a_public_name_outside_the_contract_is_named(toy: Toy) -> None:
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "more")\ndef more() -> None: ...')
    assert toy.problems() == ["toy.more: source has it, contract says nothing"]


def test_a_dunder_that_changes_use_is_part_of_the_interface(toy: Toy) -> None:
    toy.edit("src/toy/inner.py", "    def _private", "    def __len__(self) -> int: ...\n    def _private")
    assert toy.problems() == ["toy.Box.__len__: source has it, contract says nothing"]


def test_what_is_pending_may_be_missing(toy: Toy) -> None:
    toy.edit("src/toy/__init__.py", '"first", "pick")', '"first")')
    toy.edit("src/toy/__init__.py", ", pick\n", "\n")
    assert toy.problems() == ["toy.pick: contract has it, source says nothing"]
    assert toy.problems("toy.pick") == []
    assert toy.comparison.missing == ["toy.pick"]
    assert r"toy\.pick(\..*)?" in allowlist(toy.comparison)


def test_the_list_of_pending_names_only_shrinks(toy: Toy) -> None:
    assert toy.problems("toy.pick") == [
        "toy.pick: pending, but source has toy.pick; list what is missing by name"
    ]
    assert toy.problems("toy.gone") == ["toy.gone: pending, but the contract has no such name"]


def test_a_star_stands_for_a_module_that_has_nothing_yet(toy: Toy) -> None:
    toy.write(
        "stubs/toy/later.pyi", "from toy import Box, Part as Part\ndef make(x: Box[int]) -> Part: ...\n"
    )
    assert toy.problems() == [
        "toy.later.Part: contract has it, source says nothing",
        "toy.later.make: contract has it, source says nothing",
    ]
    assert toy.problems("toy.later.*") == []
    toy.write(
        "src/toy/later.py",
        '__all__ = ("make",)\nfrom toy.inner import Box, Part\ndef make(x: Box[int]) -> Part: ...\n',
    )
    assert toy.problems("toy.later.*") == [
        "toy.later.*: pending, but source has toy.later.make; list what is missing by name"
    ]
    assert toy.problems("toy.later.Part") == []


def test_a_name_handed_on_by_a_second_module_is_one_thing(toy: Toy) -> None:
    toy.write("stubs/toy/doors.pyi", "from toy import Part as Part\n")
    toy.write("src/toy/doors.py", 'from toy.inner import Part\n__all__ = ("Part",)\n')
    assert toy.problems() == []
    toy.write("src/toy/doors.py", '__all__ = ("Part",)\nclass Part: ...\n')
    assert len(toy.problems()) == 1


def test_a_function_named_as_its_module_is_the_function(toy: Toy) -> None:
    toy.edit("stubs/toy/__init__.pyi", "def first", "def spin(x: int) -> int: ...\ndef first")
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "spin")\nfrom toy.spin import spin')
    toy.write("src/toy/spin.py", '__all__ = ("spin",)\ndef spin(x: int) -> int: ...\n')
    assert toy.problems() == []
    toy.edit("src/toy/spin.py", "x: int", "x: str")
    assert toy.problems() == ["toy.spin: contract says type of x int, source says str"]


def test_overloads_of_a_dataclass_are_compared(toy: Toy) -> None:
    overloads = """
    @overload
    def __init__(self, x: int) -> None: ...
    @overload
    def __init__(self, x: str, *, y: int) -> None: ...
"""
    body = "    def __init__(self, x: object, *, y: int = 0) -> None: ...\n"
    toy.edit(
        "stubs/toy/__init__.pyi",
        "def first",
        f"@dataclass(frozen=True, init=False)\nclass Two:\n    x: object\n{overloads}\ndef first",
    )
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "Two")\nfrom toy.two import Two')
    head = "from dataclasses import dataclass\nfrom typing import overload\n@dataclass(frozen=True, init=False)\n"
    toy.write("src/toy/two.py", f"{head}class Two:\n    x: object\n{overloads}{body}")
    assert toy.problems() == []
    toy.edit("src/toy/two.py", "*, y: int)", "*, y: str)")
    assert toy.problems() == ["toy.Two.__init__: contract says overload 2: type of y int, source says str"]


def test_a_parameter_specification_is_told_by_its_name_alone(toy: Toy) -> None:
    run = "def run(fn: Callable[P, int], *args: P.args, **kwargs: P.kwargs) -> int: ...\n"
    toy.edit(
        "stubs/toy/__init__.pyi",
        "def first",
        f"from typing import ParamSpec\nP = ParamSpec('P')\n{run}def first",
    )
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "run")\nfrom toy.runs import run')
    head = "from collections.abc import Callable\nfrom typing import ParamSpec\nP = ParamSpec('P')\n"
    toy.write("src/toy/runs.py", head + run)
    assert toy.problems() == []


def test_a_type_of_a_name_that_is_not_handed_on_yet_is_recognised(toy: Toy) -> None:
    toy.edit("src/toy/__init__.py", ', "Part"', "")
    toy.edit("src/toy/__init__.py", " Part,", "")
    assert toy.problems("toy.Part") == []


def test_render_gives_the_interface_without_bodies(toy: Toy) -> None:
    text = render(Tree.load("toy", toy.source), "toy.Box")
    assert "content: T" in text
    assert "async def open(self, key: Optional[int], /, *more: str, force: bool=False) -> Part:" in text
    assert "_private" not in text
    assert "yield" not in text
    with pytest.raises(SystemExit, match=r"toy\.nothing: not in the source"):
        render(Tree.load("toy", toy.source), "toy.nothing")


def test_the_command_ends_with_its_verdict(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--package", "toy", "--source", str(toy.source), "--stubs", str(toy.stubs)]
    assert main(["check", *where]) == 0
    toy.edit("stubs/toy/__init__.pyi", "size: int = 3", "size: str = 3")
    assert main(["check", *where]) == 1
    assert "toy.Part.size" in capsys.readouterr().out
    toy.edit("stubs/toy/__init__.pyi", "class Failed", "class Lost: ...\nclass Failed")
    assert main(["pending", *where]) == 0
    assert capsys.readouterr().out == "toy.Lost\n"


def test_every_public_name_is_in_a_typing_test() -> None:
    """What no typing test mentions may change its type without anybody seeing what that is to users."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "typing").rglob("*.py"))
    words = set(re.findall(r"\w+", text))
    silent = [
        f"{door}.{name}"
        for door in DOORS
        for name in importlib.import_module(door).__all__
        if name not in words
    ]
    assert silent == []


def test_every_public_model_and_dataclass_is_frozen() -> None:
    """No facet says so: a pydantic model is frozen by its configuration, which stubs leave out."""
    modules = [importlib.import_module(door) for door in DOORS]
    found = [getattr(module, name) for module in modules for name in module.__all__]
    classes = {cls for cls in found if isinstance(cls, type)}
    models = {cls for cls in classes if issubclass(cls, BaseModel)}
    kept = {cls for cls in classes if dataclasses.is_dataclass(cls)}
    assert len(models) > 30
    assert len(kept) > 20
    closed = {"frozen": True, "extra": "forbid"}
    assert not [cls for cls in models if {**cls.model_config, **closed} != cls.model_config]
    said = {cls: vars(cls)["__dataclass_params__"].frozen for cls in kept}
    assert not [cls for cls, frozen in said.items() if not frozen]
