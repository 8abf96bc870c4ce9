"""Where a server is: a command that starts it, an address, or an object in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from overt.sources.mcp.secrets import Secrets, public_url

if TYPE_CHECKING:
    from mcp.server import MCPServer, Server

__all__ = ("Endpoint", "Http", "InProcess", "Stdio")


@dataclass(frozen=True, slots=True)
class Stdio:
    """A program that speaks the protocol on its standard input and output."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path | None

    def secrets(self) -> Secrets:
        """What nobody is to see."""
        return Secrets(self.env, {})

    def __str__(self) -> str:
        return f"the program {self.command!r}"


@dataclass(frozen=True, slots=True)
class Http:
    """A server that is reached by streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def secrets(self) -> Secrets:
        """What nobody is to see."""
        return Secrets({}, self.headers, self.url)

    def __str__(self) -> str:
        return public_url(self.url)


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server object of the SDK."""

    server: MCPServer | Server[Any]

    def secrets(self) -> Secrets:
        """What nobody is to see."""
        return Secrets({}, {})

    def __str__(self) -> str:
        return "an object in this process"


Endpoint = Stdio | Http | InProcess
