"""What models, their names and MCP servers raise. No provider is asked: a client without a key, and one that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx2
import pytest
from tests.contract.kit import clerk, promise, script

from overt import Agent, ModelDelta, ModelRequest, ModelResponse, UserMessage
from overt.models import (
    AnthropicModel,
    GoogleModel,
    OpenAIModel,
    OpenAIResponsesModel,
    PydanticAIModel,
    register,
    resolve,
)
from overt.sources.mcp import AgentServer, MCPTool, ToolServer, serve

REQUEST = ModelRequest(messages=(UserMessage(text="go"),))
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY")
WRONG: Any = 3


class Asked(Protocol):
    """What all adapters have."""

    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]: ...


@contextmanager
def no_key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for key in KEYS:
            patch.delenv(key, raising=False)
        yield


FAILS = httpx2.MockTransport(lambda _: httpx2.Response(500, json={"error": {"message": "down"}}))


def openai_client() -> Any:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    return AsyncOpenAI(api_key="k", http_client=DefaultAsyncHttpxClient(transport=FAILS))


def failing_anthropic() -> Asked:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    client = AsyncAnthropic(api_key="k", http_client=DefaultAsyncHttpxClient(transport=FAILS))
    return AnthropicModel("m", client=client)


def failing_google() -> Asked:
    from tests.models.google_fake import client

    return GoogleModel("m", client=client(FAILS))


def failing_pydantic_ai() -> Asked:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=openai_client())
    return PydanticAIModel(OpenAIChatModel("m", provider=provider))


# Each with one that is wrong from the start, one that has no key, and one whose provider fails.
Make = Callable[[], Asked]
ADAPTERS: dict[str, tuple[Make, Make, Make]] = {
    "AnthropicModel": (lambda: AnthropicModel(""), lambda: AnthropicModel("m"), failing_anthropic),
    "GoogleModel": (lambda: GoogleModel(""), lambda: GoogleModel("m"), failing_google),
    "OpenAIModel": (
        lambda: OpenAIModel(""),
        lambda: OpenAIModel("m"),
        lambda: OpenAIModel("m", client=openai_client()),
    ),
    "OpenAIResponsesModel": (
        lambda: OpenAIResponsesModel(""),
        lambda: OpenAIResponsesModel("m"),
        lambda: OpenAIResponsesModel("m", client=openai_client()),
    ),
    "PydanticAIModel": (
        lambda: PydanticAIModel(""),
        lambda: PydanticAIModel("openai:m"),
        failing_pydantic_ai,
    ),
}


def keyless(make: Make, use: Callable[[Any], object]) -> Callable[[], object]:
    def provoke() -> object:
        with no_key():
            return use(make())

    return provoke


def generating(make: Make) -> Callable[[], Any]:
    async def provoke() -> object:
        with no_key():
            return await make().generate(REQUEST)

    return provoke


def streaming(make: Make) -> Callable[[], Any]:
    async def provoke() -> None:
        with no_key():
            async for _ in make().stream(REQUEST):
                pass

    return provoke


for name, (wrong, without_key, failing) in ADAPTERS.items():
    model = f"overt.models.{name}"
    promise(f"{model} DefinitionError")(wrong)
    promise(f"{model}.check DefinitionError")(keyless(without_key, lambda model: model.check()))
    promise(f"{model}.generate DefinitionError")(generating(without_key))
    promise(f"{model}.stream DefinitionError")(streaming(without_key))
    promise(f"{model}.generate ModelError")(generating(failing))
    promise(f"{model}.stream ModelError")(streaming(failing))
bridge = ADAPTERS["PydanticAIModel"][1]
promise("overt.models.PydanticAIModel.provider DefinitionError")(
    keyless(bridge, lambda model: model.provider)
)
promise("overt.models.PydanticAIModel.structured_output DefinitionError")(
    keyless(bridge, lambda model: model.structured_output)
)
promise("overt.models.register DefinitionError")(lambda: register("no:name", lambda name: script()))
promise("overt.models.resolve DefinitionError")(lambda: resolve("nobody:m"))

# ------------------------------------------------------------------ MCP

with_deps = Agent("clerk", does="d", deps_type=int)


def agent_server(agent: Agent[Any, Any], **options: Any) -> AgentServer:
    return AgentServer(agent, name=None, asks=None, options=options)


def served(agent: Agent[Any, Any], **options: Any) -> AgentServer:
    return serve(agent, **options)


for path, made in (("AgentServer", agent_server), ("serve", served)):

    def serving(made: Any, agent: Agent[Any, Any], **options: Any) -> Callable[[], object]:
        return lambda: made(agent, **options)

    promise(f"overt.sources.mcp.{path} DefinitionError")(serving(made, clerk, run_id="r"))
    promise(f"overt.sources.mcp.{path} MissingDeps")(serving(made, with_deps, model=script()))
    promise(f"overt.sources.mcp.{path} NoModel")(serving(made, clerk))

nowhere = ToolServer.stdio("s", command="/nowhere/at/all")
SERVER: dict[str, Any] = {
    "connect_timeout": 0, "call_timeout": 1, "max_result_chars": 1, "protocol": "auto", "one_at_a_time": False,
}  # fmt: skip
promise("overt.sources.mcp.ToolServer DefinitionError")(lambda: ToolServer("s", object(), **SERVER))
promise("overt.sources.mcp.ToolServer.stdio DefinitionError")(lambda: ToolServer.stdio("s", command=""))
promise("overt.sources.mcp.ToolServer.http DefinitionError")(lambda: ToolServer.http("s", url="ftp://s"))
promise("overt.sources.mcp.ToolServer.in_process DefinitionError")(
    lambda: ToolServer.in_process("s", server=WRONG, call_timeout=0)
)
promise("overt.sources.mcp.ToolServer.tools DefinitionError")(lambda: nowhere.tools(on_replay=WRONG))
promise("overt.sources.mcp.ToolServer.tools ServerUnavailable")(lambda: nowhere.tools())
promise("overt.sources.mcp.ToolServer.tools_sync ServerUnavailable")(lambda: nowhere.tools_sync())


@promise("overt.sources.mcp.ToolServer.tools_sync UsageError")
async def in_a_loop() -> object:
    return nowhere.tools_sync()


@promise("overt.sources.mcp.MCPTool DefinitionError")
def with_a_schema_that_is_none() -> object:
    import mcp_types

    tool = mcp_types.Tool(name="t", input_schema={"type": 3})
    return MCPTool(tool, name="t", caller=nowhere, on_replay="rerun", timeout=1)
