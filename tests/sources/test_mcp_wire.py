"""The reference servers of the protocol, as npm has them, in processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overt import Answer, Request, Runtime, Status
from overt.sources.mcp import ToolServer
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.npm import npm_program
from tests.sources.kit import agent, ran, said

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
async def everything() -> AsyncIterator[ToolServer]:
    command = npm_program("mcp-server-everything")
    async with ToolServer.stdio(
        "every thing", command=command, args=["stdio"], env={"API_TOKEN": "tok-4711"}
    ) as server:
        yield server


async def test_server_everything(everything: ToolServer) -> None:
    tools = {tool.original: tool for tool in await everything.tools()}
    assert len(tools) >= 13
    assert {tools[name].on_replay for name in ("echo", "get-sum", "get-env")} == {"rerun"}
    assert tools["trigger-elicitation-request"].on_replay == "reuse"
    script: list[Any] = [
        [
            call(tools["echo"].name, message="hello"),
            call(tools["get-sum"].name, a=2, b=3),
            call(tools["get-sum"].name, a="2", b=3),
            call(tools["get-tiny-image"].name),
            call(tools["get-structured-content"].name, location="Chicago"),
            call(tools["get-resource-links"].name, count=2),
            call(tools["get-resource-reference"].name, resourceType="Text", resourceId=1),
            call(tools["get-env"].name),
        ],
        say("end"),
    ]
    result, runtime = await ran(script, [*tools.values()])
    assert result.status is Status.DONE
    echo, total, wrong, image, structured, links, resource, env = said(runtime)
    assert echo.text == "Echo: hello"
    assert total.text == "The sum of 2 and 3 is 5."
    assert wrong.is_error
    assert 'a: "2" is not of type "number"' in wrong.text
    assert "[image, image/png, 4,033 bytes]" in image.text
    assert len(image.text) < 500
    assert set(structured.metadata["structured_content"]) == {"temperature", "conditions", "humidity"}
    assert links.text.count("[link, ") == 2
    assert "[resource, demo://resource/dynamic/text/1, text/plain]" in resource.text
    assert "API_TOKEN" in env.text
    assert "tok-4711" not in env.text


async def test_server_everything_asks(everything: ToolServer) -> None:
    (tool,) = await everything.tools(only=["trigger-elicitation-request"], prefix="")
    runtime = Runtime(agent([call(tool.name), say("end")], [tool]), store=MemoryStore())
    request = (await runtime.run("go")).pending
    assert isinstance(request, Request)
    assert (request.kind, request.data["mcp"]) == ("input", {"server": "every thing", "tool": tool.original})
    assert request.answer_schema is not None
    result = await runtime.resume(Answer[Any](id=request.id, ok=True, data={"name": "Ada", "check": True}))
    assert result.status is Status.DONE
    assert "- Name: Ada" in said(runtime)[0].text


async def test_server_filesystem(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("contents", "utf-8")
    server = ToolServer.stdio("files", command=npm_program("mcp-server-filesystem"), args=[str(tmp_path)])
    async with server:
        tools = {tool.original: tool for tool in await server.tools(exclude=["move_file"])}
        hints = {name: tools[name].on_replay for name in ("read_text_file", "create_directory", "write_file")}
        assert hints == {"read_text_file": "rerun", "create_directory": "rerun", "write_file": "reuse"}
        script: list[Any] = [
            call("files__read_text_file", path=str(tmp_path / "a.txt")),
            call("files__write_file", path=str(tmp_path / "b.txt"), content="written"),
            call("files__read_text_file", path="/etc/hostname"),
            say("end"),
        ]
        _, runtime = await ran(script, [*tools.values()])
    read, _, outside = said(runtime)
    assert read.text == "contents"
    assert (tmp_path / "b.txt").read_text("utf-8") == "written"
    assert outside.is_error
    assert "Access denied" in outside.text
