"""Tools of MCP servers for agents, and agents as MCP servers. Needs `pip install 'overt[mcp]'`; loaded when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from overt.errors import DefinitionError
from overt.sources.mcp.server import ServerUnavailable, ToolServer

if TYPE_CHECKING:
    from overt.sources.mcp.serving import AgentServer, serve
    from overt.sources.mcp.tools import MCPTool

__all__ = ("AgentServer", "MCPTool", "ServerUnavailable", "ToolServer", "serve")

_LOADED = {"AgentServer": "serving", "serve": "serving", "MCPTool": "tools"}


def __getattr__(name: str) -> object:
    if name not in _LOADED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"overt.sources.mcp.{_LOADED[name]}"), name)
    except ModuleNotFoundError as error:
        raise DefinitionError(
            f"overt.sources.mcp.{name} needs the package {error.name!r}: pip install 'overt[mcp]'"
        ) from error
