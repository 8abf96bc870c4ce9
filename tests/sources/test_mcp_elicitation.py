"""What servers ask in the middle of a call: it parks the run, survives a restart, and is answered from elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from overt import Answer, Request, ResumePolicy, Runtime, Status, TaskResult
from overt.errors import InvalidAnswer
from overt.sources.mcp import ToolServer
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import call, say
from tests.sources.kit import Fake, agent, ran, said

pytestmark = pytest.mark.anyio
ONE = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Fake]:
    async with Fake(tmp_path, env={"VISITED": str(tmp_path / "visited")}) as fake:
        yield fake


def yes(request: Request | None, data: object = None) -> Answer[Any]:
    assert request is not None
    return Answer[Any](id=request.id, ok=True, data=data)


async def parked(fake: Fake, tool: str, store: SQLiteStore, run_id: str = "r") -> TaskResult[str]:
    """Run up to a question, and let the server's process go."""
    tools = await fake.server.tools()
    worker = agent([call(f"fake__{tool}"), say("end")], tools)
    result, _ = await worker.run("go", store=store, run_id=run_id, resume_policy=ResumePolicy.CONTINUE)
    assert result.status is Status.PENDING, result
    await fake.server.close()
    return result


async def opened(fake: Fake, tool: str, store: SQLiteStore, run_id: str = "r") -> Runtime[str]:
    worker = agent([call(f"fake__{tool}"), say("end")], await fake.server.tools())
    return await Runtime.open(worker, run_id, store=store)


async def test_a_form_parks_the_run_and_is_answered_in_another_runtime(fake: Fake, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    result = await parked(fake, "ask", store)
    request = result.pending
    assert request is not None
    assert (request.kind, request.prompt, request.url) == ("input", "Who is it for?", None)
    assert request.answer_schema is not None
    assert request.answer_schema["required"] == ["name"]
    assert request.data["mcp"] == {"server": "fake", "tool": "ask"}
    # The call was withdrawn, and the question with it: nothing waits while the run is parked.
    assert [line.split()[0] for line in fake.happened()[-3:]] == ["cancelled", "no", "ends"]
    runtime = await opened(fake, "ask", store)
    with pytest.raises(InvalidAnswer) as raised:
        await runtime.resume(yes(request, {"name": 7, "age": -1}))
    assert len(raised.value.places) == 2
    result = await runtime.resume(yes(request, {"name": "Ada", "age": 36, "more": 1}))
    assert result.status is Status.DONE
    assert json.loads(said(runtime)[0].text) == [{"action": "accept", "content": {"name": "Ada", "age": 36}}]
    keys = [line.split()[-1] for line in fake.happened() if line.startswith("call ask")]
    assert len(keys) == 2, "made again"
    assert len(set(keys)) == 1, "under the same key"
    await store.close()


@ONE
async def test_a_url_is_an_authorization(fake: Fake, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    request = (await parked(fake, "ask_url", store)).pending
    assert request is not None
    assert (request.kind, request.prompt, request.url) == (
        "authorization",
        "Log in.",
        "https://login.example/x",
    )
    assert request.answer_schema is None
    runtime = await opened(fake, "ask_url", store)
    await runtime.resume(yes(request))
    assert json.loads(said(runtime)[0].text) == [{"action": "accept", "content": None}]
    await store.close()


@ONE
@pytest.mark.parametrize(
    ("reason", "action"),
    [("declined", "decline"), ("not now", "decline"), ("cancelled", "cancel"), ("expired", "cancel")],
)
async def test_a_refusal_is_a_decline_or_a_cancel(fake: Fake, reason: str, action: str) -> None:
    async def wait_for(request: Request) -> Answer[Any]:
        return Answer[Any](id=request.id, ok=False, reason=reason)

    _, runtime = await ran([call("fake__ask"), say("end")], await fake.server.tools(), wait_for=wait_for)
    assert json.loads(said(runtime)[0].text) == [{"action": action, "content": None}]


async def test_the_nth_question_gets_the_nth_answer(fake: Fake) -> None:
    tools = await fake.server.tools()
    store = MemoryStore()
    runtime = Runtime(agent([call("fake__ask_twice"), say("end")], tools), store=store)
    result = await runtime.run("go")
    result = await runtime.resume(yes(result.pending, {"name": "Ada"}))
    assert result.pending is not None
    assert result.pending.prompt == "Really?"
    assert (result.pending.kind, result.pending.answer_schema) == ("approval", None), "a form without a field"
    result = await runtime.resume(Answer[Any](id=result.pending.id, ok=False, reason="declined"))
    assert result.status is Status.DONE
    assert json.loads(said(runtime)[0].text) == [
        {"action": "accept", "content": {"name": "Ada"}},
        {"action": "decline", "content": None},
    ]


@ONE
async def test_a_server_that_wants_somebody_to_log_in_first(fake: Fake, tmp_path: Path) -> None:
    tools = await fake.server.tools()
    runtime = Runtime(agent([call("fake__url_first"), say("end")], tools), store=MemoryStore())
    request = (await runtime.run("go")).pending
    assert request is not None
    assert (request.kind, request.url) == ("authorization", "https://login.example/")
    (tmp_path / "visited").touch()
    await runtime.resume(yes(request))
    assert [message.text for message in said(runtime)] == ["welcome"]
    (tmp_path / "visited").unlink()

    async def never(request: Request) -> Answer[Any]:
        return Answer[Any](id=request.id, ok=False, reason="declined")

    _, refused = await ran([call("fake__url_first"), say("end")], tools, wait_for=never)
    assert said(refused)[0].text == (
        "MCP server 'fake': it wants somebody to go to an address first, and they did not"
    )


@ONE
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("ask_nested", "field 'where' of the requested schema is no simple value"),
        ("ask_javascript", "the URL is no http or https address people could go to"),
    ],
)
async def test_what_is_asked_of_nobody(fake: Fake, tool: str, reason: str) -> None:
    result, runtime = await ran([call(f"fake__{tool}"), say("end")], await fake.server.tools())
    assert result.status is Status.DONE
    assert said(runtime)[0].text == f"not asked: this is not asked of anybody: {reason}"
    assert said(runtime)[0].is_error


