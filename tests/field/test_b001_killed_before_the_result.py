"""B001: a process is killed after a tool's effect and before its result is stored; the next one resumes the run.

A `reuse` tool, and a `once` block, come back in doubt; a `rerun` tool is declared repeatable and runs again, under
the same key.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL"),
]

FIRST = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from overt.stores import SQLiteStore
from overt import ResumePolicy
from tests.field.test_b001_killed_before_the_result import build

path, kind, policy = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    agent = build(path, kind, die)
    await agent.run("pay", store=SQLiteStore(path / "runs.db"), run_id="r", resume_policy=ResumePolicy(policy))

asyncio.run(main())
"""


def build(path: Path, kind: str, after_the_effect: object = None) -> Agent[None, str]:
    ledger = path / "ledger"

    async def append() -> str:
        with ledger.open("a") as lines:
            lines.write("paid\n")
        if callable(after_the_effect):
            after_the_effect()
        return "receipt"

    @tool(on_replay="reuse" if kind == "reuse" else "rerun")
    async def pay(ctx: ToolContext, to: str) -> str:
        """Pay."""
        with (path / "keys").open("a") as lines:
            lines.write(f"{ctx.idempotency_key}\n")
        if kind == "once":
            return await ctx.once("pay", append)
        return await append()

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = MockModel([call("look"), [call("look"), call("pay", to="bob")], say("all paid")])
    return Agent("payer", does="pays", tools=[look, pay], model=model)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def run_and_die(path: Path, kind: str, policy: str) -> None:
    root = Path(__file__).parents[2]
    killed = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIRST, str(path), kind, policy, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("kind", ["reuse", "once", "rerun"])
async def test_the_effect_is_in_doubt_or_declared_repeatable(
    tmp_path: Path, kind: str, policy: ResumePolicy
) -> None:
    run_and_die(tmp_path, kind, policy)
    assert lines(tmp_path / "ledger") == ["paid"]

    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(build(tmp_path, kind), "r", store=store)
    assert runtime.result().status is Status.INTERRUPTED
    result = await runtime.recover()
    if kind == "rerun":
        assert (result.status, result.text) == (Status.DONE, "all paid")
        assert lines(tmp_path / "ledger") == ["paid", "paid"]
        first, second = lines(tmp_path / "keys")
        assert first == second
    else:
        assert result.status is Status.PENDING
        (request,) = result.pendings
        assert request.kind == "in_doubt"
        assert request.data["call"] == {"tool": "pay", "arguments": {"to": "bob"}}
        assert [request.data["idempotency_key"]] == lines(tmp_path / "keys")
        assert lines(tmp_path / "ledger") == ["paid"], "still one line"
        answer = Answer(id=request.id, ok=True, data={"outcome": "succeeded", "output": "receipt 7"})
        result = await runtime.resume(answer)
        assert (result.status, result.text) == (Status.DONE, "all paid")
        assert lines(tmp_path / "ledger") == ["paid"]
        said = [m.text for m in runtime.transcript(result.handle) if m.role == "tool"]
        assert said == ["seen", "seen", "receipt 7"]
    assert result.turns == 3
    await store.close()
