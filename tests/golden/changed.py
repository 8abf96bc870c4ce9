"""Golden runs of code that changed under them: names, arguments, a question, and what was gone on with all the same.

As in `runs`, agents stay as they are, those of the earlier release too.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from overt import Agent, Answer, Request, ResumePolicy, Runtime, ToolContext, Upgrade, tool
from overt.stores import Store
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore

THEN: Script = {
    "porter": [[call("fetch", what="tea"), call("task", agent="smith", prompt="shoe it")], say("carried")],
    "smith": [call("shoe", horses=2), say("shod")],
}
NOW: Script = {
    "porter": [
        [call("bring", what="tea"), call("task", agent="farrier", prompt="shoe it")],
        say("carried"),
    ],
    "farrier": [call("shoe", hooves=8), say("shod")],
}


async def _fetch(what: str) -> str:
    """Fetch something."""
    return f"{what}, fetched"


async def _bring(what: str, to: str = "the house") -> str:
    """Bring something."""
    return f"{what}, brought to {to}"


async def _shoe_horses(ctx: ToolContext[None], horses: int) -> str:
    """Shoe horses."""
    answer = await ctx.ask("Shoe them?", data={"horses": horses}, answer_type=bool)
    return f"{horses} horses: {answer.data}"


async def _shoe_hooves(ctx: ToolContext[None], hooves: int) -> str:
    """Shoe horses."""
    answer = await ctx.ask("Shoe the hooves?", data={"hooves": hooves}, answer_type=bool)
    return f"{hooves} hooves: {answer.data}"


def porter(fetching: Any, *team: Agent) -> Agent:
    return Agent("porter", does="Carries.", tools=[fetching], team=team)


PORTER_THEN = porter(
    tool(_fetch, name="fetch", on_replay="reuse"),
    Agent("smith", does="Shoes horses.", tools=[tool(_shoe_horses, name="shoe")]),
)
PORTER = porter(
    tool(_bring, name="bring", on_replay="reuse"),
    Agent("farrier", does="Shoes horses.", tools=[tool(_shoe_hooves, name="shoe")]),
)
PORTER_ALONE = Agent("porter", does="Carries.")


def in_hooves(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
    horses = arguments["horses"]
    assert isinstance(horses, int)
    return {"hooves": 4 * horses}


def about_hooves(request: Request) -> Request:
    horses = request.data["horses"]
    assert isinstance(horses, int)
    return request.model_copy(update={"prompt": "Shoe the hooves?", "data": {"hooves": 4 * horses}})


UPGRADE = Upgrade(
    tools={"fetch": "bring"}, agents={"smith": "farrier"}, arguments=in_hooves, questions=about_hooves
)


def then(store: Store) -> dict[str, Any]:
    return {"store": store, "model": MockModel(THEN), "clock": VirtualClock()}


def now(store: Store) -> dict[str, Any]:
    """What the run is opened with once it has been taken by the new code: it is in the journal."""
    return {"store": store, "model": MockModel(NOW), "clock": VirtualClock()}


async def upgraded(store: Store, run_id: str, policy: ResumePolicy) -> None:
    """Answered by the new code, which dies: on the way back through the parent, or right after the question fits."""
    runtime: Runtime[Any] = Runtime(PORTER_THEN, run_id=run_id, resume_policy=policy, **then(store))
    result = await runtime.run("go")
    assert result.pending is not None
    crashing = CrashingStore(store, crash_at=CRASH[policy])
    again = await Runtime.open(PORTER, run_id, upgrade=UPGRADE, **now(crashing))
    try:
        await again.resume(Answer(id=result.pending.id, ok=True, data=True, by="ann"))
    except* Crashed:
        pass


CRASH = {ResumePolicy.REWIND: 7, ResumePolicy.CONTINUE: 4}


async def accepted(store: Store) -> None:
    """Its team and its tool are gone, and it is gone on with all the same; taken, and nothing set going."""
    runtime: Runtime[Any] = Runtime(PORTER_THEN, run_id="accepted", **then(store))
    await runtime.run("go")
    again = await Runtime.open(PORTER_ALONE, "accepted", on_drift="accept", **now(store))
    await again._driver.acquire()
    await again._driver.release()
