"""The loops share the cases of a table: no test is left with one of them, and no value that a second axis crosses."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import HERE, pytest_collection_modifyitems

LOOPS = ("asyncio", "trio")


class Case:
    """An item is equal to itself only, as pytest's are."""

    def __init__(self, **said: Any) -> None:
        self.__dict__.update(said)


def case(test: str, marks: dict[str, Any], path: Path = HERE / "test_x.py", **params: Any) -> Any:
    """A collected test, as far as the hook looks at it."""
    given = "-".join(str(value) for value in params.values())
    return Case(
        nodeid=f"{test}[{given}]",
        path=path,
        callspec=SimpleNamespace(params=params),
        iter_markers=lambda _: [SimpleNamespace(args=(names, rows)) for names, rows in marks.items()],
    )


def kept(items: list[Any], *, keyword: str = "", args: tuple[str, ...] = ()) -> list[Any]:
    dropped: list[Any] = []
    config: Any = SimpleNamespace(
        option=SimpleNamespace(keyword=keyword),
        args=args,
        hook=SimpleNamespace(pytest_deselected=lambda items: dropped.extend(items)),
    )
    every = len(items)
    pytest_collection_modifyitems(config, items)
    assert len(items) + len(dropped) == every
    return items


@pytest.fixture(autouse=True)
def not_every_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OVERT_EVERY_LOOP", raising=False)


def table(path: Path = HERE / "test_x.py") -> list[Any]:
    policies, stores = ("rewind", "continue"), ("memory", "sqlite", "postgres")
    marks = {"policy": policies, "outcome, times": [("done", 1), ("done", 2)]}
    return [
        case("t", marks, path, anyio_backend=loop, policy=policy, store=store, outcome=outcome, times=times)
        for loop, policy, store, (outcome, times) in product(LOOPS, policies, stores, marks["outcome, times"])
    ]


def test_each_case_has_one_loop_and_each_value_both() -> None:
    left = [item.callspec.params for item in kept(table())]
    assert len(left) == 12
    assert len({tuple(v for k, v in p.items() if k != "anyio_backend") for p in left}) == 12
    for name in ("policy", "store", "times"):
        assert {(p["anyio_backend"], p[name]) for p in left} == set(
            product(LOOPS, {p[name] for p in left})
        ), name


def test_a_test_without_a_table_has_both_loops() -> None:
    alone = [case("t", {}, anyio_backend=loop) for loop in LOOPS]
    one_row = [case("u", {"n": [1]}, anyio_backend=loop, n=1) for loop in LOOPS]
    assert len(kept(alone + one_row)) == 4


def test_along_a_single_axis_the_loops_take_turns_and_either_begins() -> None:
    begins: set[tuple[str, ...]] = set()
    for test in "tuvwxyz":
        rows = {"policy": ["rewind", "continue"]}
        cases = [
            case(test, rows, anyio_backend=loop, policy=policy) for policy in rows["policy"] for loop in LOOPS
        ]
        begins.add(tuple(item.callspec.params["anyio_backend"] for item in kept(cases)))
    assert begins == {LOOPS, LOOPS[::-1]}


def test_a_table_on_one_loop_is_left_whole() -> None:
    assert len(kept([case("t", {"n": [1, 2]}, anyio_backend="asyncio", n=n) for n in (1, 2)])) == 2


@pytest.mark.parametrize("place", ["core/test_x.py", "driver/test_x.py", "journal/test_conformance.py"])
def test_the_rules_the_driver_and_the_stores_have_every_case_on_both(place: str) -> None:
    assert len(kept(table(HERE / place))) == 24


def test_chosen_tests_run_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(kept(table(), keyword="trio")) == 24
    assert len(kept(table(), args=("tests/test_x.py::t",))) == 24
    monkeypatch.setenv("OVERT_EVERY_LOOP", "1")
    assert len(kept(table())) == 24
