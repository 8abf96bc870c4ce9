"""Tools of MCP servers for agents, and agents as MCP servers. Needs `pip install 'overt[mcp]'`; loaded when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from overt.sources.mcp.server import ServerUnavailable, ToolServer

if TYPE_CHECKING:
    from overt.sources.mcp.tools import MCPTool

__all__ = ("MCPTool", "ServerUnavailable", "ToolServer")


def __getattr__(name: str) -> object:
    if name == "MCPTool":
        return import_module("overt.sources.mcp.tools").MCPTool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
