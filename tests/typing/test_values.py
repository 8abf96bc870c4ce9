"""What type checkers see of errors, messages, settings and prices. Each mistake carries its code."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, assert_never, assert_type

from overt import (
    Answer,
    AssistantMessage,
    DefinitionError,
    Drift,
    ErrorInfo,
    FilePart,
    GenAIPrices,
    ImagePart,
    InboxItem,
    Message,
    MissingDeps,
    ModelSettings,
    NoModel,
    OvertError,
    Price,
    PricedCall,
    Prices,
    PriceTable,
    Replay,
    ReplayedCall,
    RetryPolicy,
    RunStopped,
    SystemMessage,
    TaskResult,
    TextPart,
    ToolCall,
    ToolError,
    ToolMessage,
    ToolSpec,
    Usage,
    UsageError,
    UserMessage,
    UserPart,
)
from overt.errors import (
    AlreadyAnswered,
    AwaitingAnswer,
    InvalidAnswer,
    JournalCorrupt,
    ModelError,
    RequestExpired,
    RunConflict,
    SpawnRefused,
    SpecDrift,
    StoreError,
    UnknownHandle,
    UnknownRequest,
    UnsupportedSchema,
)


def every_role(message: Message) -> str:
    match message:
        case SystemMessage():
            return message.text
        case UserMessage():
            return "".join(part_in_words(part) for part in message.parts)
        case AssistantMessage():
            assert_type(message.tool_calls, tuple[ToolCall, ...])
            return message.reasoning or message.text
        case ToolMessage():
            return message.call_id
        case _:
            assert_never(message)


def part_in_words(part: UserPart) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return part.url or "an image"
        case FilePart():
            return part.name or "a file"
        case _:
            assert_never(part)


def test_every_message_says_its_role() -> None:
    assert every_role(UserMessage(text="t", parts=(TextPart(text="x"), FilePart(url="u")))) == "xa file"
    assert every_role(ToolMessage(text="t", call_id="c", name="n")) == "c"


if TYPE_CHECKING:

    def misuse(error: UsageError) -> object:
        match error:
            case SpawnRefused():
                return assert_type(error.limit, str)
            case AwaitingAnswer():
                return assert_type(error.request_ids, tuple[str, ...])
            case UnknownRequest():
                return assert_type(error.open, tuple[str, ...])
            case AlreadyAnswered():
                assert_type(error.answer, Answer[object])
                return assert_type(error.same, bool)
            case RequestExpired():
                return assert_type(error.expires_at, datetime)
            case InvalidAnswer():
                return assert_type(error.places, tuple[str, ...])
            case SpecDrift():
                return assert_type(error.drifts, tuple[Drift, ...])
            case DefinitionError() | NoModel() | MissingDeps() | UnknownHandle():
                return str(error)
            case _:
                return error.owner  # type: ignore[attr-defined]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]

    def failures(error: OvertError) -> object:
        match error:
            case RunConflict():
                assert_type(error.until, datetime | None)
                return assert_type(error.owner, str | None)
            case JournalCorrupt() | UnsupportedSchema() | StoreError():
                return str(error)
            case ModelError():
                return assert_type(error.retry_after, float | None)
            case RunStopped():
                return assert_type(error.result, TaskResult[object])
            case _:
                return error.result  # type: ignore[attr-defined]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]

    def making() -> list[OvertError]:
        good: list[OvertError] = [
            ModelError("down", retryable=True, usage=Usage(input_tokens=3)),
            ToolError(3),
        ]
        ModelError("down", True)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        ModelError("down", status="500")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        SpawnRefused("no")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        return good

    def settings() -> None:
        ModelSettings(temperature=0.2, tool_choice="none", stop=("a",), extra={"top_p": 0.9})
        ModelSettings(tool_choice="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ModelSettings(max_tokens=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        RetryPolicy(max_retries="two")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(RetryPolicy().wait(1, retry_after=3.0), float | None)
        ToolSpec("name", "", {})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        InboxItem(text="x", channel="timer")
        UserMessage(text="x", parts=[TextPart(text="y")])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def money(usage: Usage, at: datetime) -> None:
        table: Prices = PriceTable({"m": Price(input=Decimal(1), output=Decimal(2))}, otherwise=GenAIPrices())
        call = PricedCall(provider="p", model="m", usage=usage, at=at)
        assert_type(table.price(call), Decimal | None)
        assert_type(usage + usage, Usage)
        Price(input=0.1, output=Decimal(2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        PriceTable({"m": Decimal(1)})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
        usage + 3  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]

    def results(result: TaskResult[int], replay: Replay, error: ErrorInfo) -> None:
        assert_type(replay.calls_rerun, tuple[ReplayedCall, ...])
        wider: TaskResult[object] = result
        union: TaskResult[int | str] = result
        narrower: TaskResult[bool] = result  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        result.cost + 1  # type: ignore[operator]  # pyright: ignore[reportOptionalOperand, reportUnusedExpression]
        print(error.source == "modle")  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]
        assert wider or union or narrower

    def dearest(answers: list[Answer[object]], yes: Answer[bool]) -> None:
        answers.append(yes)
        Answer[int](id="r", ok=True, data="three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        Answer(id="r", data=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
