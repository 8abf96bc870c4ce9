"""Whole runs over both adapters for OpenAI: suspended and stored in between, streamed, with typed output."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel
from tests.models.openai_fake import KEY, THOUGHT, Body, OpenAIWire, Provider
from tests.models.responses_fake import ResponsesWire, reasoning

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.models import OpenAIModel, OpenAIResponsesModel
from overt.stores import SQLiteStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

Wire = OpenAIWire | ResponsesWire
on_both = pytest.mark.parametrize("wire", [OpenAIWire(), ResponsesWire()], ids=["chat", "responses"])


class Turns(Provider):
    """Answers one request after another with the next reply."""

    def __init__(self, wire: Wire, *cases: str, stream: bool = False) -> None:
        super().__init__(None)
        self.wire = wire
        self.cases = list(cases)
        self.streams = stream

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        case = self.cases.pop(0)
        self.reply = Body(self.wire.events(case)) if self.streams else self.wire.body(case)
        return super().handle(request)


def model(provider: Turns, **options: Any) -> OpenAIModel | OpenAIResponsesModel:
    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(provider.handle))
    client = AsyncOpenAI(api_key=KEY, http_client=http, **options)
    kind = OpenAIModel if isinstance(provider.wire, OpenAIWire) else OpenAIResponsesModel
    return kind("gpt-5-mini", client=client)


def agent(provider: Turns, **options: Any) -> Agent[None, str]:
    @tool
    async def look(ctx: ToolContext[None], at: str) -> str:
        """Look."""
        answer = await ctx.ask(f"look at {at}?")
        return "a pawn" if answer.ok else "nothing"

    return Agent("scout", does="looks", tools=[look], model=model(provider, **options))


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(folder / "runs.db")
    try:
        yield store
    finally:
        await store.close()


async def read(runtime: Runtime[Any]) -> None:
    async with runtime.stream("go") as stream:
        async for _ in stream:
            pass


def thoughts(body: dict[str, Any]) -> list[object]:
    """What of a request is reasoning of an earlier reply."""
    if "input" in body:
        return [item for item in body["input"] if item.get("type") == "reasoning"]
    return [item["reasoning_content"] for item in body["messages"] if "reasoning_content" in item]


@on_both
@pytest.mark.parametrize("same", [True, False], ids=["same host", "another host"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_b049_reasoning_goes_back_after_a_suspension(
    wire: Wire, same: bool, stream: bool, tmp_path: Path
) -> None:
    first = Turns(wire, "reasoning_call", stream=stream)
    async with opened(tmp_path) as store:
        runtime = Runtime(agent(first), run_id="r", store=store, resume_policy=ResumePolicy.CONTINUE)
        if stream:
            await read(runtime)
            result = runtime.result()
        else:
            result = await runtime.run("go")
        assert result.status is Status.PENDING
    second = Turns(wire, "text")
    async with opened(tmp_path) as store:
        host = {} if same else {"base_url": "https://other.example/v1"}
        again = await Runtime.open(agent(second, **host), "r", store=store)
        done = await again.resume([Answer(id=item.id, ok=True) for item in result.pendings])
    assert (done.status, done.text) == (Status.DONE, "Hello, wörld 🎉")
    assert done.usage.input_tokens == 200
    written = THOUGHT if isinstance(wire, OpenAIWire) else reasoning(THOUGHT)
    assert thoughts(second.bodies[0]) == ([written] if same else [])
    assert "a pawn" in str(second.bodies[0])


class Found(BaseModel):
    value: str


@on_both
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_typed_output_comes_by_the_schema(wire: Wire, stream: bool) -> None:
    provider = Turns(wire, "structured", stream=stream)
    scout = Agent("scout", does="looks", output_type=Found, model=model(provider))
    runtime = Runtime(scout)
    if stream:
        await read(runtime)
    else:
        await runtime.run("go")
    assert runtime.result().unwrap() == Found(value="A1")
    (body,) = provider.bodies
    assert "tools" not in body
    form = body["text"]["format"] if "text" in body else body["response_format"]["json_schema"]
    assert (form["name"], form["schema"]["required"], "strict" in form) == ("output", ["value"], False)
