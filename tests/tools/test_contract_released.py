"""The contract as it was released, on the toy package: what has changed, whether it breaks, and that it is said why."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.test_contract_raises import RAISES, STORES
from tests.tools.test_contract_raises import STUB as STORES_STUB
from tests.tools.toy import Toy
from tools.contract import main
from tools.contract_released import NO_CHANGES, changes, latest, read_frozen

STUB = "stubs/toy/__init__.pyi"


class Released:
    """The toy, frozen."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.folder = toy.stubs / "released"
        toy.write("src/toy/stores.py", STORES)
        toy.write("stubs/toy/stores.pyi", STORES_STUB)
        toy.write("stubs/raises.toml", RAISES)
        assert self.run("freeze", "0.1.0") == 0

    def run(self, *words: str) -> int:
        toy = self.toy
        return main([*words, "--package", "toy", "--source", str(toy.source), "--stubs", str(toy.stubs)])

    def changed(self) -> list[tuple[str, str, str]]:
        """What the stubs say now beside what was frozen, whatever the source says."""
        frozen = latest(self.folder)
        assert frozen is not None
        found = changes(read_frozen(frozen.read_text(encoding="utf-8")), self.toy.comparison.contract, {})
        return [(c.path, c.kind, c.what) for c in found if "raises was" not in c.what]


@pytest.fixture
def released(toy: Toy) -> Released:
    return Released(toy)


