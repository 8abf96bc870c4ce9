"""Servers over streamable HTTP, at a real address: they come and go, ask, refuse, and tell nobody the token."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import anyio
import pytest
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from overt import Answer, Request, Runtime, Status
from overt.sources.mcp import ServerUnavailable, ToolServer
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.sources.http_kit import Site
from tests.sources.kit import agent, ran, said

pytestmark = pytest.mark.anyio
ONE = pytest.mark.parametrize("anyio_backend", ["asyncio"])
TOKEN = "tok-4711-of-mine"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


hanging = threading.Event()


class Seat(BaseModel):
    row: int


def application() -> Starlette:
    server = MCPServer("web")

    @server.tool()
    async def whoami(ctx: Context[Any]) -> str:
        """Say who calls."""
        return (ctx.headers or {}).get("authorization", "nobody")

    @server.tool()
    async def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    @server.tool()
    async def where(
        name: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], ctx: Context[Any]
    ) -> str:
        """Say where the header sends it."""
        return (ctx.headers or {}).get("mcp-param-region", "nowhere")

    @server.tool()
    async def hang() -> str:
        """Say nothing."""
        hanging.set()
        await anyio.sleep_forever()
        return ""

    @server.tool()
    async def seat(ctx: Context[Any]) -> str:
        """Book a seat."""
        found = await ctx.elicit("Which row?", Seat)
        return f"row {found.data.row}" if found.action == "accept" else found.action

    return server.streamable_http_app()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(application) as site:
        yield site


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_tools_over_http(site: Site, protocol: Any) -> None:
    async with ToolServer.http("web", url=site.url, headers=HEADERS, protocol=protocol) as server:
        tools = await server.tools()
        script = [[call("web__shout", text="hey"), call("web__whoami")], say("end")]
        result, runtime = await ran(script, tools)
        loud, who = said(runtime)
        assert loud.text == "HEY"
        # The server has got the header, and gave it away: it is hidden where the journal begins.
        assert who.text == "«redacted»"
        assert TOKEN not in result.model_dump_json() + repr(runtime.transcript(result.handle))
        assert repr(server) == f"<ToolServer 'web': {site.url}>"


@ONE
async def test_arguments_that_are_headers_too(site: Site) -> None:
    """A new session knows of them only once it has listed the tools; the server refuses the first try."""
    async with ToolServer.http("web", url=site.url) as server:
        tools = await server.tools()
        for _ in range(2):
            _, runtime = await ran([call("web__where", name="eu"), say("end")], tools)
            assert [message.text for message in said(runtime)] == ["eu"]
            await server.close()


@ONE
async def test_a_server_that_goes_and_comes_again(site: Site) -> None:
    server = ToolServer.http("web", url=site.url, protocol="legacy", connect_timeout=10)
    async with server:
        tools = await server.tools()
        _, runtime = await ran([call("web__shout", text="one"), say("end")], tools)
        assert [message.text for message in said(runtime)] == ["ONE"]
        # Another process: it knows nothing of the session, and says so before it does anything.
        site.stop()
        site.start()
        _, runtime = await ran([call("web__shout", text="two"), say("end")], tools)
        assert [message.text for message in said(runtime)] == ["TWO"]
        site.stop()
        result, runtime = await ran([call("web__shout", text="three"), say("end")], tools)
        assert result.status is Status.DONE
        (down,) = said(runtime)
        assert down.is_error
        assert down.text == f"MCP server 'web': {site.url} cannot be reached. The call was not made."
        site.start()
        _, runtime = await ran([call("web__shout", text="four"), say("end")], tools)
        assert [message.text for message in said(runtime)] == ["FOUR"]


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@ONE
async def test_a_server_that_dies_in_a_call(site: Site, protocol: Any) -> None:
    hanging.clear()
    async with ToolServer.http("web", url=site.url, protocol=protocol) as server:
        runtime = Runtime(agent([call("web__hang"), say("end")], await server.tools()), store=MemoryStore())
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            assert await run_sync(hanging.wait, 20)
            await run_sync(site.stop)
        (died,) = said(runtime)
        assert died.is_error
        assert died.text.startswith("MCP server 'web': ")
        assert died.text.endswith("Whether the call took effect is not known: look before you repeat it.")
        site.start()


@ONE
async def test_a_question_over_http(site: Site) -> None:
    async with ToolServer.http("web", url=site.url, protocol="legacy") as server:
        runtime = Runtime(agent([call("web__seat"), say("end")], await server.tools()), store=MemoryStore())
        request = (await runtime.run("go")).pending
        assert isinstance(request, Request)
        assert request.answer_schema is not None
        assert request.answer_schema["required"] == ["row"]
        await runtime.resume(Answer[Any](id=request.id, ok=True, data={"row": 7}))
        assert [message.text for message in said(runtime)] == ["row 7"]


async def refuses(request: HttpRequest) -> Response:
    return PlainTextResponse(f"{request.headers['authorization']} is no good", 401)


@ONE
async def test_a_refused_token_is_told_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    route = Route("/mcp", refuses, methods=["GET", "POST", "DELETE"])
    with Site(lambda: Starlette(routes=[route])) as site:
        url = site.url.replace("127", "ada:sesame-77@127") + "?api_key=key-12345&page=2"
        server = ToolServer.http("web", url=url, headers=HEADERS)
        with pytest.raises(ServerUnavailable) as raised:
            await server.tools()
    assert str(raised.value) == "MCP server 'web': it answered HTTP 401"
    assert site.url in repr(server)
    everything = "\n".join([caplog.text, str(raised.value), repr(raised.value.__context__), repr(server)])
    assert "HTTP Request: POST" in everything, "the client logs what it does"
    for secret in (TOKEN, "sesame-77", "key-12345"):
        assert secret not in everything


@ONE
async def test_an_address_nobody_is_at() -> None:
    site = Site(application)
    with pytest.raises(ServerUnavailable, match=f"MCP server 'web': {site.url} cannot be reached"):
        await ToolServer.http("web", url=site.url).tools()
