"""B023: a kept value comes back equal and of the same type, or keeping it failed and says where."""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr
from tests.field import values

from overt import Agent, Answer, Runtime, Status, ToolContext, ToolMessage, tool
from overt._canonical import NotJson, dump_exact, load_exact
from overt.errors import InvalidAnswer
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

T = TypeVar("T")


class Outer:
    class Colour(enum.Enum):
        RED = "red"


class Page(BaseModel, Generic[T]):
    items: list[T]
    secret: SecretStr = SecretStr("")


@dataclass
class NonInit:
    x: int
    y: int = field(default=0, init=False)


@dataclass
class Point:
    x: int
    tags: set[str]


PLUS2 = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Outer.Colour.RED, Outer.Colour),
        (Page[int](items=[1]), Page[int]),
        (Page[Outer.Colour](items=[Outer.Colour.RED]), Page[Outer.Colour]),
        ({"a", "b"}, set[str]),
        (Decimal("1.10"), Decimal),
        (datetime(2024, 1, 2, tzinfo=UTC), datetime),
        (datetime(2024, 1, 2, tzinfo=PLUS2), datetime),
        (defaultdict(int, {"a": 1}), defaultdict[str, int]),
        ((1, "a"), tuple[int, str]),
        ([Point(1, {"b", "a"})], list[Point]),
        (UUID(int=1), UUID | None),
        (None, int | None),
        (b"abc", bytes),
        (NonInit(1), NonInit),
        ({"a": 1.0}, dict[str, float]),
        ({1: "a"}, dict[int, str]),
        ({"a": [1, 1.5, True, None, "x"]}, None),
        ({"a": [1, {"b": "x"}]}, dict[str, Any]),
        (5, Any),
    ],
)
def test_what_comes_back(value: object, annotation: object) -> None:
    back = load_exact(dump_exact(value, annotation), annotation)
    assert back == value
    assert type(back) is type(value)


def non_init() -> NonInit:
    made = NonInit(1)
    made.y = 2
    return made


@pytest.mark.parametrize(
    ("value", "annotation", "place"),
    [
        (Outer.Colour.RED, None, r"\$ is of type .*Outer\.Colour"),
        ({"a": {1, 2}}, None, r"\$\.a is of type set"),
        ([(1, 2)], None, r"\$\[0\] is of type tuple"),
        ({"a": Decimal(1)}, None, r"\$\.a is of type decimal\.Decimal"),
        ({1: "a"}, None, r"\$ has a key of type int"),
        (float("nan"), None, r"\$ is a NaN"),
        (float("nan"), float, r"\$"),
        ({"a": float("inf")}, dict[str, float], r"\$\.a"),
        (datetime(2024, 1, 1, tzinfo=UTC), None, r"\$ is of type datetime"),
        (non_init(), NonInit, r"\$(\.y)? .*come.* back"),
        ({"a": (1, 2)}, dict[str, Any], r"\$\.a is of type tuple and comes back as list"),
        (
            defaultdict(int, {"a": 1}),
            dict[str, int],
            r"\$ is of type collections\.defaultdict and comes back as dict",
        ),
        (Page[int](items=[1], secret=SecretStr("s")), Page[int], r"\$\.secret"),
        (True, int, r"\$ is of type bool"),
        (object(), object, r"\$"),
        ("x", int, r"\$"),
        (b"\xff", bytes, r"\$"),
        ("\ud800", None, r"\$ of type str has half of a surrogate"),
        ("\ud800", str, r"\$"),
    ],
)
def test_what_does_not_is_refused_by_place(value: object, annotation: object, place: str) -> None:
    with pytest.raises(NotJson, match=place):
        dump_exact(value, annotation)


def test_a_value_that_contains_itself() -> None:
    looped: list[object] = []
    looped.append(looped)
    with pytest.raises(NotJson, match="contains itself"):
        dump_exact(looped)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(json_values)
def test_every_json_value_comes_back(value: object) -> None:
    text = dump_exact(value)
    assert json.loads(text) == value
    assert load_exact(text) == value


# ------------------------------------------------------------------ kept by one process, used by another


