"""What a tool is told about the call it serves, and how it asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Generic, overload

from pydantic import JsonValue, ValidationError
from typing_extensions import TypeForm, TypeVar

from overt._canonical import adapter, encode
from overt._frozen import trusted
from overt._question import Channel, make_question
from overt._signature import return_annotation
from overt.errors import InvalidAnswer, UsageError
from overt.message import ToolCall
from overt.request import Answer

__all__ = ("ToolContext",)

CtxT = TypeVar("CtxT", covariant=True, default=object)
T = TypeVar("T")


@cache
def _answer_class() -> type[Answer[Any]]:
    """Kept, because pydantic makes a parametrised model anew whenever nobody holds the last one; not at import."""
    return Answer[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToolContext(Generic[CtxT]):
    """What a tool is told about the call it serves. Made by the runtime; take it as the first parameter.

    A tool that needs no `deps` takes a bare `ToolContext`, which fits every agent.

    Attributes:
        deps: What the host gave the run as `deps`; the object itself, never stored.
        run_id: The run.
        handle: Id of the calling handle, such as `root/coordinator.1`.
        agent: Name of the calling agent.
        call: The call, with its validated arguments.
        answers: Every answer to this call, in the order of its questions.
        idempotency_key: 32 hex digits: the same for this call in every attempt and process, different for every
            other. Hand it to services that take one. A call that the model makes once more is another call.
        attempt: Which execution of the wake this is: 1, and one more for every rewind.
    """

    deps: CtxT
    run_id: str
    handle: str
    agent: str
    call: ToolCall
    idempotency_key: str
    attempt: int = 1
    answers: tuple[Answer[Any], ...] = ()
    _channel: Channel = field(repr=False)

    @property
    def answer(self) -> Answer[Any] | None:
        """The latest answer to this call, `None` before the first. A refusal is one, with `ok=False`."""
        return self.answers[-1] if self.answers else None

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        answer_type: TypeForm[T],
        kind: str = "input",
        url: str | None = None,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> Answer[T]: ...
    @overload
    async def ask(
        self,
        prompt: str,
        *,
        kind: str = "input",
        url: str | None = None,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> Answer[JsonValue]: ...
    async def ask(
        self,
        prompt: str,
        *,
        answer_type: TypeForm[Any] | None = None,
        kind: str = "input",
        url: str | None = None,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> Answer[Any]:
        """Ask someone, and return the answer; a refusal too, with `ok=False`: what it means is yours to decide.

        **What this asks of your tool.** The tool is left at this line and runs again from its first line once the
        answer is there; then this line returns it. What stands before the question runs once for every entry: put
        effects after it, or in `once`. And under the default policy, `ResumePolicy.REWIND`, resuming a parked run
        replays the whole suspended wake from its checkpoint, and that of each ancestor that waits for it: every
        finished `rerun` tool of theirs runs again and every model call is bought again, so every tool reachable in a
        wake that may be suspended must be idempotent. `@tool(on_replay="reuse")`, `ctx.once` and
        `ctx.idempotency_key` are the ways to be so.

        ```python
        from overt import Agent, Answer, Request, ToolContext, tool
        from overt.testing import MockModel, call, say

        @tool(description="Book a table.")
        async def book(ctx: ToolContext) -> str:
            answer = await ctx.ask("For how many?", answer_type=int)
            return f"a table for {answer.data}" if answer.ok else "no table"

        async def four(request: Request) -> Answer:
            return Answer(id=request.id, ok=True, data=4)

        host = Agent("host", does="Books.", tools=[book], model=MockModel([call("book"), say("Booked.")]))
        result, runtime = host.run_sync("Book.", wait_for=four)
        print(result.status, runtime.transcript(result.handle)[-2].text)
        #> done a table for 4
        ```

        Args:
            prompt: The question, for people.
            answer_type: Type the answer's `data` has to fit. The answer returned holds an instance of it; of a
                refusal only if its data fits, else `None`. Left out, the data is JSON as it was sent.
            kind: `"input"`, `"approval"`, `"authorization"` or a word of your own.
            url: Where to go to answer it; `None` for nowhere.
            data: JSON values for whoever answers. `call`, `errors` and `limit` are reserved.
            expires_at: From then on (aware) the answer is `ok=False, reason="expired"`; `None`: never.

        Raises:
            UsageError: A field is empty, reserved, no JSON, or without a time zone; names it.
            InvalidAnswer: The answer fits the schema of `answer_type`, but its validators refuse it.
        """
        question = make_question(
            kind=kind, prompt=prompt, url=url, data=data, answer_type=answer_type, expires_at=expires_at
        )
        answer = await self._channel.ask(question)
        return answer if answer_type is None else _typed(answer, answer_type)

    async def once(self, label: str, fn: Callable[[], Awaitable[T]]) -> T:
        """Run `fn` at most once for this call and `label`, and return what it returned, now and in every replay.

        Use it for an effect that must not be repeated: a tool that asks runs again from its first line for every
        answer, and under the default policy, `ResumePolicy.REWIND`, resuming a parked run replays the whole suspended
        wake. If the process dies inside `fn`, nobody knows whether the effect happened: the run then asks, the tool's
        own `resolve` first where it has one, then with a request of kind `in_doubt`. `@tool(on_replay="reuse")` says
        the same of a whole tool, and `ctx.idempotency_key` hands the question to the service behind it.

        ```python
        from overt import Agent, Answer, Request, ToolContext, tool
        from overt.testing import MockModel, call, say

        drafts: list[str] = []

        @tool(description="Write a letter; a person reads it first.")
        async def letter(ctx: ToolContext) -> str:
            async def draft() -> str:
                drafts.append("Dear customer, …")
                return drafts[-1]

            text = await ctx.once("draft", draft)
            return "sent" if (await ctx.ask(f"Send? {text}")).ok else "not sent"

        async def yes(request: Request) -> Answer:
            return Answer(id=request.id, ok=True)

        desk = Agent("desk", does="Writes.", tools=[letter], model=MockModel([call("letter"), say("Done.")]))
        desk.run_sync("Write.", wait_for=yes)
        print(len(drafts))
        #> 1
        ```

        Args:
            label: Name of the block, unique within the tool.
            fn: What to run. Its value is recorded as JSON and has to come back equal and of the same type: plain JSON
                values do; for others annotate what `fn` returns.

        Raises:
            UsageError: `label` is empty.
            DefinitionError: The return annotation of `fn` cannot be resolved.
            ToolError: `fn` raised at an earlier entry, or whoever was asked said that it failed. An exception of `fn`
                leaves this as it is and is recorded for good: `fn` is not run again, and from then on this raises its
                type and message.
            TypeError: The value would not come back from JSON as it is; names the place and the type.
        """
        if not label.strip():
            raise UsageError("once needs a non-empty label")
        return await self._channel.once(label, fn, return_annotation(fn))


def _typed(answer: Answer[JsonValue], answer_type: object) -> Answer[Any]:
    try:
        data: object = adapter(answer_type).validate_json(encode(answer.data))
    except ValidationError as error:
        if answer.ok:
            places = [
                ".".join(("$", *map(str, e["loc"]))) + f": {e['msg']}"
                for e in error.errors(include_url=False)
            ]
            raise InvalidAnswer(
                "the answer does not fit what the tool asked for: " + "; ".join(places), places=places
            ) from error
        data = None
    return trusted(
        _answer_class(),
        id=answer.id,
        ok=answer.ok,
        data=data,
        reason=answer.reason,
        by=answer.by,
        at=answer.at,
    )
