"""1.1, 1.2: agents are declared, checked, and resolved by name."""

from __future__ import annotations

import asyncio
import copy
import gc
import subprocess
import sys
import threading
import types
import weakref
from contextvars import ContextVar
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from pydantic import ValidationError

from overt import (
    Agent,
    Budget,
    DefinitionError,
    MissingDeps,
    ModelSettings,
    NoModel,
    ResumePolicy,
    Runtime,
    ToolContext,
    UsageError,
    tool,
)
from overt._planning import declared
from overt.agent import instructions, resolve_team
from overt.clock import SystemClock
from overt.message import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from overt.options import check_run as check_options
from overt.options import model_of
from overt.stores import MemoryStore
from overt.testing import MockModel, say


def check_run(agent: Agent[Any, Any], options: dict[str, Any]) -> None:
    check_options(agent, declared(agent).agents, options)


class Db: ...


class PostgresDb(Db): ...


class Goes(Protocol):
    def go(self) -> int: ...


@tool
def look(x: int) -> str:
    return str(x)


@tool(name="look")
def look_again() -> str:
    return ""


@tool(name="task")
def task() -> str:
    return ""


@tool
def query(ctx: ToolContext[Db]) -> str:
    return repr(ctx.deps)


helper = Agent("helper", does="Helps.")


def test_an_agent_keeps_what_it_was_given() -> None:
    budget, settings = Budget(max_turns=3), ModelSettings(temperature=0.5)
    made = Agent(
        "a", does="Does.", tools=[query], soul="Be.", team=[helper], budget=budget, model="x:y", settings=settings,
        deps_type=Db,
    )  # fmt: skip
    assert (made.name, made.does, made.tools, made.soul, made.team) == (
        "a",
        "Does.",
        (query,),
        "Be.",
        (helper,),
    )
    assert (made.budget, made.model, made.settings, made.deps_type, made.output_type) == (
        budget,
        "x:y",
        settings,
        Db,
        str,
    )
    assert repr(made) == "<Agent a>"


