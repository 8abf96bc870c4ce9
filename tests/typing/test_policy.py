"""What type checkers see of policy and typed output. Checked, never run: each mistake carries its code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, assert_never, assert_type

from pydantic import BaseModel, JsonValue
from typing_extensions import TypedDict

from overt import (
    AfterLLM,
    AfterTool,
    Agent,
    AgentTool,
    Allow,
    AnyTool,
    Ask,
    Attempt,
    BeforeLLM,
    BeforeTool,
    Budget,
    Completion,
    Deny,
    Extend,
    Guardrail,
    GuardrailEvent,
    Handle,
    Hooks,
    LimitDecision,
    LimitInfo,
    LLMOverride,
    Message,
    MetricEvent,
    ModelResponse,
    Options,
    OutputEvent,
    OutputGuardrail,
    PromptEvent,
    PromptGuardrail,
    Ruling,
    Stop,
    Suspend,
    TaskResult,
    ToolCall,
    ToolContext,
    ToolOverride,
    ToolResult,
    Usage,
    all_todos_done,
    compactor,
    output_is,
    require_approval,
    todo,
    tool,
)


def every_ruling(ruling: Ruling) -> str:
    match ruling:
        case Allow():
            return "allow"
        case Deny(reason):
            return reason
        case Ask(prompt=prompt):
            return prompt
        case _:
            assert_never(ruling)


def every_decision(decision: LimitDecision) -> Budget | str | None:
    match decision:
        case Stop():
            return None
        case Extend(budget=budget):
            return budget
        case Suspend(prompt=prompt):
            return prompt
        case _:
            assert_never(decision)


def test_every_ruling_and_decision_is_named() -> None:
    budget = Budget(max_tokens=1)
    assert [every_ruling(one) for one in (Allow(), Deny("no"), Ask("go?"))] == ["allow", "no", "go?"]
    assert [every_decision(one) for one in (Stop(), Extend(budget), Suspend("more?"))] == [
        None,
        budget,
        "more?",
    ]


if TYPE_CHECKING:
    from overt.runtime import Runtime

    class Db:
        """Deps of some tools."""

    class SubDb(Db):
        """Deps of a more particular kind."""

    class Out(BaseModel):
        """A typed output."""

        x: int

    @dataclass
    class Data:
        """One of another kind."""

        x: int

    class Keys(TypedDict):
        """And another."""

        x: int

    @tool
    def with_deps(ctx: ToolContext[Db], x: int) -> str:
        return f"{ctx.handle}{x}"

    # ---------------------------------------------------------------- typed output, in every overload

    assert_type(Agent("a", does="d", output_type=Out), Agent[None, Out])
    assert_type(Agent("a", does="d", output_type=Data), Agent[None, Data])
    assert_type(Agent("a", does="d", output_type=Keys), Agent[None, Keys])
    assert_type(Agent("a", does="d", output_type=Out | Data | None), Agent[None, Out | Data | None])
    assert_type(Agent("a", does="d", output_type=int), Agent[None, int])
    assert_type(Agent("a", does="d", output_type=str), Agent[None, str])
    assert_type(Agent("a", does="d", output_type=list[Out]), Agent[None, list[Out]])
    assert_type(Agent("a", does="d", output_type=dict[str, int]), Agent[None, dict[str, int]])
    assert_type(Agent("a", does="d", output_type=Literal["x", "y"]), Agent[None, Literal["x", "y"]])
    assert_type(Agent("a", does="d", output_type=Out, deps_type=Db, tools=[with_deps]), Agent[Db, Out])
    assert_type(Agent("a", does="d", output_type=Data, deps_type=Db), Agent[Db, Data])
    assert_type(Agent("a", does="d", output_type=Keys, deps_type=Db), Agent[Db, Keys])
    assert_type(Agent("a", does="d", output_type=int | str, deps_type=Db), Agent[Db, int | str])
    assert_type(Agent("a", does="d", output_type=bool, deps_type=Db), Agent[Db, bool])

    typed = Agent("a", does="d", output_type=Out)
    union = Agent("a", does="d", output_type=Out | Data, deps_type=Db)
    plain = Agent("a", does="d")

    async def outputs() -> None:
        result, runtime = await union.run("p", deps=Db())
        assert_type(result, TaskResult[Out | Data])
        assert_type(runtime, Runtime[Out | Data])
        assert_type(result.output, Out | Data | None)
        assert_type(result.unwrap(), Out | Data)
        assert_type(result.raise_for_status(), TaskResult[Out | Data])
        assert_type((await Agent("a", does="d", output_type=Keys).run("p"))[0].unwrap()["x"], int)
        assert_type(Agent("a", does="d", output_type=Data).run_sync("p")[0].unwrap().x, int)
        assert_type((await typed.run("p"))[0].unwrap().x, int)

    def text(result: TaskResult[Out]) -> TaskResult[str]:
        return result  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    def narrower(result: TaskResult[Out | Data]) -> TaskResult[Out]:
        return result  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    def unwrapped(result: TaskResult[Out | Data]) -> Out:
        return result.unwrap()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    # ---------------------------------------------------------------- guardrails

    def rule(event: GuardrailEvent) -> Ruling:
        assert_type(event.call, ToolCall)
        assert_type(event.call.arguments, dict[str, JsonValue])
        return Deny("no") if event.agent else Allow()

    async def asks(event: GuardrailEvent) -> Ask | Allow:
        return Ask(event.run_id, kind="review", answer_type=Out, expires_at=datetime.now())

    def on_prompt(event: PromptEvent) -> Ruling:
        assert_type(event.prompt, str)
        return Allow()

    async def on_output(event: OutputEvent) -> Deny:
        assert_type(event.output, object)
        return Deny(event.text)

    def everything(event: GuardrailEvent | PromptEvent | OutputEvent) -> Allow:
        return Allow()

    def no_ruling(event: GuardrailEvent) -> bool:
        return bool(event)

    assert_type(require_approval("refund"), Guardrail)
    assert_type(require_approval("a", "b", when=lambda given: bool(given.get("x"))), Guardrail)
    assert_type(require_approval("a"), Callable[[GuardrailEvent], Ruling | Awaitable[Ruling]])

    rules: list[Guardrail] = [rule, asks, everything, lambda event: Deny(event.call.name)]
    prompts: list[PromptGuardrail] = [on_prompt, everything, lambda event: Deny(event.prompt)]
    outputs_: list[OutputGuardrail] = [on_output, everything, lambda event: Deny(event.text)]
    assert_type(
        Agent(
            "a",
            does="d",
            guardrails=[rule, asks, everything, lambda event: Deny(event.call.name)],
            input_guardrails=[on_prompt, lambda event: Deny(event.prompt)],
            output_guardrails=[on_output, lambda event: Deny(event.text)],
        ),
        Agent[None, str],
    )
    guarded = Agent(
        "a", does="d", guardrails=rules, input_guardrails=prompts, output_guardrails=outputs_, deps_type=Db,
        output_type=Out,
    )  # fmt: skip
    assert_type(guarded, Agent[Db, Out])
    assert_type(guarded.guardrails, tuple[Guardrail, ...])
    assert_type(guarded.input_guardrails, tuple[PromptGuardrail, ...])
    assert_type(guarded.output_guardrails, tuple[OutputGuardrail, ...])

    def some_rulings(ruling: Ruling) -> int:
        match ruling:
            case Allow() | Deny():
                return 0
            case _:
                assert_never(ruling)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    Agent("a", does="d", guardrails=rule)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", guardrails=[no_ruling])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", guardrails=[on_prompt])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", guardrails=[require_approval])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", guardrails=["refund"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", input_guardrails=[rule])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", output_guardrails=[rule], output_type=Out)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    require_approval(refund=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    require_approval("refund", when=rule)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", guardrails=[lambda event: Deny(event.prompt)])  # type: ignore[attr-defined]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportAttributeAccessIssue]
    Deny()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Ask("p", "review")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Ask("p", until=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Deny("no").reason = ""  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    # ---------------------------------------------------------------- completion gate

    def good(attempt: Attempt) -> tuple[bool, str]:
        assert_type(attempt.output, str | None)
        assert_type(attempt.tool_calls, Sequence[tuple[ToolCall, ToolResult]])
        return attempt.number > 1, attempt.text

    async def good_out(attempt: Attempt[Out]) -> tuple[bool, str]:
        assert_type(attempt.output, Out | None)
        return True, ""

    def no_verdict(attempt: Attempt) -> bool:
        return bool(attempt)

    assert_type(Completion(good, max_attempts=2), Completion)
    assert_type(Agent("a", does="d", completion=Completion(good, max_attempts=2)), Agent[None, str])
    gated = Agent(
        "a", does="d", completion=Completion(good_out, max_attempts=2), output_type=Out, deps_type=Db
    )
    assert_type(gated, Agent[Db, Out])
    assert_type(gated.completion, Completion | None)
    assert_type(Completion(lambda attempt: (attempt.number > 1, "again"), max_attempts=3).max_attempts, int)

    assert_type(Completion(all_todos_done, max_attempts=2), Completion)
    assert_type(Completion(output_is(list[Out] | None), max_attempts=2), Completion)
    assert_type(Agent("a", does="d", tools=[todo, with_deps], deps_type=Db), Agent[Db, str])
    assert_type(Hooks(before_llm=compactor(max_tokens=9, summarize=lambda messages: messages[0].text)), Hooks)
    Completion(output_is, max_attempts=2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    compactor(max_tokens=9)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    compactor(max_tokens=9, summarize=str.upper)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    Agent("a", does="d", completion=good)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    Completion(good)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Completion(good, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Completion(good, max_attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Completion(no_verdict, max_attempts=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Completion(rule, max_attempts=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # ---------------------------------------------------------------- hooks and who is told

    def before_llm(event: BeforeLLM) -> LLMOverride | None:
        assert_type(event.messages, tuple[Message, ...])
        return LLMOverride(messages=event.messages[1:], tools=event.tools[:1])

    async def after_llm(event: AfterLLM) -> None:
        assert_type(event.response, ModelResponse)

    async def before_tool(event: BeforeTool) -> ToolOverride | None:
        assert_type(event.call, ToolCall)
        return ToolOverride(result=ToolResult("r"), arguments={"x": 1})

    def after_tool(event: AfterTool) -> ToolOverride:
        assert_type(event.result, ToolResult)
        return ToolOverride(result=event.result)

    def metric(event: MetricEvent) -> None:
        assert_type(event.event, Literal["llm", "tool", "run"])
        assert_type(event.usage, Usage | None)

    def spawned(handle: Handle) -> None:
        assert_type(handle.agent, str)

    def closed(handle: Handle, reason: str) -> None: ...

    async def metric_later(event: MetricEvent) -> None: ...

    hooks = Hooks(before_llm=before_llm, after_llm=after_llm, before_tool=before_tool, after_tool=after_tool)
    assert_type(hooks, Hooks)
    assert_type(Hooks(before_tool=lambda event: before_tool(assert_type(event, BeforeTool))), Hooks)
    assert_type(
        Agent("a", does="d", hooks=hooks, on_metric=metric, on_spawn=spawned, on_close=closed),
        Agent[None, str],
    )
    assert_type(
        Agent("a", does="d", on_close=lambda handle, reason: closed(handle, reason)),
        Agent[None, str],
    )

    Hooks(before_llm)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Hooks(before_llm=before_tool)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Hooks(after_tool=before_llm)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Hooks(on_tool=before_tool)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    LLMOverride(messages="text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ToolOverride(result="text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", hooks={"before_llm": before_llm})  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", on_metric=metric_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", on_spawn=closed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", on_close=spawned)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # ---------------------------------------------------------------- options

    def decide(info: LimitInfo) -> LimitDecision:
        return Extend(Budget(max_tokens=int(info.cap) * 2)) if info.at == "root" else Suspend("More?")

    async def decide_later(info: LimitInfo) -> Stop:
        return Stop()

    def no_decision(info: LimitInfo) -> bool:
        return bool(info)

    async def options() -> None:
        given: Options[Db] = {
            "deps": Db(),
            "guardrails": [rule, asks, require_approval("refund")],
            "input_guardrails": (on_prompt,),
            "output_guardrails": [on_output],
            "guardrail_timeout": 1.5,
            "on_limit": decide,
            "hooks": hooks,
            "on_metric": metric,
        }
        given["on_limit"] = lambda info: decide(assert_type(info, LimitInfo))
        await gated.run("p", **given)
        await plain.run("p", on_limit=decide_later, guardrails=rules, guardrail_timeout=3)
        await plain.run("p", on_limit=no_decision)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", on_limit=Stop())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", guardrails=rule)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", guardrails=[on_prompt])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        await plain.run("p", guardrail_timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", hooks=before_tool)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", on_metric=metric_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", completion=Completion(good, max_attempts=2))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    Extend(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Extend()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Suspend(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # ---------------------------------------------------------------- agents as tools

    with_db = Agent("a", does="d", tools=[with_deps], deps_type=Db, output_type=Out)
    db_tool = with_db.as_tool()
    free_tool = typed.as_tool(name="look", description="Looks.")
    assert_type(db_tool, AgentTool[Db, Out])
    assert_type(free_tool, AgentTool[object, Out])
    assert_type(Agent("a", does="d", deps_type=Db).as_tool(), AgentTool[Db, str])
    assert_type(union.as_tool(), AgentTool[Db, Out | Data])
    assert_type(Agent("a", does="d", tools=[free_tool]), Agent[None, str])
    assert_type(Agent("a", does="d", tools=[db_tool, free_tool, with_deps], deps_type=Db), Agent[Db, str])
    assert_type(Agent("a", does="d", tools=[db_tool], deps_type=SubDb), Agent[SubDb, str])
    fits: AnyTool[Db] = db_tool
    fits_none: AnyTool[None] = free_tool
    assert_type(free_tool.name, str)

    async def as_functions() -> None:
        assert_type(await db_tool("p", deps=Db()), TaskResult[Out])
        assert_type(await free_tool("p", run_id="r", on_limit=decide), TaskResult[Out])
        assert_type((await union.as_tool()("p", deps=Db())).output, Out | Data | None)
        assert_type(await plain.as_tool()("p"), TaskResult[str])
        given: Options[Db] = {"deps": Db(), "inbox_cap": 2}
        assert_type(await db_tool("p", **given), TaskResult[Out])
        await db_tool("p", deps=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await db_tool("p", depps=Db())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await db_tool(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await db_tool("p", None)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        db_tool("p")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]

    misfit: AnyTool[None] = db_tool  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    Agent("a", does="d", tools=[db_tool])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", tools=[typed])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Agent("a", does="d", tools=[db_tool], deps_type=int)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    typed.as_tool("look")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    typed.as_tool(name=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    db_tool.name = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
