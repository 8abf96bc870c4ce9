"""What declarations, tools and values of a policy raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator
from tests.contract.kit import clerk, promise, without

from overt import (
    Agent,
    AgentTool,
    Answer,
    Ask,
    Attempt,
    Completion,
    Deny,
    Extend,
    GenAIPrices,
    Hooks,
    PriceTable,
    Request,
    Suspend,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Upgrade,
    all_todos_done,
    compactor,
    output_is,
    pending,
    require_approval,
    tool,
)
from overt.testing import MockModel, call

WRONG: Any = 3
"""What type checkers would refuse."""


@tool
def double(x: int) -> int:
    """Double."""
    return 2 * x


def untyped(x):  # type: ignore[no-untyped-def]  # what is refused
    return x


promise("overt.Agent DefinitionError")(lambda: Agent("", does="d"))
promise("overt.Agent.with_team DefinitionError")(lambda: clerk.with_team(clerk, clerk))
promise("overt.Agent.as_tool DefinitionError")(lambda: clerk.as_tool(name="no name"))
promise("overt.AgentTool DefinitionError")(lambda: AgentTool(clerk, name="no name", description="d"))
promise("overt.AgentTool.canonical ValueError")(lambda: clerk.as_tool().canonical("{}"))
promise("overt.Ask UsageError")(lambda: Ask(""))
promise("overt.Completion DefinitionError")(lambda: Completion(all_todos_done, max_attempts=0))
promise("overt.Deny UsageError")(lambda: Deny(""))
promise("overt.Extend UsageError")(lambda: Extend(WRONG))
promise("overt.Hooks DefinitionError")(lambda: Hooks(before_llm=WRONG))
promise("overt.PriceTable DefinitionError")(lambda: PriceTable({"m": WRONG}))
promise("overt.Suspend UsageError")(lambda: Suspend(""))
promise("overt.Tool DefinitionError")(lambda: Tool(untyped))
promise("overt.Tool.as_result TypeError")(lambda: double.as_result(float("nan")))
promise("overt.Tool.bind ValueError")(lambda: double.bind('{"y":1}'))
promise("overt.Tool.canonical ValueError")(lambda: double.canonical("{}"))
promise("overt.ToolResult TypeError")(lambda: ToolResult(WRONG))
promise("overt.Upgrade DefinitionError")(lambda: Upgrade(tools={"a": "b", "b": "a"}))
promise("overt.compactor DefinitionError")(lambda: compactor(max_tokens=0, summarize=str))
promise("overt.output_is DefinitionError")(lambda: output_is(Callable[[], None]))
promise("overt.pending UsageError")(lambda: pending(kind="", prompt="p"))
promise("overt.require_approval DefinitionError")(lambda: require_approval())
promise("overt.tool DefinitionError")(lambda: tool(untyped))


@promise("overt.all_todos_done DefinitionError")
def without_todos() -> object:
    found = ToolCall(id="c", name="todo", arguments={"x": 1})  # of another tool of that name
    return all_todos_done(Attempt(text="", output=None, tool_calls=[(found, ToolResult("x"))], number=1))


@promise("overt.GenAIPrices DefinitionError")
def without_the_package() -> object:
    with without("genai_prices"):
        return GenAIPrices()


# ------------------------------------------------------------------ inside a tool

caught: list[Exception] = []


def refuse(value: int) -> int:
    raise ValueError("never")


@tool
async def ask_for_nothing(ctx: ToolContext) -> str:
    """Ask without a question."""
    return await kept(ctx.ask(""))


@tool
async def ask_in_vain(ctx: ToolContext) -> str:
    """Ask for what nothing is."""
    return await kept(ctx.ask("What?", answer_type=Annotated[int, AfterValidator(refuse)]))


async def kept(work: Any) -> str:
    try:
        await work
    except Exception as error:
        caught.append(error)
        raise
    return "none"


async def fails() -> str:
    raise ZeroDivisionError


async def odd() -> object:
    return object()


async def unresolved() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821  # what is refused
    return None


@tool
async def once_unnamed(ctx: ToolContext) -> str:
    """Do something once, without a name."""
    return await kept(ctx.once("", fails))


@tool
async def once_odd(ctx: ToolContext) -> str:
    """Do something once that is no JSON."""
    return await kept(ctx.once("odd", odd))


@tool
async def once_unresolved(ctx: ToolContext) -> str:
    """Do something once whose type is nowhere."""
    return await kept(ctx.once("unresolved", unresolved))


@tool
async def once_failed(ctx: ToolContext) -> str:
    """Do something once that has failed before."""
    try:
        await ctx.once("fails", fails)
    except ZeroDivisionError:
        return await kept(ctx.once("fails", fails))
    return "none"


async def answered(request: Request) -> Answer[int]:
    return Answer(id=request.id, ok=True, data=3)


async def in_a_tool(asked: Tool[Any, ..., Any]) -> None:
    """Raise what the tool has met in its run."""
    caught.clear()
    agent = Agent("clerk", does="d", tools=[asked], wait_for=answered)
    await agent.run("go", model=MockModel([call(asked.name), "done"]))
    raise caught[0]


promise("overt.ToolContext.ask UsageError")(lambda: in_a_tool(ask_for_nothing))
promise("overt.ToolContext.ask InvalidAnswer")(lambda: in_a_tool(ask_in_vain))
promise("overt.ToolContext.once UsageError")(lambda: in_a_tool(once_unnamed))
promise("overt.ToolContext.once TypeError")(lambda: in_a_tool(once_odd))
promise("overt.ToolContext.once DefinitionError")(lambda: in_a_tool(once_unresolved))
promise("overt.ToolContext.once ToolError")(lambda: in_a_tool(once_failed))