async def test_values_arguments_and_answers_in_another_process(tmp_path: Path) -> None:
    path, book = tmp_path / "runs.db", values.Book(second=False)
    store = SQLiteStore(path)
    result, runtime = await values.KEEPER.run("go", run_id=values.RUN, store=store, deps=book)
    assert result.status is Status.PENDING, result.text
    told = [f"data {json.dumps(request.data)}" for request in runtime.pendings()]
    await store.close()
    done = await anyio.run_process(
        [sys.executable, "-W", "error", "-m", "tests.field.values", str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parent.parent.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if line.startswith("data ")] == told, "the approver sees the same there"
    for name in values.VALUES:
        assert f"once {name}" in lines
        assert f"answer {name}" in lines
    (here,) = [line for line in book.seen if line.startswith("arguments ")]
    assert {line for line in lines if line.startswith("arguments ")} == {here}
    assert lines[-1] == "done end"

    store = SQLiteStore(path)
    runtime = await Runtime.open(values.KEEPER, values.RUN, store=store, deps=book)
    messages = runtime.transcript(runtime.result().handle)
    texts = [m.text for m in messages if isinstance(m, ToolMessage)]
    assert texts == [*(values.keep.as_result(value).output for value, _ in values.VALUES.values()), "True"]
    await store.close()


SECRET = SecretStr("s3cret")
BERLIN = ZoneInfo("Europe/Berlin")
ODD = timezone(timedelta(seconds=30))
UNKEPT: list[tuple[str, Any, Any, str]] = [
    ("bytes", b"\xff", bytes, r"\$ of type bytes has no JSON form"),
    ("non_init", non_init(), NonInit, r"\$\.y of type int comes back unequal"),
    ("secret", Page[int](items=[1], secret=SECRET), Page[int], r"\$\.secret .* comes back unequal"),
    ("zone", datetime(2024, 1, 1, tzinfo=BERLIN), datetime, r"\$ comes .* in place of the time zone Europe/Berlin"),
    ("fold", datetime(2024, 1, 1, fold=1), datetime, r"\$ comes back without its fold"),
    ("offset", datetime(2024, 1, 1, tzinfo=ODD), datetime, r"\$ comes back in another time zone"),
    ("bool", {True}, set[int], r"\$\[\*\] is of type bool and comes back as int"),
    ("factory", defaultdict(lambda: 5, {"a": 1}), defaultdict[str, int], r"\$\.default_factory"),
    ("nan", Decimal("NaN"), Decimal, r"\$"),
    ("unsaid", {"a": Decimal(1)}, None, r"\$\.a is of type decimal\.Decimal"),
    ("surrogate", "\ud800", str, r"\$"),
]  # fmt: skip


async def test_what_cannot_be_kept_is_an_error_result_that_names_tool_block_and_type(tmp_path: Path) -> None:
    entered: list[str] = []

    @tool
    async def keep(ctx: ToolContext, name: str) -> str:
        """Keep."""
        value, annotation = next((v, a) for n, v, a, _ in UNKEPT if n == name)

        async def fn() -> Any:
            entered.append(name)
            return value

        if annotation is None:
            del fn.__annotations__["return"]
        else:
            fn.__annotations__["return"] = annotation
        return str(await ctx.once(name, fn))

    store = SQLiteStore(tmp_path / "runs.db")
    model = MockModel([[call("keep", name=name) for name, *_ in UNKEPT], say("end")])
    agent = Agent("a", does="keeps", tools=[keep], model=model)
    result, _ = await agent.run("go", store=store, run_id="r")
    assert result.text == "end"
    runtime = await Runtime.open(agent, "r", store=store)
    messages = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    for message, (name, _, _, place) in zip(messages, UNKEPT, strict=True):
        assert message.is_error
        assert re.search(
            rf"once\('{name}'\) of tool 'keep' returned what cannot be kept: .*{place}", message.text
        )
    assert "s3cret" not in (tmp_path / "runs.db").read_bytes().decode("latin-1")
    await store.close()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"\xff", r"\$\.data of type bytes"),
        ({"a": [b"\xff"]}, r"\$\.data\.a\[0\] of type bytes"),
        ({b"\xff": 1}, r"a key of \$\.data of type bytes"),
        (non_init(), r"\$\.data\.y of type int comes back unequal"),
        ([SECRET], r"\$\.data\[0\] of type pydantic\.types\.SecretStr"),
        ({"n": Decimal("NaN")}, r"\$\.data\.n is NaN"),
        ({"n": float("inf")}, r"\$\.data\.n is inf"),
        (object(), r"\$\.data of type object"),
        ({1: "a", "1": "b"}, r"\$\.data has two keys that are both '1'"),
    ],
)
async def test_an_answer_that_would_come_back_as_something_else_is_refused(data: Any, place: str) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask("ok?")).data)

    agent = Agent("a", does="asks", tools=[ask], model=MockModel([call("ask"), say("end")]))
    result, runtime = await agent.run("go")
    assert result.pending is not None
    with pytest.raises(InvalidAnswer, match=place) as caught:
        await runtime.resume(Answer[Any](id=result.pending.id, ok=True, data=data))
    assert "s3cret" not in str(caught.value)
    assert runtime.pendings() == (result.pending,)
