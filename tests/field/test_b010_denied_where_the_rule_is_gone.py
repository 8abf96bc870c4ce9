"""B010: a denied call does not run, although the rule was held in memory only and a hook hands the batch back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    GuardrailEvent,
    Hooks,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    ToolMessage,
    ToolOverride,
    tool,
)
from overt.errors import SpecDrift
from overt.hooks import AfterTool, BeforeTool
from overt.stores import SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio


def rule(event: GuardrailEvent) -> Ruling:
    """Known to the first process only."""
    return Ask("delete everything?") if event.call.name == "delete" else Allow()


def again(event: BeforeTool) -> ToolOverride:
    """A hook that gives every call back to be run."""
    return ToolOverride(arguments=event.call.arguments)


def look(event: AfterTool) -> None:
    assert event.call.name != "delete"


def build(ran: list[str], shown: list[list[str]], *, hooked: bool) -> Agent[None, str]:
    @tool
    async def delete(everything: bool = True) -> str:
        """Delete."""
        ran.append("delete")
        return "deleted"

    @tool
    async def read() -> str:
        """Read."""
        ran.append("read")
        return "text"

    def script(request: Any) -> Any:
        said = [m for m in request.messages if isinstance(m, ToolMessage)]
        if not said:
            return [call("read"), call("delete"), call("read")]
        shown.append([m.text for m in said])
        return say("end")

    hooks = Hooks(before_tool=again, after_tool=look) if hooked else None
    return Agent("w", does="works", tools=[delete, read], model=MockModel(script), hooks=hooks)


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("first", ["with the hook", "without it"])
async def test_a_denied_call_never_runs(policy: ResumePolicy, first: str, tmp_path: Path) -> None:
    ran: list[str] = []
    shown: list[list[str]] = []
    clock = VirtualClock()
    store = SQLiteStore(tmp_path / "runs.db")
    agent = build(ran, shown, hooked=first == "with the hook")
    options: dict[str, Any] = {"run_id": "r", "resume_policy": policy, "clock": clock}
    result, _ = await agent.run("go", guardrails=[rule], store=store, **options)
    assert result.status is Status.PENDING
    await store.close()

    await clock.advance(86_400)
    store = SQLiteStore(tmp_path / "runs.db")
    here = build(ran, shown, hooked=True)
    with pytest.raises(SpecDrift, match="guardrails=rule"):
        await Runtime.open(here, "r", store=store, clock=clock)
    runtime = await Runtime.open(here, "r", store=store, clock=clock, guardrails=[])
    (request,) = runtime.pendings()
    assert request.data["call"] == {"tool": "delete", "arguments": {"everything": True}}
    result = await runtime.resume(Answer(id=request.id, ok=False, reason="not the archive", by="ann"))
    assert result.status is Status.DONE
    await store.close()

    assert "delete" not in ran
    assert shown == [["text", "declined: not the archive", "text"]], "what the model receives"
    store = SQLiteStore(tmp_path / "runs.db")
    saved = await Runtime.open(build(ran, shown, hooked=False), "r", store=store)
    (answer,) = [e for e in saved.events() if e.kind == "answer"]
    (denial,) = [e for e in saved.events() if e.kind == "tool_denied"]
    assert (answer.request_id, answer.ok) == (request.id, False)
    assert (answer.by, answer.at, answer.reason) == ("ann", clock.now(), "not the archive")
    assert (denial.call.name, denial.declined, denial.reason) == ("delete", True, "not the archive")
    assert saved.result().text == "end"
    await store.close()
