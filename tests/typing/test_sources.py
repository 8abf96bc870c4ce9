"""What type checkers see of tools from elsewhere. Checked, never run: each mistake carries its code."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from overt import Agent
from overt.sources.mcp import AgentServer, MCPTool, ToolServer, serve

if TYPE_CHECKING:

    class Db:
        """Deps of an agent."""

    async def fits_every_agent(server: ToolServer) -> None:
        tools = await server.tools(only={"a"}, on_replay={"a": "reuse"})
        assert_type(tools, list[MCPTool])
        assert_type(Agent("a", does="d", tools=tools), Agent[None, str])
        assert_type(Agent("a", does="d", tools=[*tools], deps_type=Db), Agent[Db, str])
        await server.tools(on_replay="twice")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def serving(agent: Agent[Db, int]) -> None:
        assert_type(serve(agent, deps=Db(), asks=["input"]), AgentServer)
        serve(agent, deps=3)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
        ToolServer.stdio("a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
