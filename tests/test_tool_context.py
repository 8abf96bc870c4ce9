"""5.1, 5.5, 6.6, 6.7: asking, answering, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel, JsonValue

from overt import Answer, ToolCall, ToolContext, ToolResult, UsageError, WaitFor, pending, tool
from overt._canonical import NotJson, dump_exact, load_exact
from overt._question import Question
from overt.errors import InvalidAnswer
from overt.tool import question_of

T = TypeVar("T")


class Choice(BaseModel):
    colour: str


class Scripted:
    """A channel that answers from a list and records as the runtime would."""

    def __init__(self, *answers: Answer[JsonValue]) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []
        self.recorded: dict[str, str] = {}

    async def ask(self, question: Question, /) -> Answer[JsonValue]:
        self.asked.append(question)
        return self.answers.pop(0)

    async def once(self, label: str, fn: Callable[[], Awaitable[T]], annotation: object, /) -> T:
        if label not in self.recorded:
            self.recorded[label] = dump_exact(await fn(), annotation)
        return load_exact(self.recorded[label], annotation)  # type: ignore[return-value]


def context(channel: Scripted, *answers: Answer[Any]) -> ToolContext[str]:
    return ToolContext(
        deps="deps", run_id="r", handle="root/a.1", agent="a", call=ToolCall(id="c1", name="t", arguments={}),
        idempotency_key="k", attempt=2, answers=answers, _channel=channel,
    )  # fmt: skip


def test_properties() -> None:
    first, second = Answer[Any](id="1", ok=True), Answer[Any](id="2", ok=False)
    ctx = context(Scripted(), first, second)
    assert (ctx.deps, ctx.run_id, ctx.handle, ctx.agent) == ("deps", "r", "root/a.1", "a")
    assert (ctx.idempotency_key, ctx.attempt, ctx.call.name) == ("k", 2, "t")
    assert ctx.answers == (first, second)
    assert ctx.answer is second
    assert context(Scripted()).answer is None
    with pytest.raises(FrozenInstanceError):
        ctx.attempt = 3  # type: ignore[misc]


@pytest.mark.anyio
async def test_ask_gives_the_whole_answer() -> None:
    sent = Answer[JsonValue](
        id="1", ok=True, data={"colour": "red"}, by="me", reason="why", at=datetime.now(UTC)
    )
    channel = Scripted(sent, sent)
    ctx = context(channel)
    assert await ctx.ask("Which?") is sent
    typed = await ctx.ask("Which?", answer_type=Choice, kind="choice", url="https://x", data={"n": {2, 1}})
    assert typed.data == Choice(colour="red")
    assert (typed.id, typed.ok, typed.by, typed.reason, typed.at) == ("1", True, "me", "why", sent.at)
    assert channel.asked == [
        Question(kind="input", prompt="Which?", data={}),
        Question(
            kind="choice",
            prompt="Which?",
            url="https://x",
            data={"n": [1, 2]},
            answer_schema={
                "type": "object",
                "title": "Choice",
                "properties": {"colour": {"type": "string"}},
                "required": ["colour"],
            },
        ),
    ]


@pytest.mark.anyio
async def test_a_refusal_is_an_answer() -> None:
    declined = Answer[JsonValue](id="1", ok=False, reason="declined")
    answer = await context(Scripted(declined)).ask("?", answer_type=Choice)
    assert (answer.ok, answer.reason, answer.data) == (False, "declined", None)
    fits = Answer[JsonValue](id="1", ok=False, data={"colour": "red"})
    assert (await context(Scripted(fits)).ask("?", answer_type=Choice)).data == Choice(colour="red")


@pytest.mark.anyio
async def test_an_answer_its_type_refuses() -> None:
    sent = Answer[JsonValue](id="1", ok=True, data={"colour": 5})
    with pytest.raises(InvalidAnswer, match=r"\$\.colour") as caught:
        await context(Scripted(sent)).ask("?", answer_type=Choice)
    assert len(caught.value.places) == 1


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"kind": ""}, "non-empty kind"),
        ({"prompt": " "}, "non-empty prompt"),
        ({"data": {"a": object()}}, r"data\['a'\] of a question has to be JSON.*object"),
        ({"data": {"a": {"b": float("nan")}}}, r"data\['a'\]\.b is nan"),
        ({"data": {"call": 1}}, r"data\['call'\] is reserved"),
        ({"expires_at": datetime(2024, 1, 1)}, "no time zone"),
        ({"answer_type": object}, None),
        ({"answer_type": Scripted}, "answer_type=.* cannot become a JSON schema"),
    ],
)
@pytest.mark.anyio
async def test_questions_are_checked_where_they_are_asked(wrong: dict[str, Any], match: str | None) -> None:
    given: dict[str, Any] = {"kind": "approval", "prompt": "?", **wrong}
    if match is None:
        pending(**given)
        return
    with pytest.raises(UsageError, match=match):
        pending(**given)
    with pytest.raises(UsageError, match=match):
        await context(Scripted()).ask(**given)


def test_pending_carries_its_question() -> None:
    data = {"amount": [1]}
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    result = pending(
        kind="approval", prompt="Pay \ud800?", url="u", data=data, answer_type=bool, expires_at=expires
    )
    data["amount"].append(2)
    question = question_of(result)
    assert question == Question(
        kind="approval",
        prompt="Pay \ufffd?",
        url="u",
        data={"amount": [1]},
        answer_schema={"type": "boolean"},
        expires_at=expires,
    )
    assert result.pending is not None
    assert (result.pending.id, result.pending.prompt, result.pending.data) == (
        "",
        "Pay \ufffd?",
        {"amount": [1]},
    )
    assert question_of(ToolResult("x")) is None


@dataclass
class Receipt:
    number: int
    paid: datetime


@pytest.mark.anyio
async def test_once_gives_back_what_was_recorded() -> None:
    ran: list[int] = []

    async def effect() -> Receipt:
        ran.append(1)
        return Receipt(1, datetime(2024, 1, 1, tzinfo=UTC))

    ctx = context(Scripted())
    first = await ctx.once("pay", effect)
    assert await ctx.once("pay", effect) == first == Receipt(1, datetime(2024, 1, 1, tzinfo=UTC))
    assert ran == [1]

    async def plain() -> Any:
        return {"a": [1, 2.5, None, True, "x"]}

    assert await ctx.once("plain", plain) == {"a": [1, 2.5, None, True, "x"]}

    def wrapped() -> Awaitable[Receipt]:
        return effect()

    assert isinstance(await ctx.once("wrapped", wrapped), Receipt)
    assert isinstance(await ctx.once("lambda", lambda: plain()), dict)
    with pytest.raises(UsageError, match="non-empty label"):
        await ctx.once(" ", plain)


@pytest.mark.anyio
async def test_once_refuses_what_would_come_back_otherwise() -> None:
    async def untyped():  # type: ignore[no-untyped-def]
        return {"a": [(1, 2)]}

    with pytest.raises(NotJson, match=r"\$\.a\[0\] is of type tuple.*return annotation"):
        await context(Scripted()).once("x", untyped)


@pytest.mark.parametrize("said", [pending, ToolContext.ask, ToolContext.once, tool])
def test_the_requirement_stands_where_it_bites(said: Any) -> None:
    text = " ".join(said.__doc__.split())
    assert "from its first line" in text
    assert "REWIND" in text
    assert "replays the whole suspended wake" in text
    assert "idempoten" in text
    assert 'on_replay="reuse"' in text


def test_wait_for_is_documented() -> None:
    assert WaitFor is not None
