"""A server's tools as tools of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import mcp_types
from mcp_types import CallToolResult
from pydantic import JsonValue

from overt.context import ToolContext
from overt.errors import DefinitionError
from overt.sources.mcp.elicitation import Elicited, question_of, reply_of
from overt.sources.mcp.mending import given_schema
from overt.sources.mcp.names import tool_name
from overt.sources.mcp.portal import Asked, Errand
from overt.sources.mcp.results import cut, result_of
from overt.sources.mcp.schemas import ServerArguments
from overt.sources.mcp.session import Ambiguous, Refused, Unreachable
from overt.tool import Tool, ToolResult

if TYPE_CHECKING:
    from overt.sources.mcp.server import ToolServer

__all__ = ("MCPTool", "OnReplay", "made")

OnReplay = Literal["rerun", "reuse"]
KEY = "overt/idempotency_key"
_SHORT = 1_000


class MCPTool(Tool[object, ..., Awaitable[ToolResult]]):
    """A tool of an MCP server. Made by `ToolServer.tools`; goes wherever a tool goes.

    It holds the server, whose connection stays open while there are tools of it.
    """

    def __init__(
        self,
        tool: mcp_types.Tool,
        *,
        name: str,
        caller: ToolServer,
        on_replay: Literal["rerun", "reuse"],
        timeout: float,
    ) -> None:
        """Use `ToolServer.tools`.

        Raises:
            DefinitionError: Its schema cannot be used; names server and tool.
        """
        self._server = caller.name
        self._original = tool.name
        annotations = tool.annotations
        title = tool.title or (None if annotations is None else annotations.title)
        self._declare(
            partial(_call, caller, tool.name),
            name=name,
            description=tool.description or title or "",
            arguments=ServerArguments(
                name, given_schema(tool.input_schema, tool.meta), where=_where(caller.name, tool.name)
            ),
            on_replay=on_replay,
            timeout=timeout,
            is_async=True,
            takes_context=True,
        )

    def __repr__(self) -> str:
        return f"<MCPTool {self.name}: {self._original!r} of {self._server!r}>"

    @property
    def server(self) -> str:
        """The server, as the host calls it."""
        return self._server

    @property
    def original(self) -> str:
        """The tool, as the server calls it."""
        return self._original


async def _call(
    caller: ToolServer, tool: str, ctx: ToolContext[Any], arguments: Mapping[str, JsonValue]
) -> ToolResult:
    """Have the server do it. What it asks is asked here, in the tool's own task, which that may leave."""
    errand = Errand[CallToolResult](
        lambda errand: caller._link().call(errand, tool, arguments, {KEY: ctx.idempotency_key})
    )
    try:
        errand.begin()
        while isinstance(found := await errand.next(), Asked):
            asked = found.question
            assert isinstance(asked, Elicited)
            question = question_of(asked, server=caller.name, tool=tool, secrets=caller._secrets)
            errand.answer(found, reply_of(asked, await ctx._channel.ask(question)))
        return result_of(found, secrets=caller._secrets, longest=caller._max_result_chars)
    except Unreachable as error:
        then = (
            "Whether the call took effect is not known: look before you repeat it."
            if error.sent
            else "The call was not made."
        )
        return _failed(caller, tool, "unknown" if error.sent else "not made", f"{error}. {then}")
    except Refused as error:
        return _failed(caller, tool, "refused", str(error))
    except Ambiguous:
        return _failed(
            caller,
            tool,
            "unknown",
            "it asked questions in several calls at once, and its protocol does not say which belongs to which. They "
            "were given up; what they did before is not undone. From now on its calls go one at a time: try again.",
        )
    finally:
        await errand.leave()


def _failed(caller: ToolServer, tool: str, outcome: str, reason: str) -> ToolResult:
    text = cut(
        f"MCP server {caller.name!r}: {caller._secrets.scrub(reason)}", min(_SHORT, caller._max_result_chars)
    )
    return ToolResult(
        text, is_error=True, metadata={"mcp": {"server": caller.name, "tool": tool, "outcome": outcome}}
    )


# ------------------------------------------------------------------ choosing


def made(
    listed: Sequence[mcp_types.Tool],
    *,
    caller: ToolServer,
    only: Collection[str] | None,
    exclude: Collection[str],
    prefix: str | None,
    on_replay: OnReplay | Mapping[str, OnReplay] | None,
    timeout: float,
) -> list[MCPTool]:
    """Make tools of what a server lists; arguments as of `ToolServer.tools`.

    Raises:
        DefinitionError: See there.
    """
    server = f"MCP server {caller.name!r}"
    names = [tool.name for tool in listed]
    fields: dict[str, Collection[str]] = {"only": only or (), "exclude": exclude}
    if isinstance(on_replay, Mapping):
        fields["on_replay"] = on_replay
    for field, given in fields.items():
        _check_known(server, field, given, names)
    chosen = [
        (number, tool)
        for number, tool in enumerate(listed, 1)
        if (only is None or tool.name in only) and tool.name not in exclude
    ]
    found: dict[str, MCPTool] = {}
    for number, tool in chosen:
        if not tool.name:
            raise DefinitionError(
                f"{server}: the name of tool {number} of {len(names)} is empty, so nothing can call it: leave it out "
                "with exclude=['']"
            )
        name = tool_name(caller.name, tool.name, prefix)
        if name in found:
            raise DefinitionError(
                f"{server}: it has two tools {tool.name!r}, and nothing tells them apart"
                if tool.name == found[name].original
                else f"{server}: tools {found[name].original!r} and {tool.name!r} would both be named {name!r}"
            )
        found[name] = MCPTool(
            tool, name=name, caller=caller, on_replay=_on_replay(tool, on_replay), timeout=timeout
        )
    return [*found.values()]


def _check_known(server: str, field: str, given: Collection[str], names: Sequence[str]) -> None:
    if isinstance(given, str) or not isinstance(given, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise DefinitionError(f"{server}: {field} has to be a list of names of tools: write {field}=[…]")
    unknown = [name for name in given if name not in names]
    if unknown:
        there = ", ".join(names) or "none"
        raise DefinitionError(f"{server}: {field} has {unknown[0]!r:.100}, and its tools are {there}")


def _on_replay(tool: mcp_types.Tool, given: OnReplay | Mapping[str, OnReplay] | None) -> OnReplay:
    if isinstance(given, Mapping):
        given = given.get(tool.name)
    return by_hints(tool.annotations) if given is None else given


def by_hints(hints: mcp_types.ToolAnnotations | None) -> OnReplay:
    """Return what a replay may do with a finished call, as far as the server says what its tool does.

    A replay may come days later, and nothing says that a call is not the one that must not happen twice: so only what
    says that it changes nothing, or nothing more the second time, runs again, and not if it says too that it destroys.
    """
    if hints is None or hints.destructive_hint:
        return "reuse"
    return "rerun" if hints.read_only_hint or hints.idempotent_hint else "reuse"


def _where(server: str, tool: str) -> str:
    return f"MCP server {server!r}: tool {tool!r:.100}"