def test_what_is_frozen_is_read_back_and_differs_in_nothing(
    released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (released.folder / "0.1.0.txt").read_text(encoding="utf-8")
    assert "toy.Box.open\n    kind = async function\n" in text
    assert "    parameters = (self, key, /, *more, force=)\n" in text
    assert "toy.stores.Store.get\n" in text
    assert "    raises = (Broken, Gone)\n" in text
    assert "toy.Kind.A\n    kind = attribute\n    value = 'a'\n" in text
    assert (released.folder / "changes.toml").read_text(encoding="utf-8") == NO_CHANGES
    assert released.run("check") == 0
    assert "since 0.1.0 0 breaking, 0 additive" in capsys.readouterr().out


BREAKS, ADDS = "breaking", "additive"


@pytest.mark.parametrize(
    ("old", "new", "path", "kind", "what"),
    [
        ("size: int = 3", "size: str = 3", "toy.Part.size", BREAKS, "type was int, is str"),
        ("size: int = 3", "size: int = 4", "toy.Part.size", BREAKS, "default was 3, is 4"),
        ("size: int = 3", "size: int", "toy.Part.size", BREAKS, "default was 3, is nothing"),
        ("    needed: int\n", "    needed: int = 1\n", "toy.Part.needed", ADDS, "default was nothing, is 1"),
        ("    needed: int\n", "", "toy.Part.needed", BREAKS, "gone"),
        ("    needed: int\n", "    needed: int\n    why: str = ''\n", "toy.Part.why", ADDS, "new"),
        (
            "    needed: int\n",
            "    needed: int\n    why: str\n",
            "toy.Part.why",
            BREAKS,
            "new field without a default",
        ),
        ('B = "b"', 'B = "b"\n    C = "c"', "toy.Kind.C", BREAKS, "new value of a closed vocabulary"),
        ("    height: int\n", "    height: int\n    width: int\n", "toy.Keys.width", ADDS, "new"),
        ("class Failed(", "class More: ...\nclass Failed(", "toy.More", ADDS, "new"),
        ("(Exception)", "(ValueError)", "toy.Failed", BREAKS, "bases was (Exception), is (ValueError)"),
        ("(Exception)", "(Exception, ValueError)", "toy.Failed", ADDS, ""),
        ("async def open", "def open", "toy.Box.open", BREAKS, "kind was async function, is function"),
        (
            "key: None | int, /",
            "key: None | int | str, /",
            "toy.Box.open",
            ADDS,
            "type of key was int | None,",
        ),
        ("key: None | int, /", "key: int, /", "toy.Box.open", BREAKS, "type of key was int | None, is int"),
        ("force: bool = False", "force: bool", "toy.Box.open", BREAKS, "parameters was"),
        ("force: bool = False", "force: bool = True", "toy.Box.open", BREAKS, "default of force was False"),
        ("force: bool = False", "force: bool = False, hard: int = 0", "toy.Box.open", ADDS, "parameters was"),
        ("force: bool = False", "force: bool = False, hard: int", "toy.Box.open", BREAKS, "parameters was"),
        ("(parts: Seq", "(items: Seq", "toy.first", BREAKS, "parameters was (parts), is (items)"),
        (
            "-> Part | None: ...",
            "-> Part: ...",
            "toy.first",
            ADDS,
            "return type was toy.Part | None, is toy.Part",
        ),
        (
            "-> Part | None: ...",
            "-> Part | int: ...",
            "toy.first",
            BREAKS,
            "return type was toy.Part | None,",
        ),
        (
            "def first",
            "@overload\ndef pick(x: bytes) -> bytes: ...\ndef first",
            "toy.pick",
            ADDS,
            "kind was 2 overloads, is 3 overloads",
        ),
        (
            "@overload\ndef pick(x: int) -> Part: ...\n@overload\n",
            "",
            "toy.pick",
            BREAKS,
            "kind was 2 overloads, is function",
        ),
        (
            "[]\n    @property",
            "[]\n    more: int = 0\n    @property",
            "toy.Box",
            ADDS,
            "positional fields was",
        ),
        (
            "    content: T\n    name: str | None = None\n",
            "    name: str | None = None\n    content: T\n",
            "toy.Box",
            BREAKS,
            "positional fields was",
        ),
    ],
)
def test_a_change_is_named_and_judged(
    released: Released, old: str, new: str, path: str, kind: str, what: str
) -> None:
    released.toy.edit(STUB, old, new)
    ((at, how, said),) = [found for found in released.changed() if found[0] == path]
    assert (at, how) == (path, kind)
    assert what in said


def test_a_class_that_is_gone_stands_for_its_members(released: Released) -> None:
    released.toy.edit(STUB, "class Failed(Exception):\n    part: Part\n", "class Lost(Exception):\n")
    assert released.changed() == [
        ("toy.Failed", BREAKS, "gone"),
        ("toy.Lost", ADDS, "new"),
    ]


def test_a_member_of_a_protocol_breaks_those_that_implement_it(released: Released) -> None:
    toy = released.toy
    protocol = "from typing import Protocol\nclass Door(Protocol):\n    def open(self) -> None: ...\n"
    toy.write(STUB, (toy.stubs / "toy" / "__init__.pyi").read_text(encoding="utf-8") + protocol)
    toy.write("src/toy/doors.py", protocol)
    toy.edit("src/toy/__init__.py", '"pick")', '"pick", "Door")\nfrom toy.doors import Door')
    assert released.run("freeze", "0.2.0") == 0
    toy.edit(
        STUB, "def open(self) -> None: ...", "def open(self) -> None: ...\n    def shut(self) -> None: ..."
    )
    assert released.changed() == [
        ("toy.Door.shut", BREAKS, "new member of a protocol, which implementations lack")
    ]


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ('"Broken", "Gone"', ADDS),  # whoever catches Broken catches Gone
        ('"Broken", "KeyError"', BREAKS),
        ('"KeyError"', BREAKS),
    ],
)
def test_errors_are_a_part_of_it(
    released: Released, errors: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = released.toy
    lines = "".join(f"            {error}: It is.\n" for error in errors.replace('"', "").split(", "))
    toy.edit(
        "src/toy/stores.py",
        "Get it.\n\n        Raises:\n            Broken: It is.\n",
        f"Get it.\n\n        Raises:\n{lines}",
    )
    toy.edit("stubs/raises.toml", '"Store.get" = ["Broken"]', f'"Store.get" = [{errors}]')
    toy.edit("stubs/raises.toml", '"Shelf.get" = ["Gone"]\n', "")
    toy.edit("src/toy/stores.py", "            Broken: The shelf is.\n            Gone: It is.\n", lines)
    assert released.run("check") == 1
    assert f"toy.stores.Store.get: {kind} since 0.1.0: raises was (Broken)" in capsys.readouterr().out


def test_every_difference_needs_an_entry_and_every_entry_a_difference(
    released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (STUB, "src/toy/inner.py"):
        released.toy.edit(name, "class Failed(Exception):", "class More: ...\n\nclass Failed(Exception):")
    released.toy.edit("src/toy/__init__.py", '"pick")', '"pick", "More")\nfrom toy.inner import More')

    def told(entries: str) -> str:
        (released.folder / "changes.toml").write_text(entries, encoding="utf-8")
        code = released.run("check")
        said = capsys.readouterr().out.strip()
        assert (code == 0) == said.startswith("contract:")
        return said

    capsys.readouterr()
    assert told("") == "toy.More: additive since 0.1.0: new; changes.toml has no entry for it"
    assert told('["toy.More"]\nkind = "breaking"\nreason = "x"') == (
        "toy.More: changes.toml says breaking, and it is additive: new"
    )
    assert told('["toy.More"]\nkind = "additive"\nreason = " "') == "toy.More: changes.toml gives no reason"
    right = '["toy.More"]\nkind = "additive"\nreason = "Something to have."\n'
    assert told(right).endswith("since 0.1.0 0 breaking, 1 additive")
    assert told(right + '["toy.Part"]\nkind = "breaking"\nreason = "x"') == (
        "toy.Part: changes.toml has it, and it is as in 0.1.0"
    )


def test_a_release_is_frozen_once_and_the_latest_counts(released: Released, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="a release is frozen once"):
        released.run("freeze", "0.1.0")
    assert released.run("freeze", "0.1.0", "--again") == 0
    for version in ("0.9.0", "0.10.0"):
        assert released.run("freeze", version) == 0
    found = latest(released.folder)
    assert found is not None
    assert found.stem == "0.10.0"
    with pytest.raises(SystemExit, match="takes one version"):
        released.run("freeze")


def test_what_does_not_agree_is_not_frozen(released: Released) -> None:
    released.toy.edit(STUB, "size: int = 3", "size: int = 4")
    assert released.run("freeze", "0.2.0") == 1
    assert not (released.folder / "0.2.0.txt").exists()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("stubs/released/0.1.0.txt", "toy.", "0.1.0.txt: cut off or changed"),
        ("stubs/released/0.1.0.txt", "", "0.1.0.txt: cut off or changed"),
        ("stubs/released/0.1.0.txt", None, "there is no release in it"),
        ("stubs/released/changes.toml", "[toy", "changes.toml: Expected"),
        ("stubs/released/changes.toml", "toy = 3", "toy: changes.toml has no entry of kind and reason"),
        ("stubs/released/changes.toml", '["toy.f"]\nkind = "breaking"\nresaon = "x"', "toy.f: changes.toml has"),
        ("stubs/released/changes.toml", '["toy.f"]\nkind = "breaking"\nreason = 3', "toy.f: changes.toml has no entry"),
        ("stubs/raises.toml", "[toy]\nf = 3", "raises.toml: toy.f is no list"),
        ("stubs/raises.toml", "[toy", "raises.toml: Expected"),
        (STUB, "def f(x: int = 1 -> int: ...", "__init__.pyi:1: "),
        ("src/toy/inner.py", "x =\n", "inner.py:1: "),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_named(
    released: Released, name: str, text: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = released.toy.stubs.parent / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert released.run("check") != 0
    assert told in capsys.readouterr().out


def test_a_line_of_a_release_that_was_changed_is_noticed(
    released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    path = released.folder / "0.1.0.txt"
    path.write_text(path.read_text("utf-8").replace("default = 3", "default = 4"), encoding="utf-8")
    assert released.run("check") == 2
    assert "0.1.0.txt: cut off or changed" in capsys.readouterr().out
