"""B057, B058 and B061 in a run: what was declared is what is entered."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from tests.driver.support import agent, results

from overt import ToolContext, tool
from overt.testing import MockModel, call, say


class Address(BaseModel):
    street: str


@dataclass
class Item:
    name: str
    count: int = 1


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


async def test_valid_input_arrives_as_real_instances_and_invalid_names_its_path() -> None:
    seen: list[Any] = []

    @tool
    async def order(
        address: Address, items: list[Item], size: Size, speed: Literal["slow", "fast"] = "slow"
    ) -> str:
        seen.append((address, items, size, speed))
        return "ordered"

    good = {"address": {"street": "s"}, "items": [{"name": "a", "count": "2"}], "size": "l"}
    model = MockModel(
        [
            [
                call("order", **good),
                call("order", **{**good, "items": [{"name": "a", "count": "many"}]}),
                call("order", **{**good, "address": {}}),
                call("order", **{**good, "speed": "warp"}),
                call("order", **good, colour="red"),
            ],
            say("done"),
        ]
    )
    _, rt = await agent(order).run("go", model=model)
    assert seen == [(Address(street="s"), [Item("a", 2)], Size.LARGE, "slow")]
    found = results(rt)
    assert found[0] == ("ordered", False)
    for (text, failed), path in zip(
        found[1:], ("items.0.count", "address.street", "speed", "colour"), strict=True
    ):
        assert failed
        assert text.startswith("invalid arguments")
        assert path in text


async def test_every_kind_of_callable_is_entered_and_async_ones_are_awaited() -> None:
    def plain(n: int) -> str:
        return f"plain {n}"

    async def two(prefix: str, n: int) -> str:
        return f"{prefix} {n}"

    class Bound:
        async def method(self, ctx: ToolContext, n: int) -> str:
            return f"method {n} {ctx.call.name}"

    class Called:
        async def __call__(self, n: int) -> str:
            return f"object {n}"

    def decorated(fn: Any) -> Any:
        @functools.wraps(fn)
        async def inner(*args: Any, **kwargs: Any) -> Any:
            return await fn(*args, **kwargs)

        return inner

    @decorated
    async def wrapped(n: int) -> str:
        return f"wrapped {n}"

    tools: list[Any] = [
        tool(plain),
        tool(functools.partial(two, "partial"), name="part"),
        tool(Bound().method),
        tool(Called(), name="obj"),
        tool(wrapped),
    ]
    names = [t.name for t in tools]
    model = MockModel([[call(name, n=i) for i, name in enumerate(names)], say("done")])
    _, rt = await agent(*tools).run("go", model=model)
    assert results(rt) == [
        ("plain 0", False),
        ("partial 1", False),
        ("method 2 method", False),
        ("object 3", False),
        ("wrapped 4", False),
    ]


async def test_each_call_reaches_the_tool_of_its_name() -> None:
    names = ["a_b", "a-b", "A_b", "a" * 64]
    made = []
    for name in names:

        async def fn(name: str = name) -> str:
            return name

        made.append(tool(functools.partial(fn, name), name=name))
    _, rt = await agent(*made).run("go", model=MockModel([[call(n) for n in reversed(names)], say("done")]))
    assert [text for text, _ in results(rt)] == names[::-1]
