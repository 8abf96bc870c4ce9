"""Agents as tools: how they are declared, and what they do when called as a function."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Budget,
    DefinitionError,
    GuardrailEvent,
    MissingDeps,
    NoModel,
    Ruling,
    Runtime,
    Status,
    TaskResult,
    Tool,
    ToolContext,
    ToolSpec,
    UsageError,
    tool,
)
from overt.agent import resolve_team
from overt.options import check_run
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say


class Db: ...


class PostgresDb(Db): ...


@tool
async def ask(ctx: ToolContext) -> str:
    answer = await ctx.ask("Go?", kind="approval", answer_type=bool)
    return f"ok={answer.ok}"


@tool
def scout_tool() -> str:
    """Look."""
    return ""


def named(name: str, **given: Any) -> Agent[Any, Any]:
    return Agent(name, does=f"Is {name}.", **given)


def prompted(prompt: str) -> None: ...


# ------------------------------------------------------------------ what it looks like


def test_it_is_a_tool_with_one_prompt() -> None:
    scout = named("scout")
    made = scout.as_tool()
    assert made.agent is scout
    assert (made.name, made.description) == ("scout", "Is scout.")
    schema = made.input_schema
    assert schema["type"] == "object"
    assert schema["required"] == ["prompt"]
    assert schema["additionalProperties"] is False
    properties: Any = schema["properties"]
    assert list(properties) == ["prompt"]
    assert properties["prompt"]["type"] == "string"
    assert made.spec == ToolSpec(name="scout", description="Is scout.", input_schema=schema)
    assert repr(made) == "<AgentTool scout>"
    schema.clear()
    assert made.input_schema == made.spec.input_schema != {}


def test_it_takes_another_name_and_description() -> None:
    made = named("scout").as_tool(name="find-it_2", description="Finds.")
    assert (made.name, made.description, made.spec.name, made.spec.description) == (
        "find-it_2",
        "Finds.",
        "find-it_2",
        "Finds.",
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("research team", "research_team"),
        ("R&D (north)", "R_D_north"),
        ("Café scout", "Cafe_scout"),
        ("a.b:c", "a_b_c"),
        ("-x-", "-x-"),
        ("__x__", "__x__"),
        ("v 2", "v_2"),
    ],
)
def test_its_name_is_made_of_the_agents(name: str, expected: str) -> None:
    assert named(name).as_tool().name == expected


@pytest.mark.parametrize("name", ["研究", "bot 研究", "Straße", "...", "a" * 65, "🙂"])
def test_a_name_that_would_lose_something_has_to_be_said(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^agent '{name}': as_tool: .* write as_tool\(name=…\)$"):
        named(name).as_tool()
    assert named(name).as_tool(name="scout").name == "scout"


@pytest.mark.parametrize("name", ["", "two words", "a" * 65, "é", 3])
def test_a_name_no_provider_takes_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^agent 'scout': as_tool: name has 1 to 64 characters"):
        named("scout").as_tool(name=name)


def test_a_description_is_text() -> None:
    with pytest.raises(
        DefinitionError, match=r"^agent 'scout': as_tool: description has to be str, not int$"
    ):
        named("scout").as_tool(description=3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        "",
        '{"prompt": 3}',
        '{"prompt": "x", "to": 1}',
        "[1]",
        '{"prompt": "x',
        {"prompt": None},
        {"q": "x"},
        {},
    ],
)
def test_its_arguments_are_refused_as_those_of_a_tool(raw: Any) -> None:
    with pytest.raises(ValueError, match="invalid arguments for scout") as expected:
        Tool(prompted, name="scout").canonical(raw)
    with pytest.raises(ValueError, match="invalid arguments for scout") as found:
        named("scout").as_tool().canonical(raw)
    assert str(found.value) == str(expected.value)
    assert type(found.value) is type(expected.value)


def test_its_arguments_have_one_text() -> None:
    made = named("scout").as_tool()
    assert made.canonical('{ "prompt":"fü" }') == made.canonical({"prompt": "fü"}) == '{"prompt":"fü"}'
    assert made.canonical('{"prompt":"\\ud800"}') == '{"prompt":"�"}'


# ------------------------------------------------------------------ among an agent's tools


def test_an_agent_takes_it_among_its_tools() -> None:
    made = named("scout").as_tool()
    assert named("a", tools=[made, ask]).tools == (made, ask)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([named("scout").as_tool(), named("b").as_tool(name="scout")], "tools has two tools named 'scout'"),
        ([named("scout").as_tool(), named("scout").as_tool()], "tools has two tools named 'scout'"),
        ([scout_tool, named("b").as_tool(name="scout_tool")], "tools has two tools named 'scout_tool'"),
    ],
)
def test_its_name_is_unique_among_the_tools(given: list[Any], match: str) -> None:
    with pytest.raises(DefinitionError, match=f"^agent 'a': {match}"):
        named("a", tools=given)


def test_it_is_not_named_task_beside_a_team() -> None:
    made = named("scout").as_tool(name="task")
    assert named("a", tools=[made]).tools == (made,)
    with pytest.raises(DefinitionError, match=r"^agent 'a': tools has one named 'task'"):
        named("a", tools=[made], team=[named("b")])


def test_its_deps_fit_as_those_of_a_team_do() -> None:
    needs_db = named("m", deps_type=Db).as_tool()
    needs_postgres = named("m", deps_type=PostgresDb).as_tool()
    named("a", tools=[needs_db], deps_type=Db)
    named("a", tools=[needs_db], deps_type=PostgresDb)
    named("a", tools=[named("m").as_tool()], deps_type=Db)
    wrong: list[tuple[Any, Any]] = [(needs_db, None), (needs_postgres, Db), (needs_db, int)]
    for made, deps_type in wrong:
        with pytest.raises(
            DefinitionError,
            match=r"^agent 'a': tool 'm' runs agent 'm', which needs deps of type .*: one run has one",
        ):
            named("a", tools=[made], deps_type=deps_type)


# ------------------------------------------------------------------ agents of the run


def test_the_agent_behind_it_is_one_of_the_run() -> None:
    deep = named("deep")
    middle = named("middle", tools=[deep.as_tool(name="dig")])
    beside = named("beside")
    entry = named("entry", tools=[ask, middle.as_tool()], team=[beside])
    assert resolve_team(entry) == {"entry": entry, "beside": beside, "middle": middle, "deep": deep}


def test_one_agent_may_be_member_and_tool() -> None:
    scout = named("scout")
    entry = named("entry", tools=[scout.as_tool(), scout.as_tool(name="again")], team=[scout])
    assert resolve_team(entry) == {"entry": entry, "scout": scout}


def test_two_agents_of_one_name_are_refused_behind_tools_too() -> None:
    for entry in (
        named("entry", tools=[named("x").as_tool(), named("x").as_tool(name="y")]),
        named("entry", tools=[named("x").as_tool()], team=[named("x")]),
        named("entry", tools=[named("b", tools=[named("entry").as_tool()]).as_tool()]),
    ):
        with pytest.raises(
            DefinitionError, match=r"^agent '(x|entry)': the teams of this run have 2 different agents"
        ):
            resolve_team(entry)


def test_agents_may_be_cyclic_through_tools() -> None:
    writer = named("writer")
    critic = named("critic", tools=[writer.as_tool()])
    rewired = writer.with_team(critic)
    assert resolve_team(rewired) == {"writer": rewired, "critic": critic}
    assert resolve_team(critic) == {"critic": critic, "writer": writer}
    above = named("above", tools=[rewired.as_tool(), critic.as_tool()])
    assert resolve_team(above) == {"above": above, "writer": rewired, "critic": critic}


def test_a_tool_made_of_a_rewired_agent_is_that_agent() -> None:
    scout = named("scout")
    again = scout.with_team(named("lead", tools=[scout.as_tool()]))
    assert again.as_tool().agent is again
    assert resolve_team(named("top", tools=[again.as_tool()]))["scout"] is again


def test_the_agent_behind_it_is_checked_with_the_run() -> None:
    scout = named("scout", budget=Budget(max_cost=Decimal(1)), tools=[ask])
    entry = named("entry", tools=[scout.as_tool()], model="x:y")
    with pytest.raises(DefinitionError, match=r"^agent 'scout': max_cost needs prices"):
        check_run(entry, resolve_team(entry), {})


async def test_a_cyclic_graph_through_tools_runs() -> None:
    critique, revise = call("task", agent="critic", prompt="Good?"), call("writer", prompt="Again.")
    writer = Agent("writer", does="Writes.", model=MockModel(prompts=[[critique, "text"], ["better"]]))
    critic = Agent("critic", does="Criticises.", tools=[writer.as_tool()], model=MockModel([revise, "fine"]))
    result, runtime = await writer.with_team(critic).run("Write.")
    assert (result.status, [view.id for view in runtime.list()]) == (
        Status.DONE,
        ["root/writer.1", "root/writer.1/critic.1", "root/writer.1/critic.1/writer.1"],
    )


# ------------------------------------------------------------------ called as a function


async def test_called_it_runs_the_agent_on_its_own() -> None:
    made = Agent("scout", does="Looks.", model=MockModel([say("found it", tokens=7)])).as_tool()
    result = await made("Look.")
    assert isinstance(result, TaskResult)
    assert (result.status, result.output, result.total_tokens) == (Status.DONE, "found it", 7)
    assert result.handle == "root/scout.1"


async def test_called_it_takes_the_options_of_a_run() -> None:
    class Needs:
        value = "given"

    @tool
    def read(ctx: ToolContext[Needs]) -> str:
        return ctx.deps.value

    seen: list[str] = []

    def see(event: GuardrailEvent) -> Ruling:
        seen.append(event.call.name)
        return Allow()

    made = Agent("scout", does="Looks.", tools=[read], deps_type=Needs).as_tool()
    store = MemoryStore()
    result = await made(
        "Look.",
        deps=Needs(),
        model=MockModel([call("read"), "end"]),
        store=store,
        run_id="r",
        guardrails=[see],
    )
    assert (result.status, result.run_id) == (Status.DONE, "r")
    opened = await Runtime.open(made.agent, "r", store=store, deps=Needs(), model=MockModel([]))
    assert [m.text for m in opened.transcript(result.handle) if m.role == "tool"] == ["given"]


async def test_called_it_is_pending_like_any_run() -> None:
    model, store = MockModel([call("ask"), "end"]), MemoryStore()
    made = Agent("scout", does="Looks.", tools=[ask], model=model).as_tool()
    result = await made("Look.", store=store)
    assert result.status is Status.PENDING
    assert result.pending is not None
    opened = await Runtime.open(made.agent, result.run_id, store=store)
    done = await opened.resume(Answer(id=result.pending.id, ok=True, data=True))
    assert (done.status, done.output) == (Status.DONE, "end")


async def test_called_wrongly_it_raises_as_a_run_does() -> None:
    with pytest.raises(NoModel):
        await named("scout").as_tool()("Look.")
    with pytest.raises(MissingDeps):
        await Agent("scout", does="Looks.", deps_type=Db, model=MockModel([])).as_tool()("Look.")
    with pytest.raises(DefinitionError, match=r"^unknown option 'depth'"):
        await named("scout").as_tool()("Look.", depth=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="a prompt is a str, not int"):
        await named("scout", model=MockModel([])).as_tool()(3)  # type: ignore[arg-type]