async def test_a_question_belongs_to_the_call_that_is_left(fake: Fake) -> None:
    """Where several calls are under way, it waits until the others are through."""

    async def wait_for(request: Request) -> Answer[Any]:
        call = request.data["call"]
        assert isinstance(call, dict)
        assert call["tool"] == "fake__ask"
        return yes(request, {"name": "Ada"})

    script = [[call("fake__echo", text="1"), call("fake__ask"), call("fake__echo", text="2")], say("end")]
    _, runtime = await ran(script, await fake.server.tools(), wait_for=wait_for)
    first, asked, second = said(runtime)
    assert (first.text, second.text) == ("1", "2")
    assert json.loads(asked.text)[0]["action"] == "accept"


async def test_questions_of_several_calls_at_once_are_not_mixed_up(fake: Fake) -> None:
    async def wait_for(request: Request) -> Answer[Any]:
        return yes(request, {"name": "Ada"})

    both = [call("fake__meet"), call("fake__meet")]
    _, runtime = await ran([both, both, say("end")], await fake.server.tools(), wait_for=wait_for)
    one, two, three, four = said(runtime)
    for given_up in (one, two):
        assert given_up.is_error
        assert "it asked questions in several calls at once" in given_up.text
        assert given_up.metadata["mcp"]["outcome"] == "unknown"
    # From then on they go one at a time.
    for answered in (three, four):
        assert json.loads(answered.text) == [{"action": "accept", "content": {"name": "Ada"}}]


async def test_calls_that_go_one_at_a_time_from_the_beginning(tmp_path: Path) -> None:
    async def wait_for(request: Request) -> Answer[Any]:
        return yes(request, {"name": "Ada"})

    async with Fake(tmp_path, one_at_a_time=True) as fake:
        both = [call("fake__ask"), call("fake__ask_twice")]
        _, runtime = await ran([both, say("end")], await fake.server.tools(), wait_for=wait_for)
        assert [len(json.loads(message.text)) for message in said(runtime)] == [1, 2]


# ------------------------------------------------------------------ since 2026-07-28 it is a result


def asking(entered: list[str]) -> Server[Any]:
    """A server whose calls end with what it wants to know, and are made again with that."""

    async def on_list(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(
            tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("book", "samples")]
        )

    async def on_call(
        ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        entered.append(params.request_state or "anew")
        if params.name == "samples":
            sample = CreateMessageRequest(params=CreateMessageRequestParams(messages=[], max_tokens=1))
            return InputRequiredResult(input_requests={"s": sample})
        if params.request_state is None:
            return InputRequiredResult(request_state="wait")
        if params.input_responses is None:
            asks: dict[str, Any] = {
                key: ElicitRequest(params=ElicitRequestFormParams(message=key, requested_schema=FORM))
                for key in ("b", "a")
            }
            return InputRequiredResult(input_requests=asks, request_state="asked")
        given = {
            key: reply.content
            for key, reply in params.input_responses.items()
            if isinstance(reply, ElicitResult)
        }
        return CallToolResult(content=[TextContent(text=json.dumps(given, sort_keys=True))])

    return Server("asking", on_list_tools=on_list, on_call_tool=on_call)


FORM = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}


async def test_questions_that_are_results() -> None:
    entered: list[str] = []
    async with ToolServer.in_process("hotel", server=asking(entered)) as server:
        runtime = Runtime(agent([call("hotel__book"), say("end")], await server.tools()), store=MemoryStore())
        first = (await runtime.run("go")).pending
        assert first is not None
        assert first.prompt == "a", "in an order of ours"
        second = (await runtime.resume(yes(first, {"day": 1}))).pending
        assert second is not None
        assert second.prompt == "b"
        result = await runtime.resume(yes(second, {"day": 2}))
        assert result.status is Status.DONE
        assert said(runtime)[0].text == '{"a": {"day": 1}, "b": {"day": 2}}'
        assert entered == ["anew", "wait", "anew", "wait", "anew", "wait", "asked"]
        _, sampled = await ran([call("hotel__samples"), say("end")], await server.tools())
        assert said(sampled)[0].text == (
            "MCP server 'hotel': it asks for sampling/createMessage, which is not supported"
        )


@ONE
async def test_calls_at_once_that_ask_since_2026() -> None:
    async def wait_for(request: Request) -> Answer[Any]:
        return yes(request, {"day": 3 if request.prompt == "a" else 4})

    async with ToolServer.in_process("hotel", server=asking([])) as server:
        with anyio.fail_after(20):
            script = [[call("hotel__book"), call("hotel__book")], say("end")]
            _, runtime = await ran(script, await server.tools(), wait_for=wait_for)
        assert {message.text for message in said(runtime)} == {'{"a": {"day": 3}, "b": {"day": 4}}'}
