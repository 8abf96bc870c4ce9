"""What type checkers see of agents. Checked, never run: each mistake carries the code it must be reported with."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from pydantic import BaseModel

from overt import Agent, Runtime, TaskResult, ToolContext, tool

if TYPE_CHECKING:

    class Db:
        """Deps of some tools."""

    class Out(BaseModel):
        """A typed output."""

        x: int

    @tool
    def plain(x: int) -> str:
        return str(x)

    @tool
    def bare(ctx: ToolContext) -> str:
        return ctx.run_id

    @tool
    def with_deps(ctx: ToolContext[Db], x: int) -> str:
        return f"{ctx.handle}{x}"

    def soul(db: Db) -> str:
        return repr(db)

    assert_type(Agent("a", does="d"), Agent[None, str])
    assert_type(Agent("a", does="d", tools=[plain, bare]), Agent[None, str])
    assert_type(Agent("a", does="d", tools=[plain, bare, with_deps], deps_type=Db, soul=soul), Agent[Db, str])
    assert_type(Agent("a", does="d", tools=[plain], output_type=Out), Agent[None, Out])
    assert_type(Agent("a", does="d", output_type=int | str), Agent[None, int | str])
    assert_type(Agent("a", does="d", tools=[with_deps], deps_type=Db, output_type=Out), Agent[Db, Out])
    assert_type(Agent("a", does="d", deps_type=Db | None), Agent[Db | None, str])
    assert_type(Agent("a", does="d", team=[Agent("b", does="e", deps_type=Db)]), Agent[None, str])
    assert_type(Agent("a", does="d", deps_type=Db).with_team(Agent("b", does="e")), Agent[Db, str])

    with_db = Agent("a", does="d", tools=[with_deps], deps_type=Db)
    without = Agent("a", does="d")

    async def run() -> None:
        assert_type(await with_db.run("p", deps=Db()), tuple[TaskResult[str], Runtime[str]])
        typed = Agent("a", does="d", output_type=Out)
        assert_type(await typed.run("p", run_id="r", inbox_cap=2), tuple[TaskResult[Out], Runtime[Out]])
        assert_type(without.run_sync("p"), tuple[TaskResult[str], Runtime[str]])
        await with_db.run("p", deps=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await with_db.run("p", depps=Db())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await with_db.run("p", run_id=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    Agent("a", does="d", tools=[with_deps])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", soul=soul)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", tools=[with_deps], deps_type=int)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", tools=[len])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    Agent("a", "d")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    without.name = "b"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
