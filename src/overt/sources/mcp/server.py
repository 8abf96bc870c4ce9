"""The declaration of a server whose tools agents use."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import anyio
from anyio.to_thread import run_sync

from overt.agent import in_event_loop
from overt.errors import DefinitionError, OvertError, UsageError
from overt.sources.mcp.endpoints import Endpoint, Http, InProcess, Stdio
from overt.sources.mcp.portal import do, portal
from overt.sources.mcp.secrets import Secrets

if TYPE_CHECKING:
    from mcp.server import MCPServer, Server
    from mcp_types import Tool

    from overt.sources.mcp.session import Connection
    from overt.sources.mcp.tools import MCPTool

__all__ = ("ServerUnavailable", "ToolServer")


class ServerUnavailable(OvertError):
    """An MCP server could not be started or reached, or does not speak the protocol.

    Raised where a host asks for a server's tools. A call of a tool never raises it: there it is an error result.

    Attributes:
        server: The server, as the host calls it.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server: str = server


class ToolServer:
    """An MCP server whose tools agents use. Made by `stdio`, `http` and `in_process`; opens nothing when made.

    ```python
    from overt import Agent
    from overt.sources.mcp import ToolServer

    files = ToolServer.stdio("files", command="mcp-server-filesystem", args=["/srv/docs"])

    async def clerk() -> Agent:
        tools = await files.tools(exclude=["move_file"])
        return Agent("clerk", does="Keeps the documents.", tools=tools)
    ```

    The connection is opened by the first `tools()` or call, shared by all runs, event loops and threads, and opened
    anew by the next call when it has been lost. It ends with `close()`, when neither the server nor a tool of it is
    used any more, and with the process; a program that was started for it ends then too.
    """

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
    ) -> None:
        """Use `stdio`, `http` or `in_process`.

        Raises:
            DefinitionError: Something is missing or out of range; or the package is.
        """
        if not isinstance(name, str) or not name.strip() or len(name) > 128 or not name.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise DefinitionError(f"MCP server {name!r:.160}: name has up to 128 printable characters")
        where = f"MCP server {name!r}"
        if find_spec("mcp") is None:
            raise DefinitionError(f"{where} needs the package 'mcp': pip install 'overt[mcp]'")
        for field, value in (("connect_timeout", connect_timeout), ("call_timeout", call_timeout)):
            if not (value > 0 and math.isfinite(value)):
                raise DefinitionError(f"{where}: {field} is a positive number of seconds, not {value!r}")
        if max_result_chars < 1:
            raise DefinitionError(f"{where}: max_result_chars is at least 1, not {max_result_chars!r}")
        self._name = name
        self._endpoint = cast("Endpoint", endpoint)
        self._connect_timeout = connect_timeout
        self._call_timeout = call_timeout
        self._max_result_chars = max_result_chars
        self._protocol = protocol
        self._one_at_a_time = one_at_a_time
        self._secrets: Secrets = self._endpoint.secrets()
        self._lock = threading.Lock()
        self._links: list[Connection] = []
        # With the last tool that could call it the server goes too.
        weakref.finalize(self, _abandon, self._links).atexit = False

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
    ) -> ToolServer:
        """Declare a program that speaks the protocol on its standard input and output.

        Args:
            name: What you call it: part of its tools' names, of errors and of questions. Keep it: stored runs find
                their tools by it.
            command: The program.
            args: Its arguments. They can be seen by everybody on the machine: secrets go into `env`.
            env: Environment variables beside the few a program inherits (`PATH`, `HOME` and the like). Their values
                are kept out of errors, logs and journals; see `docs/mcp.md` for which.
            cwd: Where it runs; `None`: where this process does.
            connect_timeout: Seconds to start it and shake hands, and to list its tools.
            call_timeout: Seconds a call may take, connecting included. Then a `rerun` tool has failed, and a `reuse`
                tool is in doubt.
            max_result_chars: Characters of a result's text, and as many of its structured content.
            protocol: `"auto"` asks the server which it speaks; `"legacy"` shakes hands as before 2026-07-28 did, for a
                server that cannot be asked.
            one_at_a_time: Whether calls wait for each other. Servers of before 2026-07-28 that ask questions need it,
                and it is turned on by their first question.

        Raises:
            DefinitionError: Something is missing or out of range; or the package is (`pip install 'overt[mcp]'`).
        """
        where = f"MCP server {name!r:.160}"
        if not command or not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise DefinitionError(f"{where}: command is the program that is started, not {command!r:.80}")
        if isinstance(args, str):
            raise DefinitionError(f"{where}: args is a list of arguments: write args=[…]")
        endpoint = Stdio(command, tuple(args), _texts(where, "env", env), None if cwd is None else Path(cwd))
        return cls(
            name,
            endpoint,
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            max_result_chars=max_result_chars,
            protocol=protocol,
            one_at_a_time=one_at_a_time,
        )

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
    ) -> ToolServer:
        """Declare a server that is reached by streamable HTTP.

        Args:
            name: As in `stdio`.
            url: Its address, such as `"https://example.com/mcp"`.
            headers: Sent with every request, such as `{"Authorization": "Bearer …"}`. Kept out of errors, logs and
                journals.
            connect_timeout: As in `stdio`; so are the others.
            call_timeout: See there.
            max_result_chars: See there.
            protocol: See there.
            one_at_a_time: See there.

        Raises:
            DefinitionError: Something is missing or out of range; or the package is.
        """
        where = f"MCP server {name!r:.160}"
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise DefinitionError(f"{where}: url begins with http:// or https://")
        return cls(
            name,
            Http(url, _texts(where, "headers", headers)),
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            max_result_chars=max_result_chars,
            protocol=protocol,
            one_at_a_time=one_at_a_time,
        )

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
    ) -> ToolServer:
        """Declare a server object of the SDK, for tests and for servers of your own.

        Its functions run in the thread the connections live in, whose event loop is asyncio's: one that blocks holds
        up every server of the process.

        Args:
            name: As in `stdio`.
            server: An `mcp.server.MCPServer` or `mcp.server.Server`.
            connect_timeout: As in `stdio`; so are the others.
            call_timeout: See there.
            max_result_chars: See there.
            protocol: See there.
            one_at_a_time: See there.

        Raises:
            DefinitionError: Something is missing or out of range; or the package is.
        """
        return cls(
            name,
            InProcess(server),
            connect_timeout=connect_timeout,
            call_timeout=call_timeout,
            max_result_chars=max_result_chars,
            protocol=protocol,
            one_at_a_time=one_at_a_time,
        )

    @property
    def name(self) -> str:
        """What the host calls it."""
        return self._name

    def __repr__(self) -> str:
        return f"<ToolServer {self._name!r}: {self._endpoint}>"

    async def __aenter__(self) -> Self:
        """Opens nothing yet; leaving closes."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close."""
        await self.close()

    # ------------------------------------------------------------ tools

    async def tools(
        self,
        *,
        only: Collection[str] | None = None,
        exclude: Collection[str] = (),
        prefix: str | None = None,
        on_replay: Literal["rerun", "reuse"] | Mapping[str, Literal["rerun", "reuse"]] | None = None,
    ) -> list[MCPTool]:
        """List the server's tools, in its order, for `Agent(tools=…)`. Opens the connection.

        A tool is named after its server and itself, `files__read_file`. Providers take 64 characters out of
        `A-Z a-z 0-9 _ -`: a name that has others, or more, is shortened and ends in eight digits made of what it was.
        The name depends on nothing else, so a stored run finds its tools in any process.

        Under `ResumePolicy.REWIND` a finished call of a `rerun` tool is made again when its wake is replayed. A tool is
        `rerun` where the server says that it only reads or is idempotent, and does not say that it is destructive;
        every other one is `reuse`. The server is believed: where you do not trust it, say `on_replay="reuse"`.

        Args:
            only: Names of the tools to take, as the server calls them; `None` for all.
            exclude: Names of tools to leave out.
            prefix: What stands before each name in place of the server's name and two underscores; `""` for nothing.
            on_replay: For all of them, or by the server's name for the tool; `None`: what the server says.

        Raises:
            ServerUnavailable: It could not be started or reached in time; says why, with the program's last words.
            DefinitionError: `only`, `exclude` or `on_replay` has a name it does not list (the message says what it
                lists), or a tool it lists has no name, a schema that cannot be used, or the name of another; names it.
        """
        # The SDK takes a second to load; other tasks need not wait for that.
        await run_sync(import_module, "overt.sources.mcp.tools")
        from overt.sources.mcp.session import Refused, Unreachable
        from overt.sources.mcp.tools import made

        where = f"MCP server {self._name!r}"
        if prefix is not None and not isinstance(prefix, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise DefinitionError(f"{where}: prefix is a str, not {type(prefix).__name__}")
        given = on_replay.values() if isinstance(on_replay, Mapping) else (on_replay or "rerun",)
        if any(value not in ("rerun", "reuse") for value in given):
            raise DefinitionError(f"{where}: on_replay is 'rerun' or 'reuse', or those by name of tool")
        listed: list[Tool] = []
        failed = ""
        try:
            link = self._link()
            listed = await do(link.tools)
        except Unreachable as error:
            failed = (
                f"{error}. It wrote to its standard error: {error.last_words}"
                if error.last_words
                else f"{error}"
            )
        except Refused as error:
            failed = f"{error}"
        if failed:
            # Not while the other is handled: it would come along, with all it says.
            raise ServerUnavailable(self._secrets.scrub(f"{where}: {failed}"), server=self._name)
        return made(
            listed,
            caller=self,
            only=only,
            exclude=exclude,
            prefix=prefix,
            on_replay=on_replay,
            timeout=self._call_timeout,
        )

    def tools_sync(
        self,
        *,
        only: Collection[str] | None = None,
        exclude: Collection[str] = (),
        prefix: str | None = None,
        on_replay: Literal["rerun", "reuse"] | Mapping[str, Literal["rerun", "reuse"]] | None = None,
    ) -> list[MCPTool]:
        """`tools` for code without an event loop, such as a module that declares agents.

        Raises:
            UsageError: An event loop is running in this thread: await `tools` instead.
            ServerUnavailable: As `tools`; so are the others.
        """
        if in_event_loop():
            raise UsageError("tools_sync cannot wait inside a running event loop: await tools(…)")
        return anyio.run(partial(self.tools, only=only, exclude=exclude, prefix=prefix, on_replay=on_replay))

    async def close(self) -> None:
        """End the connection, and the program that was started for it. Calls under way become error results.

        The server can still be used: the next call opens another connection.
        """
        with self._lock:
            links = tuple(self._links)
        here = portal()
        for link in links:
            if link.portal is here:
                await do(link.close)

    def _link(self) -> Connection:
        """Return the connection of this process; a forked child has one of its own."""
        from overt.sources.mcp.session import Connection  # loads the SDK

        here = portal()
        with self._lock:
            if not self._links or self._links[-1].portal is not here:
                self._links[:] = [
                    Connection(
                        self._endpoint,
                        portal=here,
                        connect_timeout=self._connect_timeout,
                        protocol=self._protocol,
                        one_at_a_time=self._one_at_a_time,
                    )
                ]
            return self._links[-1]


def _abandon(links: Sequence[Connection]) -> None:
    for link in links:
        with suppress(RuntimeError):
            link.abandon()


def _texts(where: str, field: str, given: Mapping[str, str] | None) -> Mapping[str, str]:
    made = dict(given or {})
    for key, value in made.items():
        if not isinstance(key, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise DefinitionError(f"{where}: {field}[{key!r:.80}] has to be text")
    return made
