"""What type checkers see of tools. Checked, never run: each mistake carries the code it must be reported with."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import JsonValue

from overt import (
    Answer,
    AnyTool,
    Doubt,
    Failed,
    Resolution,
    Retry,
    Succeeded,
    Tool,
    ToolContext,
    ToolResult,
    pending,
    tool,
)

if TYPE_CHECKING:

    class Db:
        """Deps of some tools."""

    class SubDb(Db):
        """Deps of a more particular kind."""

    @tool
    def plain(x: int, y: str = "") -> str:
        return f"{x}{y}"

    @tool
    async def waits(x: int) -> int:
        return x

    @tool
    def bare(ctx: ToolContext, x: int) -> str:
        return f"{ctx.run_id}{x}"

    @tool
    def with_deps(ctx: ToolContext[Db], x: int) -> str:
        assert_type(ctx.deps, Db)
        return str(x)

    @tool(name="other", on_replay="reuse", timeout=2.5)
    def with_options(ctx: ToolContext[Db], x: int) -> ToolResult:
        return pending(kind="approval", prompt=str(x), answer_type=bool)

    @tool()
    def nothing() -> None: ...

    def function(ctx: ToolContext[Db], x: int, y: str) -> str:
        return f"{ctx.handle}{x}{y}"

    class Shop:
        def order(self, ctx: ToolContext[Db], x: int) -> str:
            return f"{ctx.handle}{x}"

        def __call__(self, x: int) -> int:
            return x

    def context() -> ToolContext[Db]: ...

    db_ctx = context()

    assert_type(plain(1, "a"), str)
    assert_type(plain(1), str)
    assert_type(plain(x=1, y="b"), str)
    assert_type(bare(db_ctx, x=1), str)
    assert_type(with_deps(db_ctx, 1), str)
    assert_type(with_options(db_ctx, 1), ToolResult)
    assert_type(nothing(), None)
    assert_type(tool(function, name="f")(db_ctx, 1, y=""), str)
    assert_type(tool(Shop().order)(db_ctx, 1), str)
    assert_type(tool(Shop())(1), int)
    assert_type(tool(partial(function, y="z"))(db_ctx, 1), str)
    coroutine: Coroutine[Any, Any, int] = waits(1)

    # A tool without deps fits everywhere; one with deps fits where these, or more particular ones, are given.
    fits_none: AnyTool[None] = plain
    fits_none_bare: AnyTool[None] = bare
    fits_db: AnyTool[Db] = with_deps
    fits_sub: AnyTool[SubDb] = with_deps
    fits_options: AnyTool[Db] = with_options
    fits_bare: AnyTool[Db] = bare
    wrong_none: AnyTool[None] = with_deps  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_int: AnyTool[int] = with_options  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_object: AnyTool[object] = with_deps  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_function: AnyTool[Db] = function  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    # A bare context takes any other; contexts are covariant.
    any_context: ToolContext = db_ctx
    wrong_context: ToolContext[SubDb] = db_ctx  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    plain("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain(1, z=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with_deps(1)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    plain.name = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    tool(plain.__call__, on_replay="never")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    pending(kind="approval")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    async def ask(ctx: ToolContext[Db]) -> None:
        assert_type(await ctx.ask("?"), Answer[JsonValue])
        assert_type(await ctx.ask("?", answer_type=bool), Answer[bool])
        assert_type(await ctx.ask("?", answer_type=int | str), Answer[int | str])
        assert_type((await ctx.ask("?", answer_type=list[int])).data, list[int] | None)
        assert_type(ctx.answer, Answer[Any] | None)

        async def effect() -> int:
            return 1

        assert_type(await ctx.once("label", effect), int)
        await ctx.once("label", lambda: 1)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
        ctx.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    # ------------------------------------------------------------ a tool's own lookup of a call in doubt

    class Other:
        """Deps of another kind."""

    async def look(doubt: Doubt[Db]) -> Succeeded | None:
        assert_type(doubt.deps, Db)
        assert_type(doubt.once, str | None)
        doubt.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        return None

    def look_bare(doubt: Doubt) -> Resolution:
        return Failed("no") if doubt.once else Retry()

    def look_other(doubt: Doubt[Other]) -> None: ...
    def look_sub(doubt: Doubt[SubDb]) -> None: ...

    @tool(resolve=look)
    def both_need(ctx: ToolContext[Db], x: int) -> str: ...

    @tool(on_replay="reuse", resolve=look)
    def lookup_needs(x: int) -> str: ...

    @tool(resolve=look)
    def lookup_needs_more(ctx: ToolContext, x: int) -> str: ...

    @tool(resolve=look_bare)
    def tool_needs(ctx: ToolContext[Db], x: int) -> str: ...

    @tool(resolve=look_bare)
    def none_needs(x: int) -> str: ...

    @tool(resolve=look_sub)
    def lookup_needs_sub(ctx: ToolContext[Db], x: int) -> str: ...

    @tool(resolve=look_other)
    def nothing_fits(ctx: ToolContext[Db], x: int) -> str: ...

    @tool(resolve=lambda doubt: Succeeded(doubt.tool))
    def by_lambda(ctx: ToolContext[Db], x: int) -> str: ...

    def sub_function(ctx: ToolContext[SubDb], x: int) -> str: ...

    assert_type(both_need(db_ctx, 1), str)
    assert_type(lookup_needs(1), str)
    need_db: list[AnyTool[Db]] = [
        both_need,
        lookup_needs,
        lookup_needs_more,
        tool_needs,
        none_needs,
        by_lambda,
    ]
    need_sub: list[AnyTool[SubDb]] = [lookup_needs_sub, tool(sub_function, resolve=look)]
    need_none: list[AnyTool[None]] = [none_needs, tool(plain.__wrapped__, resolve=look_bare)]
    need_db = [tool(function, resolve=look), tool(lambda x: str(x), name="l", resolve=look)]
    wrong_lookup: AnyTool[None] = lookup_needs  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_more: AnyTool[None] = lookup_needs_more  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_sub: AnyTool[Db] = lookup_needs_sub  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_both: AnyTool[Db] = nothing_fits  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_both_other: AnyTool[Other] = nothing_fits  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wrong_call: AnyTool[Db] = tool(function, resolve=look_other)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def options(**given: Any) -> None:
        @tool(name="f", **given)
        def with_whatever(ctx: ToolContext[Db], x: int) -> str:
            return str(x)

        assert_type(with_whatever(db_ctx, 1), str)

    def says_text(doubt: Doubt) -> str: ...
    async def says_text_later(doubt: Doubt) -> str: ...
    def takes_text(doubt: str) -> None: ...
    def takes_two(doubt: Doubt, more: int) -> None: ...

    tool(resolve=says_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tool(resolve=says_text_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tool(resolve=takes_text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tool(resolve=takes_two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tool(function, resolve=says_text)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(Tool(function, resolve=look).name, str)

    def told(outcome: Resolution) -> object:
        match outcome:
            case Succeeded() | Failed():
                return outcome.output
            case Retry():
                return None
