"""B058: names of other people's tools are made valid, apart, the same in every process, and found again."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from overt import Agent, DefinitionError
from overt.sources.mcp import ToolServer
from overt.sources.mcp.names import tool_name
from overt.testing import MockModel, call, say

VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAMES = ["a.b", "a_b", "a b", "a__b", "_a", "x" * 200, "x" * 201, "é", "ü", "日本", "a/b", "A.b", "a\nb", "-"]
SERVERS = ["my server", "my_server", "my_server_", "my", "my__server", "my.server", "x" * 100, "é"]


def test_names_are_valid_and_apart_across_servers() -> None:
    found = {(server, name): tool_name(server, name) for server, name in itertools.product(SERVERS, NAMES)}
    assert all(VALID.fullmatch(name) for name in found.values())
    assert len(set(found.values())) == len(found)
    bare = [tool_name("s", name, "") for name in NAMES]
    assert all(map(VALID.fullmatch, bare))
    assert len(set(bare)) == len(bare)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("files", "read_file", "files__read_file"),
        ("files", "a.b", "files__a_b_2c903068"),
        ("my server", "read", "my_server__read_bb46d4bc"),
        ("files", "x" * 200, "files__" + "x" * 48 + "_213efe4b"),
    ],
)
def test_names_are_the_same_in_every_process_and_release(server: str, tool: str, name: str) -> None:
    assert tool_name(server, tool) == name


@pytest.mark.anyio
async def test_each_call_reaches_the_tool_it_names() -> None:
    called: list[str] = []

    async def on_list(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(
            tools=[Tool(name=name, input_schema={"type": "object"}) for name in [*NAMES, ""]]
        )

    async def on_call(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        called.append(params.name)
        return CallToolResult(content=[TextContent(text="done")])

    async with ToolServer.in_process(
        "my server", server=Server("s", on_list_tools=on_list, on_call_tool=on_call)
    ) as server:
        with pytest.raises(DefinitionError, match="'my server': the name of tool 15 of 15 is empty"):
            await server.tools()
        tools = await server.tools(exclude=[""])
        script: Any = [[call(tool.name) for tool in tools], say("end")]
        await Agent("w", does="works", tools=tools, model=MockModel(script)).run("go")
    assert sorted(called) == sorted(NAMES)
