from collections.abc import Awaitable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import mcp_types
from mcp.server import MCPServer, Server
from starlette.applications import Starlette
from typing_extensions import TypeVar, Unpack

from overt import Agent, Options, OvertError, Tool, ToolResult

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)

class ServerUnavailable(OvertError):
    server: str
    def __init__(self, message: str, *, server: str) -> None: ...

class ToolServer:
    def __init__(
        self,
        name: str,
        endpoint: object,
        *,
        connect_timeout: float,
        call_timeout: float,
        max_result_chars: int,
        protocol: str,
        one_at_a_time: bool,
    ) -> None: ...
    @classmethod
    def stdio(
        cls,
        name: str,
        *,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        connect_timeout: float = 30.0,
        call_timeout: float = 120.0,
        max_result_chars: int = 100_000,
        protocol: Literal["auto", "legacy", "2026-07-28"] = "auto",
        one_at_a_time: bool = False,
    ) -> ToolServer: ...
    @classmethod
    def http(
        cls,
        name: str,
        *,
        url: str,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 30.0,
        call_timeout: float = 120.0,
        max_result_chars: int = 100_000,
        protocol: Literal["auto", "legacy", "2026-07-28"] = "auto",
        one_at_a_time: bool = False,
    ) -> ToolServer: ...
    @classmethod
    def in_process(
        cls,
        name: str,
        *,
        server: MCPServer | Server[Any],
        connect_timeout: float = 30.0,
        call_timeout: float = 120.0,
        max_result_chars: int = 100_000,
        protocol: Literal["auto", "legacy", "2026-07-28"] = "auto",
        one_at_a_time: bool = False,
    ) -> ToolServer: ...
    @property
    def name(self) -> str: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def tools(
        self,
        *,
        only: Collection[str] | None = None,
        exclude: Collection[str] = (),
        prefix: str | None = None,
        on_replay: Literal["rerun", "reuse"] | Mapping[str, Literal["rerun", "reuse"]] | None = None,
    ) -> list[MCPTool]: ...
    def tools_sync(
        self,
        *,
        only: Collection[str] | None = None,
        exclude: Collection[str] = (),
        prefix: str | None = None,
        on_replay: Literal["rerun", "reuse"] | Mapping[str, Literal["rerun", "reuse"]] | None = None,
    ) -> list[MCPTool]: ...
    async def close(self) -> None: ...

class MCPTool(Tool[object, ..., Awaitable[ToolResult]]):
    def __init__(
        self,
        tool: mcp_types.Tool,
        *,
        name: str,
        caller: ToolServer,
        on_replay: Literal["rerun", "reuse"],
        timeout: float,
    ) -> None: ...
    @property
    def server(self) -> str: ...
    @property
    def original(self) -> str: ...

class AgentServer:
    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        name: str | None,
        asks: Collection[str] | None,
        options: Mapping[str, Any],
    ) -> None: ...
    @property
    def server(self) -> Server[dict[str, Any]]: ...
    async def run_stdio(self) -> None: ...
    def http_app(self, *, path: str = "/mcp", host: str = "127.0.0.1") -> Starlette: ...

def serve(
    agent: Agent[DepsT, OutputT],
    *,
    name: str | None = None,
    asks: Collection[str] | None = None,
    **options: Unpack[Options[DepsT]],
) -> AgentServer: ...
