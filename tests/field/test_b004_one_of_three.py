"""B004: three calls of one turn wait for an outside result; a result for the second moves nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.field.apart import Notebook, apart

from overt import (
    Agent,
    Answer,
    ResumePolicy,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    ToolResult,
    pending,
    tool,
)
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


def build(folder: Path) -> Agent[None, str]:
    @tool
    def fetch(ctx: ToolContext, n: int) -> ToolResult:
        """Fetch from outside."""
        entered(folder).write(n)
        if ctx.answer is None:
            return pending(kind="result", prompt=f"job {n}?")
        return ToolResult(f"{n}: {ctx.answer.data}")

    model = MockModel([[call("fetch", n=n) for n in (1, 2, 3)], say("end")])
    return Agent("w", does="works", tools=[fetch], model=model)


def entered(folder: Path) -> Notebook:
    return Notebook(folder / "entered")


Stand = tuple[str, list[str]]
"""The result as JSON, and what the tool messages say."""


async def start(folder: Path, policy: ResumePolicy) -> Stand:
    store = SQLiteStore(folder / "runs.db")
    result, runtime = await build(folder).run("go", store=store, run_id="r", resume_policy=policy)
    return await stand(store, runtime, result)


async def answer(folder: Path, given: dict[str, str]) -> Stand:
    """Deliver results from outside; without any, recover."""
    store = SQLiteStore(folder / "runs.db")
    runtime = await Runtime.open(build(folder), "r", store=store)
    answers = [Answer(id=id, ok=True, data=data) for id, data in given.items()]
    result = await (runtime.resume(answers) if answers else runtime.recover())
    return await stand(store, runtime, result)


async def stand(store: SQLiteStore, runtime: Runtime[str], result: TaskResult[str]) -> Stand:
    await store.close()
    return result.model_dump_json(), [m.text for m in runtime.transcript("root/w.1") if m.role == "tool"]


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_others_stay_as_they_are(policy: ResumePolicy, elsewhere: bool, tmp_path: Path) -> None:
    """Fresh objects on a file for each step, in processes of their own too."""
    told, _ = await (apart(start, tmp_path, policy) if elsewhere else start(tmp_path, policy))
    result = TaskResult[str].model_validate_json(told)
    one, two, three = (r.id for r in result.pendings)
    calls = result.usage.model_calls
    for given in ({two: "b"}, {}):
        told, _ = await (apart(answer, tmp_path, given) if elsewhere else answer(tmp_path, given))
        result = TaskResult[str].model_validate_json(told)
        assert result.status is Status.PENDING
        assert [r.id for r in result.pendings] == [one, three]
        assert sorted(entered(tmp_path).read()) == ["1", "2", "3"]
        assert result.usage.model_calls == calls
    given = {three: "c", one: "a"}
    told, said = await (apart(answer, tmp_path, given) if elsewhere else answer(tmp_path, given))
    assert TaskResult[str].model_validate_json(told).status is Status.DONE
    assert sorted(entered(tmp_path).read()) == ["1", "1", "2", "2", "3", "3"]
    assert said == ["1: a", "2: b", "3: c"]
