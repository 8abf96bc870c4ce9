"""What type checkers see of models, stores, clocks and rules that users write. Each mistake carries its code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, assert_type

from overt import (
    Agent,
    Answer,
    AssistantMessage,
    Clock,
    Doubt,
    Guardrail,
    Model,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    Options,
    OutputGuardrail,
    PricedCall,
    Prices,
    Request,
    Resolver,
    StreamingModel,
    Succeeded,
    SystemClock,
    TodoItem,
    ToolCallDelta,
    ToolDecorator,
    WaitFor,
    require_approval,
    todo,
    tool,
)
from overt.models import register
from overt.stores import (
    Change,
    Claim,
    ImmediateStore,
    MemoryStore,
    OpenRequest,
    Owner,
    PostgresStore,
    Record,
    RunInfo,
    Store,
    StoreWrapper,
)


class Echo:
    """A model."""

    @property
    def name(self) -> str:
        return "echo"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(message=AssistantMessage(text=request.messages[-1].text))


class Spoken(Echo):
    """A model that streams."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        for message in request.messages:
            yield ModelDelta(text=message.text)
        yield ModelDelta(tool_call=ToolCallDelta(index=0, name="t"), finish_reason="tool_calls")


class Blocking:
    """No model: it is not async."""

    name = "blocking"

    def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(message=AssistantMessage(text=""))


class Old:
    """No model: it takes texts."""

    name = "old"

    async def generate(self, request: Sequence[str]) -> ModelResponse:
        return ModelResponse(message=AssistantMessage(text=""))


class Wound:
    """A clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        del seconds


class Stopped(Wound):
    """No clock: it tells no time."""

    def now(self) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return "noon"


class Free:
    """Prices."""

    def price(self, call: PricedCall) -> Decimal | None:
        return None if call.usage.total_tokens else Decimal(0)


class Floating:
    """No prices: money is no float."""

    def price(self, call: PricedCall) -> float:
        return 0.1


class Logged(StoreWrapper):
    """A store around a store."""

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        found = await super().read(run_id, after=after)
        return [record for record in found if record.last > after]


class Kept(Store):
    """A store of one's own."""

    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim:
        return Claim(epoch=1, until=until)

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        assert_type(change.asked, tuple[OpenRequest, ...])
        return None

    async def info(self, run_id: str) -> RunInfo:
        raise NotImplementedError

    async def release(self, run_id: str) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        pass


async def test_a_model_of_ones_own_is_a_model() -> None:
    echo = Echo()
    assert isinstance(echo, Model)
    assert not isinstance(echo, StreamingModel)
    assert isinstance(Spoken(), StreamingModel)
    assert isinstance(Wound(), Clock)
    result, _ = await Agent("a", does="d").run("hello", model=echo)
    assert result.text == "hello"


if TYPE_CHECKING:
    model: Model = Echo()
    streaming: StreamingModel = Spoken()
    late: StreamingModel = Echo()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    blocking: Model = Blocking()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    old: Model = Old()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    clock: Clock = Wound()
    system: Clock = SystemClock()
    prices: Prices = Free()
    floats: Prices = Floating()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    store: Store = Logged(MemoryStore())
    immediate: ImmediateStore = MemoryStore()
    waits: ImmediateStore = PostgresStore("dsn")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    register("echo", lambda name: Echo())
    register("echo", lambda: Echo())  # type: ignore[misc, arg-type]  # pyright: ignore[reportArgumentType]
    register("echo", lambda name: name)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    Logged()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    PostgresStore("dsn", "schema")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Agent("a", does="d", model=Blocking())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

    async def answers(request: Request) -> Answer[int] | None:
        return Answer(id=request.id, ok=True, data=3)

    async def answers_text(request: Request) -> str:
        return request.id

    def answers_at_once(request: Request) -> Answer[int]:
        return Answer(id=request.id, ok=True, data=3)

    async def looks_up(doubt: Doubt[int]) -> Succeeded | None:
        return Succeeded(doubt.deps)

    wait_for: WaitFor = answers
    wait_text: WaitFor = answers_text  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    wait_sync: WaitFor = answers_at_once  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    resolver: Resolver[int] = looks_up
    other: Resolver[str] = looks_up  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    guardrail: Guardrail = require_approval("refund", when=lambda given: given["cents"] > 500)
    mixed: OutputGuardrail = require_approval("refund")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    require_approval(tools=["refund"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    decorator: ToolDecorator = tool(on_replay="reuse")
    item: TodoItem = {"text": "t", "status": "done"}
    bad: TodoItem = {"text": "t", "status": "finished"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]
    listed: Callable[[list[TodoItem]], Awaitable[str]] = todo

    def options(deps: int) -> Options[int]:
        return {"deps": deps, "clock": Wound(), "prices": Free(), "wait_for": answers, "redact": ("iban",)}

    def wrong_key() -> Options:
        return {"stor": MemoryStore()}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportReturnType]

    def wrong_deps() -> Options[int]:
        return {"deps": "three"}  # type: ignore[typeddict-item]  # pyright: ignore[reportReturnType]

    def wrong_value() -> Options:
        return {"on_drift": "ignore"}  # type: ignore[typeddict-item]  # pyright: ignore[reportReturnType]

    async def merged(agent: Agent[int, str], given: Options[int]) -> None:
        merged: Options[int] = {**given, "run_id": "r"}
        await agent.run("p", **merged)
        # Checkers count every key of a TypedDict that is unpacked: what is said twice is merged first.
        await agent.run("p", run_id="r", **given)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
        agent.run("p")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await agent.run(prompt="p", options=given)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
