"""An agent as an MCP server: what clients get of a run, are asked for it, and cannot do with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from pydantic import BaseModel

from overt import (
    Agent,
    Answer,
    Budget,
    DefinitionError,
    NoModel,
    Request,
    ResumePolicy,
    Runtime,
    Status,
    ToolContext,
    require_approval,
    tool,
)
from overt.sources.mcp import AgentServer, ToolServer, serve
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from tests.sources.http_kit import Site
from tests.sources.kit import ran, said

pytestmark = pytest.mark.anyio
ONE = pytest.mark.parametrize("anyio_backend", ["asyncio"])
BOTH = pytest.mark.parametrize("mode", ["auto", "legacy"])
CONTINUE = ResumePolicy.CONTINUE


class Total(BaseModel):
    cents: int


class Who(BaseModel):
    name: str
    age: int | None = None


@tool(on_replay="reuse")
async def refund(ctx: ToolContext, order: str, cents: int) -> str:
    """Pay money back; somebody is asked first."""
    answer = await ctx.ask(f"Refund {cents}?", kind="approval")
    return f"paid, says {answer.by}" if answer.ok else f"not paid: {answer.reason}"


@tool
async def who(ctx: ToolContext) -> str:
    """Ask who it is."""
    answer = await ctx.ask("Who is it?", answer_type=Who)
    return repr(answer.data)


def clerk(*script: Any, **options: Any) -> Agent[None, str]:
    steps = script or (call("refund", order="A1", cents=5), say("All done."))
    return Agent("the clerk", does="Refunds orders.", tools=[refund, who], model=MockModel(steps), **options)


class Person:
    """Who uses the client: what they are asked, and what they say to it."""

    def __init__(self, *replies: ElicitResult) -> None:
        self.replies = [*replies]
        self.asked: list[ElicitRequestParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self.replies.pop(0)


def accept(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


async def asks(
    server: AgentServer,
    person: Person | None = None,
    *,
    mode: str = "auto",
    name: str = "the_clerk",
    **arguments: Any,
) -> CallToolResult:
    """Call the agent as a client does."""
    async with Client(server.server, mode=mode, elicitation_callback=person) as client:
        return await client.call_tool(name, arguments or {"prompt": "go"})


@BOTH
async def test_a_finished_run(mode: str) -> None:
    steps: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(f"{progress:g} {message}")

    agent = Agent(
        "the clerk", does="Counts.", output_type=Total, model=MockModel([call("final_result", cents=500)])
    )
    server = serve(agent)
    async with Client(server.server, mode=mode) as client:
        one, two = (await client.list_tools()).tools
        assert (one.name, one.description, two.name) == ("the_clerk", "Counts.", "the_clerk_continue")
        assert one.input_schema["required"] == ["prompt"]
        assert one.output_schema is not None
        result = await client.call_tool("the_clerk", {"prompt": "count"}, progress_callback=note)
    assert not result.is_error
    found = result.structured_content
    assert found["run_id"].startswith("mcp-")
    del found["run_id"]
    assert found == {
        "status": "done",
        "text": '{"cents":500}',
        "output": {"cents": 500},
        "turns": 1,
        "total_tokens": 100,
    }
    assert [block.text for block in result.content if block.type == "text"] == ['{"cents":500}']
    assert steps == ["1 root/the clerk.1: turn 1"]
    assert await server._store.runs() == [], "kept nowhere, and done"


@ONE
async def test_what_is_not_done_is_an_error_with_its_reason() -> None:
    limited = await asks(serve(clerk(call("who"), say("x"), budget=Budget(max_turns=1)), asks=[]))
    assert limited.is_error
    assert (limited.structured_content["status"], limited.structured_content["limit"]) == (
        "incomplete",
        "maxTurns",
    )
    assert limited.structured_content["total_tokens"] == 100
    failed = await asks(serve(clerk(ValueError("the key sk-123456789 is no good"))))
    assert failed.is_error
    assert failed.structured_content["error"]["type"] == "ValueError"
    assert "sk-123456789" not in failed.model_dump_json()
    for arguments in ({"prompt": 1}, {"prompt": "x", "more": 1}):
        wrong = await asks(serve(clerk()), **arguments)
        assert wrong.is_error
        assert "invalid arguments for the_clerk" in wrong.content[0].text  # type: ignore[union-attr]  # text


@BOTH
async def test_what_a_run_asks_is_put_to_the_person(mode: str) -> None:
    script = (call("refund", order="A1", cents=5), call("who"), say("All done."))
    person = Person(accept(), accept(age=-1), accept(name="Ada", age=36))
    store = MemoryStore()
    result = await asks(serve(clerk(*script), store=store, resume_policy=CONTINUE), person, mode=mode)
    assert result.structured_content["status"] == "done", result
    approval, first, again = person.asked
    assert isinstance(approval, ElicitRequestFormParams)
    assert isinstance(again, ElicitRequestFormParams)
    assert approval.message == 'Refund 5?\n\nrefund({"cents":5,"order":"A1"})'
    assert approval.requested_schema["properties"] == {}
    assert again.requested_schema["properties"] == {"name": {"type": "string"}, "age": {"type": "integer"}}
    assert again.requested_schema["required"] == ["name"]
    assert again.message.startswith("That did not fit: ")
    assert "name" in again.message
    assert first.message == "Who is it?\n\nwho({})"
    runtime = await Runtime.open(clerk(*script), result.structured_content["run_id"], store=store)
    assert [message.text for message in said(runtime)] == ["paid, says mcp:mcp", "Who(name='Ada', age=36)"]


@BOTH
@ONE
@pytest.mark.parametrize("how", ["dismissed", "cannot", "mistaken", "not theirs"])
async def test_a_run_that_is_not_answered_stays_parked(how: str, mode: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    script = (call("who"), say("All done."))
    replies = {"dismissed": [ElicitResult(action="cancel")], "mistaken": [accept()] * 3}.get(how, [])
    person = None if how == "cannot" else Person(*replies)
    theirs = ["approval"] if how == "not theirs" else None
    result = await asks(serve(clerk(*script), store=store, asks=theirs), person, mode=mode)
    assert result.is_error
    found = result.structured_content
    assert (found["status"], found["text"]) == ("pending", "Waiting for an answer to: Who is it?")
    (request,) = map(Request.model_validate, found["requests"])
    assert request.prompt == "Who is it?"
    # In another process: by the person, by way of the second tool …
    server = serve(clerk(*script), store=store)
    other = Person(ElicitResult(action="cancel"), ElicitResult(action="decline"))
    for status in ("pending", "done"):
        went_on = await asks(server, other, mode=mode, name="the_clerk_continue", run_id=found["run_id"])
        assert went_on.structured_content["status"] == status
    # … or, where that is not theirs, by whoever has the store.
    again = await asks(serve(clerk(*script), store=store, asks=[]), person, mode=mode)
    run_id = again.structured_content["run_id"]
    runtime = await Runtime.open(clerk(*script), run_id, store=store)
    await runtime.resume(Answer[Any](id=runtime.pendings()[0].id, ok=True, data={"name": "Bo"}))
    went_on = await asks(server, name="the_clerk_continue", run_id=run_id)
    assert went_on.structured_content["output"] == "All done."
    await store.close()


@ONE
async def test_other_runs_of_the_store_are_none_of_a_clients_business() -> None:
    store = MemoryStore()
    await clerk(say("secret")).run("go", store=store, run_id="mine")
    for run_id in ("mine", "mcp-0000", 7):
        result = await asks(serve(clerk(), store=store), name="the_clerk_continue", run_id=run_id)
        assert result.is_error
        assert "secret" not in result.model_dump_json()


@ONE
async def test_what_only_the_host_can_mend_is_told_to_the_host(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    parked = await asks(serve(clerk(call("who")), store=store))
    run_id = parked.structured_content["run_id"]
    other = Agent("the clerk", does="Refunds orders.", model=MockModel(["x"]))
    result = await asks(serve(other, store=store), name="the_clerk_continue", run_id=run_id)
    assert result.content[0].text == f"run {run_id} cannot go on: SpecDrift"  # type: ignore[union-attr]  # text
    assert "tool 'who' of agent 'the clerk' is gone" in caplog.text


@ONE
async def test_verify_answer_has_the_last_word() -> None:
    async def verify(request: Request, answer: Answer[Any]) -> bool:
        assert answer.by == "mcp:mcp"
        return False

    person = Person(accept())
    result = await asks(serve(clerk(), verify_answer=verify), person)
    assert result.structured_content["status"] == "pending"
    assert "verify_answer refused" in result.structured_content["refused"]
    assert len(person.asked) == 1


@ONE
async def test_guardrails_and_urls_and_odd_schemas() -> None:
    @tool
    async def odd(ctx: ToolContext) -> str:
        """Ask for odd things."""
        days = await ctx.ask("Which days?", answer_type=dict[str, list[int]])
        one = await ctx.ask("How many?", answer_type=int)
        other = await ctx.ask("Another?", answer_type=int | None)
        went = await ctx.ask("Log in.", kind="authorization", url="https://login.example/")
        return f"{days.data} {one.data} {other.data} {went.ok}"

    agent = Agent(
        "odd one",
        does="Asks.",
        tools=[odd],
        guardrails=[require_approval("odd")],
        model=MockModel([call("odd"), say("end")]),
    )
    person = Person(accept(), accept(json='{"may": [1, 2]}'), accept(value=3), accept(), accept())
    store = MemoryStore()
    result = await asks(serve(agent, store=store), person, name="odd_one", mode="legacy")
    runtime = await Runtime.open(agent, result.structured_content["run_id"], store=store)
    assert [message.text for message in said(runtime)] == ["{'may': [1, 2]} 3 None True"]
    assert [getattr(params, "url", None) for params in person.asked][-1] == "https://login.example/"


async def test_overt_to_overt_with_a_restart_on_both_sides(tmp_path: Path) -> None:
    """The agent behind is asked for through the one in front, and no run is begun twice."""
    behind, front = SQLiteStore(tmp_path / "behind.db"), SQLiteStore(tmp_path / "front.db")

    def boss(tools: Any) -> Agent[None, str]:
        script = [call("office__the_clerk", prompt="refund A1"), say("Thanks.")]
        return Agent("boss", does="Delegates.", tools=tools, model=MockModel(script))

    async with ToolServer.in_process(
        "office", server=serve(clerk(), store=behind, resume_policy=CONTINUE).server
    ) as office:
        tools = await office.tools(only=["the_clerk"])
        assert tools[0].on_replay == "reuse"
        result, _ = await boss(tools).run("go", store=front, run_id="r", resume_policy=CONTINUE)
    assert result.pending is not None
    assert result.pending.prompt == 'Refund 5?\n\nrefund({"cents":5,"order":"A1"})'
    async with ToolServer.in_process(
        "office", server=serve(clerk(), store=behind, resume_policy=CONTINUE).server
    ) as office:
        runtime = await Runtime.open(boss(await office.tools(only=["the_clerk"])), "r", store=front)
        result = await runtime.resume(Answer[Any](id=result.pending.id, ok=True))
    assert result.status is Status.DONE
    assert said(runtime)[0].text == "All done."
    assert [run.status for run in await behind.runs()] == ["done"], "one run behind it"
    await behind.close()
    await front.close()


@ONE
async def test_over_http() -> None:
    with Site(lambda: serve(clerk(say("hello"))).http_app()) as site:
        async with ToolServer.http("clerk", url=site.url) as server:
            _, runtime = await ran([call("clerk__the_clerk", prompt="hi"), say("x")], await server.tools())
    assert said(runtime)[0].text == "hello"


@ONE
async def test_over_stdio(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "import anyio\n"
        "from overt import Agent\n"
        "from overt.sources.mcp import serve\n"
        "from overt.testing import MockModel\n"
        "print('a stray line')\n"
        "anyio.run(serve(Agent('a', does='d', model=MockModel(['hello']))).run_stdio)\n",
        "utf-8",
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    parameters = StdioServerParameters(command=sys.executable, args=[str(program)], env=env)
    with anyio.fail_after(50):
        async with Client(parameters) as client:
            result = await client.call_tool("a", {"prompt": "hi"})
    assert result.structured_content["text"] == "hello"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: serve(clerk(), run_id="r"), DefinitionError, "option 'run_id' cannot be the same"),
        (lambda: serve(clerk(), name="two words"), DefinitionError, "name has 1 to 64 characters"),
        (lambda: serve(clerk(), asks="input"), DefinitionError, "asks is a list"),
        (lambda: serve(clerk(), turns=3), DefinitionError, "unknown option 'turns'"),  # type: ignore[call-arg]  # untyped
        (lambda: serve(Agent("a", does="d")), NoModel, "has no model"),
    ],
)
def test_servers_that_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
