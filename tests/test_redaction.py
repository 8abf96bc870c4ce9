"""Values of named fields are left out before anything is decided on: for models, journal, events, approvers alike."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt import (
    AfterTool,
    Agent,
    Allow,
    Answer,
    Ask,
    Attempt,
    BeforeLLM,
    BeforeTool,
    Completion,
    Deny,
    GuardrailEvent,
    Hooks,
    LLMOverride,
    Message,
    OutputEvent,
    Request,
    ResumePolicy,
    Runtime,
    Status,
    ToolContext,
    ToolMessage,
    ToolOverride,
    ToolResult,
    UserMessage,
    pending,
    tool,
)
from overt._redaction import REDACTED, Redaction
from overt.errors import DefinitionError, ModelError, ToolError
from overt.message import AssistantMessage, ModelRequest, ToolCall
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, Reply, call, say
from tests.suspend_kit import approve, yes

SECRET = "s3cr3t-4929"
POLICIES = pytest.mark.parametrize("policy", list(ResumePolicy))
REDACT = ["card", "Token"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


def in_the_files(folder: Path) -> bool:
    names = sorted(path.name for path in folder.iterdir())
    assert "runs.db-wal" in names, "the write-ahead log is looked at too"
    return any(SECRET.encode() in path.read_bytes() for path in folder.iterdir())


async def nowhere(runtime: Runtime[Any], *more: object) -> None:
    """Assert that what a host reads of a run does not have it."""
    result = runtime.result()
    assert SECRET not in result.model_dump_json()
    assert SECRET not in "".join(runtime.trace())
    assert SECRET not in "".join(event.model_dump_json() for event in runtime.events())
    for view in runtime.list():
        for message in runtime.transcript(view.id, uncommitted=True):
            assert SECRET not in message.model_dump_json()
    for one in more:
        assert SECRET not in str(one)


NESTED: dict[str, Any] = {
    "card": SECRET, "ok": [1, {"TOKEN": [SECRET, {"x": SECRET}]}], "deep": {"a": [[{"b": {"card": {"n": SECRET}}}]]},
    "as_text": json.dumps({"token": SECRET}), "n": None,
}  # fmt: skip
CLEAN: dict[str, Any] = {
    "card": REDACTED, "ok": [1, {"TOKEN": REDACTED}], "deep": {"a": [[{"b": {"card": REDACTED}}]]},
    "as_text": '{"token":"[redacted]"}', "n": None,
}  # fmt: skip


@tool
async def as_value() -> Any:
    """Give a structure."""
    return NESTED


@tool(on_replay="reuse")
async def as_text() -> str:
    """Give JSON text."""
    return json.dumps(NESTED, indent=1)


@tool
async def as_list() -> Any:
    """Give a list."""
    return [NESTED, "x", json.dumps([NESTED])]


@tool
async def as_bytes() -> bytes:
    """Give bytes."""
    return json.dumps(NESTED).encode()


@tool
async def as_metadata() -> ToolResult:
    """Give metadata."""
    return ToolResult("x", metadata={"v": NESTED, "card": SECRET})


@tool
async def as_error() -> str:
    """Fail with a body."""
    raise ValueError(f"400: {json.dumps(NESTED)} after {json.dumps(NESTED)}")


@tool
async def as_tool_error() -> str:
    """Fail in words for the model."""
    raise ToolError(json.dumps({"token": SECRET}))


@tool
async def in_once(ctx: ToolContext) -> str:
    """Fail in a block."""

    async def fn() -> str:
        raise RuntimeError(json.dumps({"token": SECRET}))

    return await ctx.once("l", fn)


@tool
async def asks(ctx: ToolContext) -> str:
    """Ask with data."""
    answer = await ctx.ask("ok?", data=NESTED)
    return str(answer.ok)


@tool
async def waits(ctx: ToolContext) -> ToolResult:
    """Ask by a result."""
    if ctx.answer is not None:
        return ToolResult("waited")
    return pending(kind="k", prompt="well?", data={"card": SECRET, "shown": 1})


TOOLS: list[Any] = [
    as_value,
    as_text,
    as_list,
    as_bytes,
    as_metadata,
    as_error,
    as_tool_error,
    in_once,
    asks,
    waits,
]


@POLICIES
async def test_the_secret_is_nowhere_live_and_after_a_resume(
    store: SQLiteStore, tmp_path: Path, policy: ResumePolicy
) -> None:
    requests: list[ModelRequest] = []
    told: list[Request] = []

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return [call(one.name) for one in TOOLS] if request.messages[-1].role == "user" else say("end")

    async def on_pending(request: Request) -> None:
        told.append(request)

    agent = Agent("a", does="works", tools=TOOLS, model=MockModel(script))
    options: dict[str, Any] = {"store": store, "resume_policy": policy, "on_pending": on_pending}
    async with agent.stream("go", run_id="r", redact=REDACT, **options) as stream:
        live = [event async for event in stream]
    result = await stream.result()
    assert [r.data.get("shown", r.data.get("card")) for r in result.pendings] == [REDACTED, 1]
    assert {key: value for key, value in result.pendings[0].data.items() if key != "call"} == CLEAN
    assert SECRET not in "".join(event.model_dump_json() for event in live)
    await nowhere(stream.runtime, told)

    # Another process, which names nothing: the names are the run's.
    runtime = await Runtime.open(agent, "r", **options)
    await nowhere(runtime)
    result = await runtime.resume([yes(request) for request in runtime.pendings()])
    assert (result.status, result.text) == (Status.DONE, "end")
    assert result.replay is not None
    assert not any("diverged" in line.lower() for line in runtime.trace()), "the same questions as before"
    await nowhere(runtime, requests, told)
    texts = {m.name: m.text for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)}
    assert json.loads(texts["as_value"]) == CLEAN
    assert json.loads(texts["as_text"]) == CLEAN
    assert json.loads(texts["as_list"])[:2] == [CLEAN, "x"]
    assert json.loads(json.loads(texts["as_bytes"])) == CLEAN
    assert texts["as_error"].count('{"card":"[redacted]",') == 2
    assert texts["as_tool_error"] == '{"token":"[redacted]"}'
    reader = await Runtime.open(agent, "r", **options)
    assert reader.result() == result
    assert reader.transcript(result.handle) == runtime.transcript(result.handle)
    assert not in_the_files(tmp_path)


async def test_without_the_option_it_is_all_there(store: SQLiteStore, tmp_path: Path) -> None:
    agent = Agent(
        "a", does="works", tools=TOOLS, model=MockModel([[call(one.name) for one in TOOLS], say("end")])
    )
    _, runtime = await agent.run("go", store=store)
    assert in_the_files(tmp_path)
    assert SECRET in "".join(event.model_dump_json() for event in runtime.events())


async def test_hooks_see_it_redacted_and_what_they_give_is_redacted_too(
    store: SQLiteStore, tmp_path: Path
) -> None:
    seen: list[object] = []

    def before_tool(event: BeforeTool) -> ToolOverride | None:
        if event.call.name != "as_text":
            return None
        return ToolOverride(result=ToolResult(json.dumps(NESTED), metadata={"card": SECRET}))

    def after_tool(event: AfterTool) -> ToolOverride | None:
        seen.append(event)
        if event.call.name != "as_list":
            return None
        return ToolOverride(result=ToolResult(json.dumps(NESTED), metadata={"card": SECRET}))

    def before_llm(event: BeforeLLM) -> LLMOverride | None:
        seen.append(event)
        if event.turn != 2:
            return None
        made = ToolMessage(text=json.dumps(NESTED), call_id="h", name="x", metadata={"card": SECRET})
        asked = AssistantMessage(tool_calls=(ToolCall(id="h", name="x"),))
        return LLMOverride(messages=[*event.messages, asked, made])

    tools = [as_value, as_text, as_list]
    hooks = Hooks(before_tool=before_tool, after_tool=after_tool, before_llm=before_llm)
    model = MockModel(lambda r: say("end") if len(r.messages) > 1 else [call(one.name) for one in tools])
    agent = Agent("a", does="works", tools=tools, model=model, hooks=hooks)
    _, runtime = await agent.run("go", store=store, run_id="r", redact=REDACT)
    await nowhere(runtime, seen, model.requests)
    assert not in_the_files(tmp_path)
    messages = [m for m in runtime.transcript("root/a.1") if isinstance(m, ToolMessage)]
    assert len(messages) == 4
    assert all(REDACTED in m.text for m in messages)


def denies(event: GuardrailEvent) -> Deny | Allow:
    return Deny(f"not with {json.dumps({'card': SECRET})}") if event.call.name == "as_value" else Allow()


def raises(event: GuardrailEvent) -> Allow:
    if event.call.name == "as_text":
        raise RuntimeError(json.dumps({"card": SECRET, "more": "x" * 1_000}))
    return Allow()


async def slow(event: GuardrailEvent) -> Allow:
    return raises(event)


def of_output(event: OutputEvent) -> Deny:
    return Deny(json.dumps({"token": SECRET}))


@pytest.mark.parametrize("rules", [[denies, raises], [denies, slow]])
async def test_what_guardrails_say(store: SQLiteStore, tmp_path: Path, rules: list[Any]) -> None:
    tools = [as_value, as_text]
    model = MockModel([[call(one.name) for one in tools], say("end")])
    agent = Agent(
        "a", does="works", tools=tools, model=model, guardrails=rules, output_guardrails=[of_output]
    )
    result, runtime = await agent.run("go", store=store, redact=REDACT)
    assert result.error is not None
    assert result.error.type == "GuardrailDenied"
    await nowhere(runtime, model.requests)
    assert not in_the_files(tmp_path)


async def fails(attempt: Attempt) -> tuple[bool, str]:
    return False, json.dumps({"token": SECRET})


async def breaks(attempt: Attempt) -> tuple[bool, str]:
    raise RuntimeError(json.dumps({"token": SECRET, "more": "x" * 1_000}))


@pytest.mark.parametrize("verify", [fails, breaks])
async def test_what_a_gate_says(store: SQLiteStore, tmp_path: Path, verify: Any) -> None:
    model = MockModel([say("one"), say("two")])
    agent = Agent("a", does="works", model=model, completion=Completion(verify=verify, max_attempts=2))
    _, runtime = await agent.run("go", store=store, redact=REDACT)
    await nowhere(runtime, model.requests)
    assert not in_the_files(tmp_path)


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
@pytest.mark.parametrize("error", [ModelError, RuntimeError])
async def test_errors_of_models(
    store: SQLiteStore, tmp_path: Path, size: int, error: type[Exception]
) -> None:
    body = json.dumps({"request": {"patient": SECRET}, "more": "x" * size})
    raised = ModelError(f"500: {body}", detail=body, status_code=500) if error is ModelError else error(body)
    agent = Agent("a", does="works", model=MockModel([raised]))
    result, runtime = await agent.run("go", store=store, redact=["Patient"])
    assert result.error is not None
    await nowhere(runtime)
    if error is ModelError and size < 50_000:
        assert result.error.detail is not None
        assert REDACTED in result.error.detail
    assert not in_the_files(tmp_path)


async def test_hosts_that_fail_over_it(store: SQLiteStore, tmp_path: Path) -> None:
    async def wait_for(request: Request) -> Answer[Any] | None:
        raise RuntimeError(json.dumps({"token": SECRET}))

    async def on_pending(request: Request) -> None:
        raise RuntimeError(json.dumps({"token": SECRET}))

    agent = Agent("a", does="works", tools=[asks], model=MockModel([call("asks")]))
    result, runtime = await agent.run(
        "go", store=store, redact=REDACT, wait_for=wait_for, on_pending=on_pending
    )
    assert result.status is Status.PENDING
    await nowhere(runtime)
    assert not in_the_files(tmp_path)


async def test_results_in_a_history(store: SQLiteStore, tmp_path: Path) -> None:
    history: list[Message] = [
        UserMessage(text="before"),
        AssistantMessage(tool_calls=(ToolCall(id="x", name="t"),)),
        ToolMessage(text=json.dumps(NESTED), call_id="x", name="t", metadata={"v": NESTED}),
    ]
    model = MockModel([say("end")])
    agent = Agent("a", does="works", model=model)
    _, runtime = await agent.run("go", store=store, redact=REDACT, history=history)
    await nowhere(runtime, model.requests)
    assert not in_the_files(tmp_path)


# ------------------------------------------------------------------ what stays, and why


async def test_arguments_answers_and_kept_values_are_recorded_as_they_are(store: SQLiteStore) -> None:
    """A key is a digest of the arguments, and what was answered or kept is what the tool goes on with."""
    entered: list[tuple[Any, ...]] = []

    @tool
    async def pay(ctx: ToolContext, card: str) -> str:
        """Pay."""

        async def fn() -> dict[str, str]:
            return {"token": SECRET}

        kept = await ctx.once("quote", fn)
        answer = await ctx.ask("ok?", data={"card": card})
        entered.append((card, kept, answer.data, ctx.idempotency_key))
        return json.dumps({"card": card, **kept})

    def rule(event: GuardrailEvent) -> Allow | Ask:
        return Allow()

    agent = Agent(
        "a",
        does="works",
        tools=[pay],
        guardrails=[rule],
        model=MockModel([call("pay", card=SECRET), say("end")]),
    )
    options: dict[str, Any] = {"store": store, "redact": REDACT}
    result, runtime = await agent.run("go", run_id="r", **options)
    (request,) = result.pendings
    assert request.data == {"card": REDACTED, "call": {"tool": "pay", "arguments": {"card": SECRET}}}
    runtime = await Runtime.open(agent, "r", **options)
    await runtime.resume(yes(request, {"card": SECRET}))
    assert [one[:3] for one in entered] == [(SECRET, {"token": SECRET}, {"card": SECRET})]
    (message,) = [m for m in runtime.transcript("root/a.1") if isinstance(m, ToolMessage)]
    assert json.loads(message.text) == {"card": REDACTED, "token": REDACTED}


async def test_names_are_the_runs_until_others_are_given(store: SQLiteStore) -> None:
    asked = [call("approve"), call("as_value"), say("end")]
    agent = Agent("a", does="works", tools=[approve, as_value], model=MockModel(asked))
    options: dict[str, Any] = {"store": store, "resume_policy": ResumePolicy.CONTINUE}

    async def carried_on(run_id: str, **more: Any) -> tuple[str, str]:
        result, _ = await agent.run("go", run_id=run_id, redact=["card"], **options)
        assert result.pending is not None
        runtime = await Runtime.open(agent, run_id, **options, **more)
        result = await runtime.resume(yes(result))
        messages = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
        return messages[-1].text, "".join(runtime.trace())

    text, trace = await carried_on("one")
    assert (json.loads(text)["card"], json.loads(text)["ok"]) == (REDACTED, NESTED["ok"])
    assert "PlanChanged" not in trace
    text, trace = await carried_on("two", redact=["token"])
    assert (json.loads(text)["card"], json.loads(text)["ok"]) == (SECRET, CLEAN["ok"])
    assert "PlanChanged" in trace, "and that is recorded"
    text, trace = await carried_on("three", redact=[])
    assert json.loads(text)["card"] == SECRET


@pytest.mark.parametrize(
    ("redact", "told"),
    [
        ("card", "a list of field names, not str"),
        ([1], "and has 1"),
        (["a", " "], "and has ' '"),
        (None, "not NoneType"),
    ],
)
def test_what_are_no_names_is_refused(redact: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=f"option 'redact' .*{told}"):
        Runtime(Agent("a", does="works", model=MockModel([])), redact=redact)


# ------------------------------------------------------------------ texts

R = Redaction(["Password", "straße"])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"password": 1}', '{"password":"[redacted]"}'),
        ('{"PASSWORD": null, "b": 1.50}', '{"PASSWORD":"[redacted]","b":1.5}'),
        ('{"STRASSE": 1}', '{"STRASSE":"[redacted]"}'),
        (r'{"pass\u0077ord": 1}', '{"password":"[redacted]"}'),
        ('{"password": 1, "password": 2}', '{"password":"[redacted]"}'),
        ('ValueError: {"password": {"a": 1}} and {"b": 2}', 'ValueError: {"password":"[redacted]"} and {"b": 2}'),
        ('```json\n{\n "password": [1]\n}\n```', '```json\n{"password":"[redacted]"}\n```'),
        ('{"password":1}\n{"a":1}\r\n[1]', '{"password":"[redacted]"}\n{"a":1}\r\n[1]'),
        (r'x ["{\"password\":1}"] y', r'x ["{\"password\":\"[redacted]\"}"] y'),
        ('[{"password":1},{"password":2}]', '[{"password":"[redacted]"},{"password":"[redacted]"}]'),
        (r'"{\"password\":1}"', r'"{\"password\":\"[redacted]\"}"'),
        (r'{"body":"{\"password\":1}"}', r'{"body":"{\"password\":\"[redacted]\"}"}'),
        ('\ufeff {"password":1}', '\ufeff {"password":"[redacted]"}'),
        ('{"password":1,"f":1e400,"n":NaN}', '{"password":"[redacted]","f":"1e400","n":NaN}'),
        ('{"password":"\x00\n"}', '{"password":"[redacted]"}'),
        ('{ {"password":1}', '{ {"password":"[redacted]"}'),
        ('{"passwords":1,"a":"password"}', '{"passwords":1,"a":"password"}'),
        ('{"password": 1', '{"password": 1'),
        ("{'password': 1}", "{'password': 1}"),
        ("password=1", "password=1"),
        ("", ""),
    ],
)  # fmt: skip
def test_texts(text: str, left: str) -> None:
    assert R.text(text) == left


def test_numbers_too_long_for_python_do_not_let_it_through() -> None:
    assert (
        R.text('{"password":1,"n":' + "9" * 5_000 + "}")
        == '{"password":"[redacted]","n":"' + "9" * 5_000 + '"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"password":' + "[" * 100_000,
        '{"a":' * 100_000 + '"password"',
        ('{"a":[' + "1," * 1_000) * 100 + "password",
    ],
    ids=["deep list", "deep object", "read over and over"],
)
def test_what_cannot_be_looked_through_is_left_out_whole(text: str) -> None:
    assert R.text(text) == REDACTED


def test_a_text_without_any_is_the_same_object() -> None:
    for text in ("x", '{"a":1.10}', '{"a": "password"}', "{" * 1_000 + "password"):
        assert R.text(text) is text


names = st.sampled_from(["password", "Password", "a", "b"])
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3).map(json.dumps)
    ),
    max_leaves=12,
)


def fields(value: Any) -> list[Any]:
    """Values of the field, wherever they stand, in text too."""
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return []
        return fields(found) if isinstance(found, (dict, list)) else []
    if isinstance(value, list):
        return [one for item in value for one in fields(item)]
    if isinstance(value, dict):
        return [
            one
            for key, item in value.items()
            for one in ([item] if key.casefold() == "password" else fields(item))
        ]
    return []


@given(trees)
def test_no_value_of_the_field_is_left_anywhere(value: Any) -> None:
    left = R.value(value)
    assert all(one == REDACTED for one in fields(left))
    assert R.value(left) == left
    text = json.dumps(value)
    assert all(one == REDACTED for one in fields(R.text(text)))
    if not fields(value):
        assert R.text(text) == text


async def test_a_store_in_memory_keeps_none_of_it_either() -> None:
    store = MemoryStore()
    agent = Agent(
        "a", does="works", tools=TOOLS, model=MockModel([[call(one.name) for one in TOOLS], say("end")])
    )
    await agent.run("go", store=store, run_id="r", redact=REDACT)
    assert SECRET not in "".join(rec.text for rec in await store.read("r"))