def test_an_agent_is_immutable_and_shares_no_list() -> None:
    tools = [look]
    made = Agent("a", does="Does.", tools=tools)
    tools.clear()
    assert made.tools == (look,)
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.does
    assert copy.copy(made) is made
    held = weakref.ref(made)
    del made
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Agent("", does="d"), "agent '': name is empty"),
        (lambda: Agent(" ", does="d"), "agent ' ': name is empty"),
        (lambda: Agent(3, does="d"), "agent 3: name has to be str, not int"),  # type: ignore[call-overload]
        (lambda: Agent("a/b", does="d"), "agent 'a/b': name has up to 128"),
        (lambda: Agent("a\n", does="d"), "name has up to 128"),
        (lambda: Agent("a" * 129, does="d"), "name has up to 128"),
        (lambda: Agent("a", does=""), "agent 'a': does is empty"),
        (lambda: Agent("a", does=" \n"), "agent 'a': does is empty"),
        (lambda: Agent("a", does=None), "agent 'a': does has to be str, not NoneType"),  # type: ignore[call-overload]
        (
            lambda: Agent("a", does="d", tools=[look, look_again]),
            "agent 'a': tools has two tools named 'look'",
        ),
        (lambda: Agent("a", does="d", tools=[task], team=[helper]), "agent 'a': tools has one named 'task'"),
        (
            lambda: Agent("a", does="d", tools=[task]).with_team(helper),
            "agent 'a': tools has one named 'task'",
        ),
        (
            lambda: Agent("a", does="d", tools=[len]),  # type: ignore[list-item]
            "agent 'a': tools has len, which is no tool: declare it with @tool",
        ),
        (
            lambda: Agent("a", does="d", team=[helper, helper]),
            "agent 'a': team has two agents named 'helper'",
        ),
        (lambda: Agent("a", does="d", team=["helper"]), "agent 'a': team has 'helper', which is no Agent"),  # type: ignore[list-item]
        (
            lambda: Agent("a", does="d", soul="x", soul_file="y"),
            "agent 'a': soul and soul_file are both given",
        ),
        (lambda: Agent("a", does="d", soul=3), "agent 'a': soul has to be"),  # type: ignore[call-overload]
        (
            lambda: Agent("a", does="d", soul_file="/nowhere/at/all"),
            "agent 'a': soul_file '/nowhere/at/all' is not there",
        ),
        (lambda: Agent("a", does="d", budget=3), "agent 'a': budget has to be Budget or None, not int"),  # type: ignore[call-overload]
        (lambda: Agent("a", does="d", settings={}), "agent 'a': settings has to be"),  # type: ignore[call-overload]
        (lambda: Agent("a", does="d", model=3), "agent 'a': model has to be Model or str or None, not int"),  # type: ignore[call-overload]
        (lambda: Agent("a", does="d", model=" "), "agent 'a': model is empty"),
        (lambda: Agent("a", does="d", wait_for=3), "agent 'a': wait_for has to be"),  # type: ignore[call-overload]
        (
            lambda: Agent("a", does="d", tools=[helper]),  # type: ignore[list-item]
            r"agent 'a': tools has <Agent helper>, .* team=\[…\], or write .as_tool\(\)",
        ),
    ],
)
def test_a_bad_declaration_names_agent_and_field(make: Any, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        make()


def test_negative_caps_name_the_field() -> None:
    with pytest.raises(ValidationError, match="max_tokens"):
        Budget(max_tokens=-1)


def test_task_is_free_without_a_team() -> None:
    assert Agent("a", does="d", tools=[task]).tools == (task,)


# ------------------------------------------------------------------ deps


def test_deps_of_a_team_have_to_fit() -> None:
    needs_db = Agent("m", does="d", deps_type=Db)
    needs_postgres = Agent("m", does="d", deps_type=PostgresDb)
    needs_protocol = Agent("m", does="d", deps_type=Goes)
    Agent("a", does="d", team=[needs_db], deps_type=Db)
    Agent("a", does="d", team=[needs_db], deps_type=PostgresDb)
    Agent("a", does="d", team=[helper], deps_type=Db)
    Agent("a", does="d", team=[needs_protocol], deps_type=Db)
    Agent("a", does="d", team=[Agent("m", does="d", deps_type=dict[str, int])], deps_type=dict[str, int])
    for wrong in (
        lambda: Agent("a", does="d", team=[needs_db]),
        lambda: Agent("a", does="d", team=[needs_postgres], deps_type=Db),
        lambda: Agent("a", does="d", deps_type=Db).with_team(needs_postgres),
        lambda: Agent("a", does="d", team=[needs_db], deps_type=int),
    ):
        with pytest.raises(DefinitionError, match="agent 'a': team member 'm' needs deps of type"):
            wrong()


def test_missing_deps_are_an_error_before_anything_happens() -> None:
    agent = Agent("a", does="d", deps_type=Db, model="x:y")
    with pytest.raises(MissingDeps, match="agent 'a' is declared with deps_type=Db"):
        check_run(agent, {})
    with pytest.raises(MissingDeps):
        check_run(agent, {"deps": None})
    check_run(agent, {"deps": Db()})
    assert declared(agent).agents == {"a": agent}
    check_run(Agent("a", does="d", model="x:y"), {})
    check_run(Agent("a", does="d", model="x:y", deps_type=type(None)), {"deps": None})


# ------------------------------------------------------------------ models and options


def test_no_model_anywhere() -> None:
    child = Agent("child", does="d")
    parent = Agent("parent", does="d", team=[child])
    with pytest.raises(NoModel, match="agent 'parent' has no model"):
        check_run(parent, {})
    check_run(parent, {"model": "x:y"})
    assert set(declared(parent).agents) == {"parent", "child"}


def test_the_agents_model_then_the_runs_then_the_entry_agents() -> None:
    child = Agent("child", does="d")
    parent = Agent("parent", does="d", team=[child], model="p:p")
    assert model_of(parent, entry=parent, options={"model": "r:r"}) == "p:p"
    assert model_of(child, entry=parent, options={"model": "r:r"}) == "r:r"
    assert model_of(child, entry=parent, options={}) == "p:p"
    check_run(parent, {})


@pytest.mark.parametrize(
    "options",
    [
        {"modell": "x:y"}, {"inbox_cap": 0}, {"inbox_cap": "8"}, {"max_concurrent_turns": 0}, {"max_divergences": -1},
        {"max_result_chars": 0}, {"shutdown": -1}, {"claim": 0}, {"claim": float("nan")}, {"run_id": ""}, {"model": 3},
    ],
)  # fmt: skip
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match=f"option '{next(iter(options))}'"):
        check_run(Agent("a", does="d"), {"model": "x:y", **options})


