"""B030: tokens spent by nested agents are in the top-level usage, own and cumulative, whatever became of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Budget, Runtime
from overt.errors import ModelError
from overt.testing import MockModel, call, say

SPEND = {"a": (11, 13), "b": (101, 103), "c": (1009, 1013), "d": (10007,)}
NEXT = {"a": "b", "b": "c", "c": "d"}
d = Agent("d", does="is deepest")
c = Agent("c", does="passes on", team=[d])
b = Agent("b", does="passes on", team=[c])
a = Agent("a", does="passes on", team=[b], budget=Budget(max_depth=4))


def chain(last: Any) -> MockModel:
    script: dict[str, Any] = {"d": last}
    for name, below in NEXT.items():
        first, second = SPEND[name]
        script[name] = [
            call("task", agent=below, prompt="go").with_options(tokens=first),
            say(f"{name} done", tokens=second),
        ]
    return MockModel(script)


def check(rt: Runtime[Any], deepest: int) -> None:
    own = {name: sum(tokens) for name, tokens in SPEND.items()} | {"d": deepest}
    ledger = rt.ledger()
    for _, line in ledger.walk():
        assert line.own.total_tokens == own.get(line.agent, 0)
        total = line.own
        for child in line.children:
            total = total + child.total
        assert line.total == total
        assert rt.usage_tokens(line.handle) == line.total.total_tokens
    assert ledger.total.total_tokens == sum(own.values())


@pytest.mark.parametrize(
    ("last", "deepest"),
    [
        ([say("d done", tokens=10007)], 10007),
        ([ModelError("HTTP 500")], 0),
        ([call("nope").with_options(tokens=7), ModelError("HTTP 500")], 7),
        ([say("", tokens=9)], 9),
        ([call("nope").with_options(tokens=5)] * 6, 30),
        ([say("", tokens=3, finish="refusal")], 3),
    ],
    ids=["done", "fails at once", "fails later", "empty", "turn cap", "refusal"],
)
async def test_every_node_adds_up(last: Any, deepest: int) -> None:
    model = chain(last)
    result, rt = await a.run("go", model=model)
    assert result.output == "a done"
    check(rt, deepest)
    assert result.total_tokens == rt.usage_tokens("root")
    assert result.usage.model_calls == len(model.requests)


async def test_also_when_the_deepest_is_interrupted() -> None:
    inside = anyio.Event()

    async def hang(request: Any) -> Any:
        if len(request.messages) == 1:
            return call("nope").with_options(tokens=7)
        inside.set()
        return await anyio.sleep_forever()

    rt = Runtime(a, model=chain(hang))
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await inside.wait()
        await rt.interrupt("root/a.1/b.1/c.1/d.1")
    assert rt.result().status == "done"
    check(rt, 7)
    assert rt.result().usage.unreported_calls == 1
