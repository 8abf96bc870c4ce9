"""What the pages on the Go port name is there, on both sides."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import overt
from tests.docs.pages import ROOT

PARITY = ROOT / "docs" / "go" / "parity.md"
PORTS = ROOT / "docs" / "go" / "ports.md"
SYMBOLS = Path(__file__).with_name("go_symbols.txt")
NOT_CARRIED = "not carried"
REASON = 5
"""Words a reason has at least, where a name is not carried; where it is another name, two fewer."""


def tables(page: Path) -> list[list[list[str]]]:
    """Return every table of a page: its rows, the head first, each a list of cells."""
    found: list[list[list[str]]] = [[]]
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("| "):
            if not set(line) <= set("| -"):
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def rows() -> list[list[str]]:
    """Return the rows of the tables that set a Go name beside ours."""
    return [row for head, *rest in tables(PARITY) if head[-1] == "difference, and why" for row in rest]


def code(cell: str) -> list[str]:
    """Return what stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def read_symbols() -> Iterator[str]:
    """Yield the names that were read in the Go source; every group says where."""
    for line in SYMBOLS.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def resolve(name: str) -> object:
    """Return what a dotted name means, `overt.Runtime.close(force)` being a parameter.

    A field without a default is an attribute of no class: it is looked up where classes declare their fields.
    """
    dotted, _, parameter = name.rstrip(")").partition("(")
    head, *rest = dotted.split(".")
    assert head == "overt", name
    found: object = overt
    for part in rest:
        found = member(found, part, name)
    if parameter:
        assert callable(found), name
        return inspect.signature(found).parameters[parameter]
    return found


def member(owner: object, part: str, name: str) -> object:
    if hasattr(owner, part):
        return getattr(owner, part)
    if inspect.ismodule(owner):
        return importlib.import_module(f"{owner.__name__}.{part}")
    assert inspect.isclass(owner), f"{name}: {owner!r} has no {part}"
    declared = {key for base in inspect.getmro(owner) for key in inspect.get_annotations(base)}
    if issubclass(owner, Exception):
        # What an exception carries, it is made with.
        declared |= inspect.signature(owner).parameters.keys()
    assert part in declared, f"{name}: {owner!r} has no {part}"
    return None


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower()


def test_every_symbol_of_the_go_source_has_its_place_and_no_other_is_made_up() -> None:
    read = list(read_symbols())
    assert len(read) > 300
    told = [name for row in rows() for name in code(row[0])]
    assert not {name: times for name, times in Counter(told).items() if times > 1}
    assert not {name: times for name, times in Counter(read).items() if times > 1}
    assert not set(read) - set(told), "read, and not on the page"
    assert not set(told) - set(read), "on the page, and never read"


def test_the_list_says_where_each_name_was_read() -> None:
    groups = SYMBOLS.read_text("utf-8").split("\n\n")[1:]
    assert groups
    for group in groups:
        head, *names = group.split("\n")
        assert re.fullmatch(r"# golang/[\w/]+\.go [0-9a-f]{7}", head), head
        root = "agents/" not in head
        assert all(name.startswith("tn.") is root for name in names if name), head


def fault_of(row: list[str]) -> str | None:
    """Return what is wrong with a row, `None` for nothing."""
    if len(row) != 3:
        return "has not three cells"
    go, ours, reason = row
    if not re.fullmatch(r"`[\w.]+`(, `[\w.]+`)*", go):
        return "the first cell is no list of names"
    words = len(re.findall(r"[\w`\"']+", reason))
    if ours == NOT_CARRIED:
        return f"says in {words} words why it is not carried" if words < REASON else None
    if not re.fullmatch(r"`overt\.[\w.]+(\(\w+\))?`(, `overt\.[\w.]+(\(\w+\))?`)*", ours):
        return "the second cell is no list of names of overt"
    for name in code(ours):
        try:
            resolve(name)
        except (AssertionError, ImportError, KeyError) as error:
            return f"{name} is not there: {error!r}"
    last = {re.split(r"[.(]", name.rstrip(")"))[-1].lower() for name in code(ours)}
    same = len(code(go)) == 1 and snake(code(go)[0]) in last
    return f"says in {words} words why the name differs" if words < (1 if same else REASON - 2) else None


def test_every_row_resolves_and_gives_its_reason() -> None:
    faults = {row[0]: fault for row in rows() if (fault := fault_of(row))}
    assert not faults


@pytest.mark.parametrize(
    "row",
    [
        ["`Loop`", "`overt.Loops`", "It is another name here."],
        ["`Loop`", "`overt.Loop`", ""],
        ["`Loops`", "`overt.Loop`", "Another name."],
        ["`Loop`", "not carried", "Nobody wants it."],
        ["Loop", "`overt.Loop`", "The same."],
        ["`Loop`", "overt.Loop", "The same."],
    ],
)
def test_a_row_with_a_fault_is_noticed(row: list[str]) -> None:
    assert fault_of(row)


def test_names_that_are_not_there_are_noticed() -> None:
    for name in (
        "overt.Runtime.resumed",
        "overt.Options.max_depth",
        "overt.gone",
        "overt.Runtime.close(forced)",
    ):
        with pytest.raises((AssertionError, ImportError, KeyError)):
            resolve(name)
    for name in (
        "overt.Options.store",
        "overt.TaskResult.text",
        "overt.errors.SpawnRefused.limit",
        "overt.Limit.MAX_WALL",
    ):
        resolve(name)


PORT_NAMES = ["golang", "js", "python", "java", "csharp", "elixir", "clojure", "overt"]


def test_the_ports_are_the_records_seven_and_ours() -> None:
    head, *ports = tables(PORTS)[0]
    assert [row[0] for row in ports] == PORT_NAMES
    for word, column in zip(("tokens", "limit", "resume", "replays"), head[1:], strict=True):
        assert word in column
    assert all(len(row) == len(head) and all(row) for row in ports)
    cells = {row[0]: row[1:] for row in ports}
    # Of the record: who has a limit, who replays a word, who names the wrong one.
    assert [name for name in PORT_NAMES if cells[name][1].startswith("yes")] == ["elixir", "overt"]
    assert [name for name in PORT_NAMES if '"continue"' in cells[name][3]] == ["java"]
    assert [name for name in PORT_NAMES if "turn cap" in cells[name][1]] == ["csharp", "clojure"]
    assert [name for name in PORT_NAMES if "this run" not in cells[name][0]] == ["overt"]
    assert [
        name
        for name in PORT_NAMES
        if "result" in cells[name][2].lower() and "no result" not in cells[name][2]
    ] == ["overt"]


def test_every_decision_of_the_record_is_answered_with_a_page() -> None:
    decisions, follows = tables(PORTS)[1:]
    assert [re.match(r"D\d", row[0]) is not None for row in decisions[1:]] == [True] * 4 + [False] * 2
    for row in decisions[1:]:
        assert re.search(r"\]\(\.\./corrections/[\w-]+\.md\)", row[1]), row
    assert len(follows) == 7
    linked = set(re.findall(r"\(\.\./corrections/([\w-]+)\.md\)", PORTS.read_text("utf-8")))
    assert linked == {"cost", "stops", "resume-result", "replay", "idempotency", "reattachment", "restart"}