class NoSleep:
    def now(self) -> None: ...
    def monotonic(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"resume_policy": "rewnd"}, "option 'resume_policy' is 'rewind' or 'continue', not 'rewnd'"),
        ({"resume_policy": None}, "'rewind' or 'continue', not None"),
        ({"resume_policy": ["rewind"]}, "'rewind' or 'continue'"),
        ({"wait_for": 3}, "option 'wait_for' has to be a function, not int"),
        ({"on_pending": "print"}, "option 'on_pending' has to be a function, not str"),
        ({"verify_answer": True}, "option 'verify_answer' has to be a function, not bool"),
        ({"clock": 3}, "option 'clock' has to be a Clock: int has no method 'now'"),
        ({"clock": NoSleep()}, "option 'clock' .* NoSleep has no method 'sleep'"),
        ({"clock": SystemClock}, "option 'clock' has to be a Clock, not the class SystemClock"),
        ({"store": "runs.db"}, r"option 'store' .* SQLiteStore\(path\), not str"),
        ({"store": MemoryStore}, "option 'store' .* not the class MemoryStore"),
    ],
)
def test_what_a_host_hands_in_is_checked(options: dict[str, object], match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        Runtime(Agent("a", does="d", model=MockModel([])), **cast("Any", options))


def test_what_is_fine_passes() -> None:
    for policy in ("continue", ResumePolicy.REWIND):
        check_run(Agent("a", does="d", model="x:y"), {"resume_policy": policy, "clock": SystemClock()})
    nothing = {"wait_for": None, "on_pending": None, "verify_answer": None, "clock": None, "store": None}
    check_run(Agent("a", does="d", model="x:y"), nothing)


@pytest.mark.parametrize("store", ["runs.db", Path("runs.db"), MemoryStore])
async def test_open_says_what_a_store_is(store: Any) -> None:
    with pytest.raises(UsageError, match=r"SQLiteStore\(path\)"):
        await Runtime.open(Agent("a", does="d", model="x:y"), "run", store=store)


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tool_calls=tuple(ToolCall(id=id, name="look") for id in ids))


def returned(id: str) -> ToolMessage:
    return ToolMessage(text="r", call_id=id, name="look")


HI = UserMessage(text="hi")


@pytest.mark.parametrize(
    ("history", "match"),
    [
        ("hi", "has to be a list of messages, not str"),
        (HI, "has to be a list of messages, not UserMessage"),
        (["hi"], "item 0 has to be a message .* not str"),
        ([HI, {"role": "user", "text": "hi"}], "item 1 has to be a message .* not dict"),
        ([HI, calls("c1")], "call 'c1' of item 1 has no result"),
        ([calls("c1", "c2"), returned("c1"), HI], "call 'c2' of item 0 has no result"),
        ([calls("c1"), HI, returned("c1")], "call 'c1' of item 0 has no result"),
        ([calls("c1"), calls("c2"), returned("c2")], "call 'c1' of item 0 has no result"),
        ([HI, returned("c9")], "item 1 is a result of call 'c9'"),
        ([calls("c1"), returned("c1"), returned("c1")], "item 2 is a result of call 'c1'"),
        ([calls("c1"), returned("c2")], "item 1 is a result of call 'c2'"),
        ([calls("c1", "c1"), returned("c1")], "item 0 has two calls 'c1'"),
    ],
)
def test_a_history_no_provider_takes_is_refused(history: Any, match: str) -> None:
    with pytest.raises(DefinitionError, match=f"option 'history'.*{match}"):
        Runtime(Agent("a", does="d", model=MockModel([])), history=history)


async def test_a_balanced_history_is_taken() -> None:
    history: list[Message] = [
        SystemMessage(text="s"), HI, calls("c1", "c2"), returned("c2"), returned("c1"), AssistantMessage(text="so"),
        calls("c3"), returned("c3"),
    ]  # fmt: skip
    result, runtime = await Agent("a", does="d", model=MockModel([say("end")])).run("go", history=history)
    assert list(runtime.transcript(result.handle))[:-2] == history


# ------------------------------------------------------------------ instructions


def test_instructions(tmp_path: Path) -> None:
    assert instructions(Agent("a", does="d"), None) is None
    assert instructions(Agent("a", does="d", soul="Be\ud800."), None) == "Be\ufffd."
    of_deps = Agent("a", does="d", soul=lambda db: f"{type(db).__name__}", deps_type=Db)
    assert instructions(of_deps, PostgresDb()) == "PostgresDb"
    with pytest.raises(DefinitionError, match="soul returned"):
        instructions(Agent("a", does="d", soul=lambda _: 3), None)  # type: ignore[arg-type, return-value]


def test_the_file_is_read_when_the_run_starts(tmp_path: Path) -> None:
    file = tmp_path / "soul.md"
    file.write_text("first", encoding="utf-8")
    agent = Agent("a", does="d", soul_file=file)
    file.write_text("sécond", encoding="utf-8")
    assert instructions(agent, None) == "sécond"
    file.write_bytes(b"\xff")
    with pytest.raises(DefinitionError, match="agent 'a': soul_file"):
        instructions(agent, None)
    file.unlink()
    with pytest.raises(DefinitionError, match="agent 'a': soul_file"):
        instructions(agent, None)


