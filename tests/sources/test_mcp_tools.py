"""Listing a server's tools and calling them, without a process in between."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp.server import MCPServer, Server, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from overt import DefinitionError, Status, UsageError
from overt.sources.mcp import MCPTool, ServerUnavailable, ToolServer
from overt.stores import SQLiteStore
from overt.testing import call, raw_call, say
from tests.sources.kit import Fake, agent, ran, said

pytestmark = pytest.mark.anyio

HINTS: dict[str, tuple[ToolAnnotations | None, str]] = {
    "silent": (None, "reuse"),
    "nothing": (ToolAnnotations(), "reuse"),
    "writes": (ToolAnnotations(read_only_hint=False, idempotent_hint=False), "reuse"),
    "reads": (ToolAnnotations(read_only_hint=True), "rerun"),
    "sets": (ToolAnnotations(idempotent_hint=True), "rerun"),
    "adds": (ToolAnnotations(destructive_hint=False), "reuse"),
    "makes": (ToolAnnotations(idempotent_hint=True, destructive_hint=False), "rerun"),
    "deletes": (ToolAnnotations(idempotent_hint=True, destructive_hint=True), "reuse"),
}


def listing(*tools: Tool, calls: list[CallToolRequestParams] | None = None, page: int = 100) -> Server[Any]:
    """A server that lists just these and repeats what it is called with."""

    async def on_list(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        start = int(params.cursor) if params is not None and params.cursor else 0
        rest = str(start + page) if start + page < len(tools) else None
        return ListToolsResult(tools=list(tools[start : start + page]), next_cursor=rest)

    async def on_call(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        if calls is not None:
            calls.append(params)
        text = f"{params.name} {json.dumps(params.arguments, sort_keys=True)}"
        return CallToolResult(content=[TextContent(text=text)])

    return Server("listing", on_list_tools=on_list, on_call_tool=on_call)


def of(name: str, schema: dict[str, Any] | None = None, annotations: ToolAnnotations | None = None) -> Tool:
    return Tool(name=name, input_schema=schema or {"type": "object"}, annotations=annotations)


@pytest.fixture
def demo() -> MCPServer:
    server = MCPServer("demo")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def fail() -> str:
        """Fail."""
        raise ValueError("no luck")

    return server


async def test_a_servers_tools_are_tools_of_an_agent(demo: MCPServer) -> None:
    async with ToolServer.in_process("demo", server=demo) as server:
        tools = await server.tools()
        assert [tool.name for tool in tools] == ["demo__add", "demo__fail"]
        add = tools[0]
        assert isinstance(add, MCPTool)
        assert (add.server, add.original, add.description) == ("demo", "add", "Add two numbers.")
        assert add.input_schema["required"] == ["a"]
        script = [[call("demo__add", a=2, b=3), call("demo__add", a=5), call("demo__fail")], say("done")]
        result, runtime = await ran(script, tools)
    assert result.status is Status.DONE
    one, two, three = said(runtime)
    assert (one.text, one.is_error, one.metadata) == ("5", False, {"structured_content": {"result": 5}})
    assert two.text == "6"
    assert three.is_error
    assert three.text == "Error executing tool fail"


async def test_nothing_is_opened_when_it_is_declared(demo: MCPServer) -> None:
    server = ToolServer.in_process("demo", server=demo)
    await server.close()
    assert repr(server) == "<ToolServer 'demo': an object in this process>"


async def test_hints_say_what_a_replay_may_do() -> None:
    server = listing(*(of(name, annotations=hints) for name, (hints, _) in HINTS.items()), page=3)
    async with ToolServer.in_process("s", server=server) as declared:
        assert {t.original: t.on_replay for t in await declared.tools()} == {
            name: expected for name, (_, expected) in HINTS.items()
        }
        for mode in ("rerun", "reuse"):
            assert {t.on_replay for t in await declared.tools(on_replay=mode)} == {mode}
        chosen = await declared.tools(on_replay={"silent": "rerun", "reads": "reuse"})
        assert [t.on_replay for t in chosen[:2]] == ["rerun", "reuse"]
        assert {t.original: t.on_replay for t in chosen}["reads"] == "reuse"


async def test_some_of_the_tools_and_other_names() -> None:
    server = listing(of("a"), of("b"), of("c"), of(""))
    async with ToolServer.in_process("s", server=server) as declared:
        assert [t.name for t in await declared.tools(only=["c", "a"])] == ["s__a", "s__c"]
        assert [t.name for t in await declared.tools(exclude=["b", ""], prefix="x_")] == ["x_a", "x_c"]
        assert [t.name for t in await declared.tools(only=("a",), prefix="")] == ["a"]
        wrong: list[tuple[str, Any]] = [
            ("only", ["a", "d"]),
            ("exclude", ["", "d"]),
            ("on_replay", {"d": "rerun"}),
        ]
        for field, value in wrong:
            with pytest.raises(
                DefinitionError, match=rf"MCP server 's': {field} has 'd', and its tools are a, b, c"
            ):
                await declared.tools(**{field: value})
        with pytest.raises(DefinitionError, match="only has to be a list"):
            await declared.tools(only="a")
        with pytest.raises(DefinitionError, match="on_replay is 'rerun' or 'reuse'"):
            await declared.tools(on_replay="never")  # type: ignore[arg-type]  # untyped callers
        with pytest.raises(DefinitionError, match=r"tool 4 of 4 is empty.*exclude=\[''\]"):
            await declared.tools()


BAD: dict[str, tuple[object, str]] = {
    "list": ({"type": "array"}, "it describes 'array', and arguments are an object"),
    "typo": ({"type": "objekt"}, '"objekt" is not valid'),
    "outside": ({"$ref": "https://example.com/schema"}, "refers to https://example.com/schema"),
    "dangling": ({"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}}, "Pointer '/$defs/gone' does not"),
    "huge": ({"type": "object", "description": "x" * 200_001}, "characters, and 200,000 are the most"),
    "pattern": ({"type": "object", "properties": {"a": {"pattern": "["}}}, "regex"),
    "true": (True, "it is true, and arguments are an object"),
    "none": (None, "it is null, and arguments are an object"),
    "strings": ({"type": "object", "properties": {"a": "string"}}, '"string" is not'),
}  # fmt: skip
INSIDE = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
ODD: dict[str, object] = {
    "bare": {},
    "untyped": {"properties": {"n": {"type": "integer"}}},
    "referred": {"$ref": "#/$defs/Query", "$defs": {"Query": INSIDE}},
    "older": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"z": {}, "a": True},
    },
    "echo": {"type": "object"},
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_schemas_as_servers_write_them(tmp_path: Path) -> None:
    listed: list[dict[str, Any]] = [
        {"name": name, "inputSchema": schema} for name, (schema, _) in BAD.items()
    ]
    listed += [{"name": name, "inputSchema": schema} for name, schema in ODD.items()]
    listed[-1] |= {"annotations": {"readOnlyHint": "certainly"}, "outputSchema": {"type": "string"}}
    async with Fake(tmp_path, tools=[*listed, {"inputSchema": {}}]) as fake:
        for name, (_, reason) in BAD.items():
            start = f"MCP server 'fake': tool '{name}': its input schema cannot be used: "
            with pytest.raises(DefinitionError, match=f"{re.escape(start)}.*{re.escape(reason)}"):
                await fake.server.tools(only=[name])
        with pytest.raises(DefinitionError, match="the name of tool 15 of 15 is empty"):
            await fake.server.tools(exclude=[*BAD])
        bare, untyped, referred, older, echo = await fake.server.tools(exclude=[*BAD, ""])
        script = [call("fake__echo", text="on the wire"), say("x")]
        _, runtime = await ran(script, [echo])
    assert bare.input_schema == {"type": "object", "properties": {}}
    assert untyped.input_schema["type"] == "object"
    assert referred.input_schema["properties"] == INSIDE["properties"]
    assert list(older.input_schema["properties"]) == ["z", "a"], "in the server's order"  # type: ignore[arg-type]  # JSON
    assert referred.canonical({"q": "x"}) == '{"q":"x"}'
    with pytest.raises(ValueError, match='"q" is a required property'):
        referred.canonical("{}")
    assert echo.on_replay == "reuse"
    assert said(runtime)[0].text == "on the wire"


async def test_wrong_arguments_are_not_sent() -> None:
    calls: list[CallToolRequestParams] = []
    number = {"type": "integer", "minimum": 1}
    schema = {
        "type": "object",
        "properties": {"n": number, "of": {"type": "array", "items": number}},
        "required": ["n"],
    }
    script = [
        [
            call("s__t", n="one", of=[1, 0]),
            call("s__t"),
            raw_call("s__t", '{"n": 1'),
            call("s__t", n=1, extra=None),
        ],
        say("x"),
    ]
    async with ToolServer.in_process("s", server=listing(of("t", schema), calls=calls)) as declared:
        result, runtime = await ran(script, await declared.tools())
    assert result.status is Status.DONE
    one, two, three, four = said(runtime)
    assert one.text == (
        'invalid arguments for s__t:\nn: "one" is not of type "integer"\nof.1: 0 is less than the minimum of 1'
    )
    assert two.text == 'invalid arguments for s__t:\n"n" is a required property'
    assert "not valid JSON" in three.text
    assert one.is_error
    assert two.is_error
    assert three.is_error
    assert four.text == 't {"extra": null, "n": 1}'
    assert [params.arguments for params in calls] == [{"n": 1, "extra": None}]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_server_is_given_the_idempotency_key() -> None:
    calls: list[CallToolRequestParams] = []
    async with ToolServer.in_process("s", server=listing(of("t"), calls=calls)) as declared:
        result, _ = await ran([[call("s__t", a=1), call("s__t", a=1)], say("x")], await declared.tools())
    keys = [dict(params.meta or {})["overt/idempotency_key"] for params in calls]
    assert len(set(keys)) == 2
    assert all(isinstance(key, str) and len(key) == 32 for key in keys)
    assert result.status is Status.DONE


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_two_tools_of_one_name_are_refused() -> None:
    async with ToolServer.in_process("s", server=listing(of("a"), of("a"))) as declared:
        with pytest.raises(DefinitionError, match="it has two tools 'a'"):
            await declared.tools()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_lists_nothing_or_without_end() -> None:
    async def on_list(
        ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        cursor = "" if params is None or params.cursor is None else params.cursor
        return ListToolsResult(tools=[of(f"t{len(cursor)}")], next_cursor=cursor + "x")

    async with ToolServer.in_process("s", server=Server("toolless")) as declared:
        with pytest.raises(ServerUnavailable, match="MCP server 's': it has no tools"):
            await declared.tools()
    async with ToolServer.in_process("s", server=Server("endless", on_list_tools=on_list)) as declared:
        with pytest.raises(ServerUnavailable, match="MCP server 's': it lists tools without end"):
            await declared.tools()


async def test_one_server_serves_many_runs_at_once(demo: MCPServer) -> None:
    async with ToolServer.in_process("demo", server=demo) as server:
        tools = await server.tools(only=["add"])
        texts: list[str] = []

        async def one(a: int) -> None:
            _, runtime = await ran([call("demo__add", a=a), say("x")], tools)
            texts.extend(message.text for message in said(runtime))

        async with anyio.create_task_group() as group:
            for a in range(5):
                group.start_soon(one, a)
    assert sorted(texts) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stored_run_finds_its_tools_again_when_the_server_has_more(tmp_path: Any) -> None:
    from overt import Answer, Runtime, ToolContext, tool

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask("well?")).ok)

    calls: list[CallToolRequestParams] = []
    dotted = of("a.b", annotations=ToolAnnotations(read_only_hint=True))
    store = SQLiteStore(tmp_path / "runs.db")
    async with ToolServer.in_process("my server", server=listing(dotted, calls=calls)) as declared:
        (old,) = await declared.tools()
        script = [call(old.name, n=1), call("ask"), say("end")]
        result, _ = await agent(script, [old, ask]).run("go", store=store, run_id="r")
    assert result.pending is not None
    more = listing(of("a_b"), of("a b"), dotted, calls=calls)
    async with ToolServer.in_process("my server", server=more) as declared:
        worker = agent(script, [*await declared.tools(), ask])
        runtime = await Runtime.open(worker, "r", store=store)
        result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.status is Status.DONE
    assert [params.name for params in calls] == ["a.b", "a.b"], "the default policy replays what only reads"
    await store.close()


def test_without_an_event_loop(demo: MCPServer) -> None:
    server = ToolServer.in_process("demo", server=demo)
    assert [tool.name for tool in server.tools_sync(only=["add"], prefix="")] == ["add"]

    async def inside() -> None:
        with pytest.raises(UsageError, match="await tools"):
            server.tools_sync()
        await server.close()

    anyio.run(inside)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToolServer.stdio("", command="x"), "name has up to 128 printable characters"),
        (lambda: ToolServer.stdio("s", command=""), "MCP server 's': command is the program"),
        (lambda: ToolServer.stdio("s", command="x", args="--port 1"), "args is a list"),
        (lambda: ToolServer.stdio("s", command="x", env={"A": cast("Any", 1)}), r"env\['A'\] has to be text"),
        (lambda: ToolServer.stdio("s", command="x", call_timeout=0), "call_timeout is a positive number"),
        (lambda: ToolServer.http("s", url="ftp://x"), "url begins with"),
        (lambda: ToolServer.http("s", url="http://x", max_result_chars=0), "max_result_chars is at least 1"),
    ],
)
def test_declarations_that_are_refused(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()
