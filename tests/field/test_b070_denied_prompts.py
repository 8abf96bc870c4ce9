"""B070: a prompt that is denied, however slowly, lets no tool run, and every guardrail's word is in the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Deny,
    ErrorInfo,
    PromptEvent,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    ToolContext,
    tool,
)
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio


class Scene:
    """A fast model that calls a tool with a side effect, and a slow guardrail that rejects what is forbidden."""

    def __init__(self) -> None:
        self.counter = 0
        self.bought = 0
        self.clock = VirtualClock()
        self.seen: list[str] = []

    def worker(self, *replies: Any) -> Agent[None, str]:
        scene = self

        @tool
        async def send() -> str:
            """Send."""
            scene.counter += 1
            return "sent"

        @tool
        async def ask(ctx: ToolContext) -> str:
            """Ask first."""
            await ctx.ask("go on?")
            return "yes"

        script = [*replies, call("send"), say("sent it")]

        def model(request: Any) -> Any:
            scene.bought += 1
            return script[sum(m.role == "assistant" for m in request.messages)]

        return Agent("w", does="sends", tools=[send, ask], model=MockModel(model))

    def rules(self) -> list[Callable[[PromptEvent], Any]]:
        scene = self

        def quick(event: PromptEvent) -> Ruling:
            scene.seen.append("quick")
            return Allow()

        async def slow(event: PromptEvent) -> Ruling:
            await scene.clock.sleep(10)
            scene.seen.append("slow")
            return Deny("forbidden") if event.agent == "w" else Allow()

        async def slower(event: PromptEvent) -> Ruling:
            await scene.clock.sleep(20)
            scene.seen.append("slower")
            return Allow()

        return [quick, slow, slower]

    async def through(self, work: Callable[[], Any]) -> Any:
        """Do something while time passes."""
        found: list[Any] = []

        async def run() -> None:
            found.append(await work())

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                while not found:
                    await self.clock.advance(5)
        return found[0]


def check(error: ErrorInfo | None) -> None:
    assert error is not None
    assert (error.type, error.source) == ("GuardrailDenied", "guardrail")
    assert "denied by slow: forbidden" in error.message
    assert error.detail == "quick: allow; slow: deny (forbidden); slower: allow"


async def test_not_streamed() -> None:
    scene = Scene()
    runtime = Runtime(scene.worker(), input_guardrails=scene.rules(), clock=scene.clock)
    result = await scene.through(lambda: runtime.run("go"))
    assert (scene.counter, scene.bought, result.status) == (0, 0, Status.ERROR)
    check(result.error)
    assert "slow" in result.text


async def test_streamed() -> None:
    scene = Scene()
    events: list[Any] = []

    async def read() -> Any:
        async with scene.worker().stream("go", input_guardrails=scene.rules(), clock=scene.clock) as stream:
            events.extend([event async for event in stream])
        return await stream.result()

    result = await scene.through(read)
    assert (scene.counter, scene.bought, result.status) == (0, 0, Status.ERROR)
    check(result.error)
    kinds = [event.kind for event in events]
    assert kinds[-1] == "result"
    assert not {"text", "turn", "tool_started", "tool_finished"} & set(kinds)
    (settled,) = [event for event in events if event.kind == "settled"]
    check(settled.error)


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_on_a_resumed_run(policy: ResumePolicy) -> None:
    """The rule comes with the process that answers. What is replayed is a prompt again; what is carried on is not."""
    scene, store = Scene(), MemoryStore()
    result, _ = await scene.worker(call("ask")).run("go", store=store, run_id="r", resume_policy=policy)
    assert result.pending is not None
    scene.bought = 0
    runtime = await Runtime.open(
        scene.worker(call("ask")), "r", store=store, input_guardrails=scene.rules(), clock=scene.clock
    )
    answer = Answer[Any](id=result.pending.id, ok=True)
    result = await scene.through(lambda: runtime.resume(answer))
    if policy is ResumePolicy.REWIND:
        assert (scene.counter, scene.bought, result.status) == (0, 0, Status.ERROR)
        check(result.error)
    else:
        assert (scene.counter, result.status) == (1, Status.DONE)


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_on_a_run_resumed_at_its_prompt(policy: ResumePolicy) -> None:
    """Somebody lets the prompt pass, and the slow guardrail changes its mind."""
    scene, store = Scene(), MemoryStore()

    def wary(event: PromptEvent) -> Ruling:
        return Ask("let it pass?")

    options: dict[str, Any] = {"store": store, "clock": scene.clock}
    result, _ = await scene.worker().run(
        "go", run_id="r", resume_policy=policy, input_guardrails=[wary], **options
    )
    assert result.pending is not None
    runtime = await Runtime.open(scene.worker(), "r", input_guardrails=[wary, *scene.rules()], **options)
    answer = Answer[Any](id=result.pending.id, ok=True)
    result = await scene.through(lambda: runtime.resume(answer))
    assert (scene.counter, scene.bought, result.status) == (0, 0, Status.ERROR)
    assert result.error is not None
    assert "denied by slow: forbidden" in result.error.message
    assert (
        result.error.detail == "wary: ask (let it pass?); quick: allow; slow: deny (forbidden); slower: allow"
    )


async def test_inside_a_sub_agent() -> None:
    scene = Scene()
    model = MockModel([call("task", agent="w", prompt="send it"), say("end")])
    lead = Agent("p", does="leads", team=[scene.worker()], model=model)
    runtime = Runtime(lead, input_guardrails=scene.rules(), clock=scene.clock)
    result = await scene.through(lambda: runtime.run("go"))
    assert (scene.counter, scene.bought, result.status) == (0, 0, Status.DONE)
    (said,) = [m.text for m in runtime.transcript("root/p.1") if m.role == "tool"]
    assert said == "[error] GuardrailDenied: The prompt was denied by slow: forbidden."
    (settled,) = [e for e in runtime.events() if e.kind == "settled" and e.handle == "root/p.1/w.1"]
    check(settled.error)