# ------------------------------------------------------------------ teams by name


def agent(name: str, *team: Agent[Any, Any]) -> Agent[None, str]:
    return Agent(name, does="d", team=team)


def test_a_tree_resolves_entry_first() -> None:
    c = agent("c")
    b = agent("b", c)
    a = agent("a", b, c)
    assert resolve_team(a) == {"a": a, "b": b, "c": c}
    assert next(iter(resolve_team(a))) == "a"


def test_with_team_makes_a_new_agent_and_teams_may_be_cyclic() -> None:
    a0 = agent("a")
    b = agent("b", a0)
    a = a0.with_team(b)
    assert (a0.team, a.team, a.name, a.does) == ((), (b,), "a", "d")
    assert resolve_team(a) == {"a": a, "b": b}
    assert resolve_team(b) == {"b": b, "a": a0}
    x = agent("x", a, b)
    assert resolve_team(x) == {"x": x, "a": a, "b": b}
    itself = a0.with_team(a0)
    assert resolve_team(itself) == {"a": itself}


def test_a_longer_cycle_and_a_second_rewiring() -> None:
    a0 = agent("a")
    b = agent("b", a0)
    c = agent("c", b)
    a1 = a0.with_team(c)
    assert resolve_team(a1) == {"a": a1, "b": b, "c": c}
    d = agent("d", a1)
    a2 = a1.with_team(d)
    assert resolve_team(a2) == {"a": a2, "d": d}
    a3 = a1.with_team(c, d)
    assert resolve_team(a3) == {"a": a3, "b": b, "c": c, "d": d}


def test_two_different_agents_of_one_name_are_refused() -> None:
    one, two = agent("same"), agent("same")
    with pytest.raises(DefinitionError, match="agent 'same': the teams of this run have 2 different agents"):
        resolve_team(agent("a", agent("b", one), agent("c", two)))
    with pytest.raises(DefinitionError, match="agent 'a'"):
        resolve_team(agent("a", agent("b", agent("a"))))
    rewired = one.with_team(agent("z"))
    with pytest.raises(DefinitionError, match="agent 'same'"):
        resolve_team(agent("a", agent("b", one), agent("c", rewired)))


# ------------------------------------------------------------------ run and run_sync


tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam: what stands behind `overt.runtime`."""

    class Runtime:
        def __init__(self, agent: Agent[Any, Any], **options: Any) -> None:
            check_run(agent, options)
            self.agent, self.options = agent, options

        async def run(self, prompt: str) -> tuple[str, str]:
            import anyio.lowlevel

            await anyio.lowlevel.checkpoint()
            return prompt, tenant.get()

    module = types.ModuleType("overt.runtime")
    module.Runtime = Runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "overt.runtime", module)


@pytest.mark.usefixtures("runtime")
@pytest.mark.anyio
async def test_run_is_a_runtime_and_its_run() -> None:
    made = Agent("a", does="d", model="x:y")
    result, rt = cast("tuple[Any, Any]", await made.run("hello", run_id="r"))
    assert result == ("hello", "nobody")
    assert (rt.agent, rt.options) == (made, {"run_id": "r"})
    with pytest.raises(NoModel):
        await helper.run("hello")


@pytest.mark.usefixtures("runtime")
@pytest.mark.anyio
async def test_run_sync_refuses_inside_a_running_loop() -> None:
    with pytest.raises(UsageError, match=r"await agent\.run"):
        Agent("a", does="d", model="x:y").run_sync("p")


@pytest.mark.usefixtures("runtime")
def test_run_sync_everywhere_else() -> None:
    made: Any = Agent("a", does="d", model="x:y")
    assert made.run_sync("p")[0] == made.run_sync("p")[0] == ("p", "nobody")

    asyncio.run(asyncio.sleep(0))
    token = tenant.set("acme")
    assert made.run_sync("p")[0] == ("p", "acme")
    tenant.reset(token)

    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(made.run_sync("p")[0]))
    thread.start()
    thread.join()
    assert got == [("p", "nobody")]

    async def inside() -> object:
        return (await made.run("p"))[0]

    assert asyncio.run(inside()) == asyncio.run(inside())
    with pytest.raises(NoModel):
        helper.run_sync("p")


def test_import_is_quick_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import overt, sys; assert not {'sqlite3', 'openai', 'trio', 'docstring_parser'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
