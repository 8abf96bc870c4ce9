"""Tools: functions a model may call, what they return, and what they are given."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from types import FrameType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, cast, overload

from pydantic import JsonValue, ValidationError
from typing_extensions import TypeForm, TypeVar

from overt._canonical import NotJson, adapter, encode, jsonable
from overt._docstring import read_docstring
from overt._frozen import trusted
from overt._question import Channel, Question, make_question
from overt._schema import Parameters
from overt._signature import read_signature, return_annotation
from overt._text import clean
from overt.errors import DefinitionError, InvalidAnswer, UsageError
from overt.message import ToolCall, ToolSpec
from overt.request import Answer, Request

__all__ = ("AnyTool", "Tool", "ToolContext", "ToolDecorator", "ToolResult", "pending", "tool")

CtxT = TypeVar("CtxT", covariant=True, default=object)
ToolDepsT = TypeVar("ToolDepsT", contravariant=True)
D = TypeVar("D")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
ReturnT = TypeVar("ReturnT", covariant=True)


@cache
def _answer_class() -> type[Answer[Any]]:
    """Kept, because pydantic makes a parametrised model anew whenever nobody holds the last one; not at import."""
    return Answer[Any]


class ResultInvalid(TypeError):
    """What a tool returned has no JSON form; the message names tool and type and is for the model."""


# ------------------------------------------------------------------ results


@dataclass(frozen=True, slots=True, init=False)
class ToolResult:
    """What a tool gives back, where a plain return value does not say enough.

    Attributes:
        output: Text for the model. Half of a surrogate pair becomes U+FFFD.
        is_error: Whether the model is told that the call failed.
        metadata: JSON values for the host, kept in the journal; the model does not see them.
        pending: The question of a result made by `pending`, its `id` empty until the runtime has asked it; `None`
            for every other result.
    """

    output: str
    is_error: bool
    metadata: Mapping[str, JsonValue]
    pending: Request | None
    _question: Question | None = field(repr=False, compare=False)

    def __init__(
        self, output: str = "", *, is_error: bool = False, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Make a result.

        Args:
            output: Text for the model.
            is_error: Whether the call failed.
            metadata: JSON values for the host; copied. `None` is none.

        Raises:
            TypeError: `output` is no text, or `metadata` has no JSON form (NaN and infinities have none).
        """
        if not isinstance(output, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise TypeError(
                f"ToolResult.output is text, not {type(output).__name__}: return the value itself instead"
            )
        _set_output(self, clean(output))
        _set_is_error(self, is_error)
        _set_metadata(self, jsonable(metadata, "metadata") if metadata else {})
        _set_pending(self, None)
        _set_question(self, None)


# The slots' own setters: a frozen dataclass assigns through a name lookup for each field, at four times the cost.
_set_output: Callable[[ToolResult, object], None] = vars(ToolResult)["output"].__set__
_set_is_error: Callable[[ToolResult, object], None] = vars(ToolResult)["is_error"].__set__
_set_metadata: Callable[[ToolResult, object], None] = vars(ToolResult)["metadata"].__set__
_set_pending: Callable[[ToolResult, object], None] = vars(ToolResult)["pending"].__set__
_set_question: Callable[[ToolResult, object], None] = vars(ToolResult)["_question"].__set__


def pending(
    *,
    kind: str,
    prompt: str,
    url: str | None = None,
    data: Mapping[str, object] | None = None,
    answer_type: TypeForm[object] | None = None,
    expires_at: datetime | None = None,
) -> ToolResult:
    """Return this from a tool to suspend the run until someone answers.

    **What this asks of your tool.** A tool that asks runs again from its first line for every answer, whether the
    answer comes at once or in another process a week later: read it from `ctx.answer` before asking. And under the
    default policy, `ResumePolicy.REWIND`, resuming a parked run replays the whole suspended wake from its checkpoint:
    every tool that ran in that wake runs again, so every tool reachable in it must be idempotent.
    `@tool(on_replay="reuse")`, `ctx.once` and `ctx.idempotency_key` are the ways to be so.

    Args:
        kind: `"approval"`, `"input"`, `"authorization"` or a word of your own.
        prompt: The question, for people.
        url: Where to go to answer it; `None` for nowhere.
        data: JSON values for whoever answers. `call`, `errors` and `limit` are reserved.
        answer_type: Type the answer's `data` has to fit; `None` takes anything.
        expires_at: From then on (aware) the answer is `ok=False, reason="expired"`; `None`: never.

    Raises:
        UsageError: A field is empty, reserved, no JSON, or without a time zone; names it.
    """
    question = make_question(
        kind=kind, prompt=prompt, url=url, data=data, answer_type=answer_type, expires_at=expires_at
    )
    result = ToolResult()
    request = Request(
        id="",
        kind=question.kind,
        prompt=question.prompt,
        url=question.url,
        data=copy.deepcopy(question.data),
        answer_schema=copy.deepcopy(question.answer_schema),
        expires_at=question.expires_at,
    )
    _set_pending(result, request)
    _set_question(result, question)
    return result


def question_of(result: ToolResult) -> Question | None:
    """Return what a result made by `pending` asks; `None` for any other. For the runtime."""
    return result._question


# ------------------------------------------------------------------ context


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
            other. Hand it to services that take one.
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
        replays the whole suspended wake from its checkpoint: every tool that ran in that wake runs again, so every
        tool reachable in it must be idempotent. `@tool(on_replay="reuse")`, `ctx.once` and `ctx.idempotency_key` are
        the ways to be so.

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
        wake. If the process dies inside `fn`, nobody knows whether the effect happened: the run then asks, with a
        request of kind `in_doubt`. `@tool(on_replay="reuse")` says the same of a whole tool, and
        `ctx.idempotency_key` hands the question to the service behind it.

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


# ------------------------------------------------------------------ tools


class AnyTool(Protocol[ToolDepsT]):
    """What an agent takes as a tool: contravariant, so that a tool that needs no deps fits every agent."""

    @property
    def name(self) -> str:
        """Name the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """What the model is told about it."""
        ...

    @property
    def input_schema(self) -> dict[str, JsonValue]:
        """JSON Schema of the arguments."""
        ...

    def __takes_deps__(self, deps: ToolDepsT, /) -> None:
        """Does nothing; tells type checkers which deps the tool can be given."""
        ...


class Tool(Generic[ToolDepsT, P, ReturnT]):
    """A function a model may call; still callable as the function it was. Made by `tool`."""

    def __init__(
        self,
        fn: Callable[P, ReturnT],
        *,
        name: str | None = None,
        description: str | None = None,
        on_replay: Literal["rerun", "reuse"] = "rerun",
        timeout: float | None = None,
        _frame: FrameType | None = None,
    ) -> None:
        """Declare `fn` as a tool; see `tool`, which also finds types that are local to a function.

        Raises:
            DefinitionError: It cannot be a tool; names the parameter or the option.
        """
        signature = read_signature(fn, name=name, context_type=ToolContext, frame=_frame)
        where = f"tool {signature.name!r}"
        if on_replay not in ("rerun", "reuse"):
            raise DefinitionError(f"{where}: on_replay is 'rerun' or 'reuse', not {on_replay!r}")
        if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
            raise DefinitionError(f"{where}: timeout is a positive number of seconds, not {timeout!r}")
        documented, parameters = read_docstring(signature.doc)
        self._fn = fn
        self._name = signature.name
        self._description = clean(documented if description is None else description)
        self._on_replay: Literal["rerun", "reuse"] = on_replay
        self._timeout = timeout
        self._is_async = signature.is_async
        self._takes_context = signature.takes_context
        self._parameters = Parameters(signature.name, signature.parameters, parameters)
        self._spec = ToolSpec(
            name=self._name, description=self._description, input_schema=self._parameters.json_schema
        )
        self.__wrapped__ = fn
        self.__doc__ = signature.doc or None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ReturnT:
        """Call the function itself: nothing is validated, recorded or checked."""
        return self._fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self._name}>"

    def __takes_deps__(self, deps: ToolDepsT, /) -> None:
        """Does nothing; tells type checkers which deps the tool can be given."""

    @property
    def name(self) -> str:
        """Name the model calls it by."""
        return self._name

    @property
    def description(self) -> str:
        """What the model is told about it; empty for nothing."""
        return self._description

    @property
    def input_schema(self) -> dict[str, JsonValue]:
        """JSON Schema of the arguments; a copy."""
        return copy.deepcopy(self._parameters.json_schema)

    @property
    def on_replay(self) -> Literal["rerun", "reuse"]:
        """Whether a finished call runs again when its wake is replayed, or is given its recorded result."""
        return self._on_replay

    @property
    def timeout(self) -> float | None:
        """Seconds a call may take; `None` for any."""
        return self._timeout

    @property
    def spec(self) -> ToolSpec:
        """The tool as models see it; for reading only. For the runtime."""
        return self._spec

    @property
    def is_async(self) -> bool:
        """Whether calling it gives an awaitable. False says only that it may block. For the runtime."""
        return self._is_async

    @property
    def takes_context(self) -> bool:
        """Whether the first argument is a `ToolContext`. For the runtime."""
        return self._takes_context

    def canonical(self, raw: Mapping[str, object] | str) -> str:
        """Validate a model's arguments, JSON text or parsed. For the runtime.

        Returns:
            Compact JSON text: defaults filled, coercions applied, keys sorted. Made of its own output, it is the same.

        Raises:
            ValueError: They do not fit (`ArgumentsInvalid`); the message names every place and is for the model.
        """
        return self._parameters.canonical(raw)

    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make positional and keyword arguments, without the context, of what `canonical` returned. For the runtime.

        Raises:
            ValueError: The parameters have changed since the text was written (`ArgumentsInvalid`).
        """
        return self._parameters.bind(canonical)

    def as_result(self, value: object) -> ToolResult:
        """Make a result of what the function returned. For the runtime.

        Text is passed on as it is; anything else becomes compact JSON with sorted keys and sorted sets, bytes that are
        no UTF-8 as base64, `None` as `null`.

        Raises:
            TypeError: It has no JSON form (`ResultInvalid`); names the tool and the type.
        """
        if type(value) is str:
            return ToolResult(value)
        if isinstance(value, ToolResult):
            return value
        try:
            data = jsonable(value, "the value")
            return ToolResult(data if isinstance(value, str) and isinstance(data, str) else encode(data))
        except RecursionError:
            reason: object = "the value contains itself, or is nested too deeply"
        except NotJson as error:
            reason = error
        raise ResultInvalid(
            f"tool {self._name!r} returned a {type(value).__qualname__} that cannot be recorded: {reason}"
        )


class ToolDecorator(Protocol):
    """What `tool(name=…)` returns: takes the function."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[object, P, R]: ...


@overload
def tool(
    fn: Callable[Concatenate[ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
) -> Tool[object, P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
) -> ToolDecorator: ...
def tool(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
) -> Tool[Any, ..., object] | ToolDecorator:
    """Declare a function as a tool, as `@tool`, `@tool(name=…)` or `tool(fn)`.

    Name, description and JSON schema come from the function: its annotations through pydantic, parameter
    descriptions from a Google, NumPy or Sphinx docstring. It may be a `def` (run in a worker thread), an `async def`,
    a bound method, a `functools.partial` (what it binds is not in the schema), an object with `__call__`, or decorated
    with `functools.wraps`. A first parameter annotated `ToolContext[...]` is the context; every other one the model
    fills, so `*args` and `**kwargs` are refused, and positional-only ones are passed by position. It may return `str`,
    `ToolResult`, or anything pydantic can serialise.

    Arguments are validated before the function is entered, with pydantic's coercions (`"3"` for an `int` is 3).
    Unknown fields are refused at every level; if a type among the parameters configures `extra` itself, below the top
    level each type's own configuration decides.

    **What a replay asks of your tool.** Under the default policy, `ResumePolicy.REWIND`, resuming a parked run replays
    the whole suspended wake from its checkpoint: every tool that ran in that wake runs again. A tool that asks runs
    again from its first line for every answer. So a tool must be idempotent; `on_replay="reuse"`, `ctx.once` and
    `ctx.idempotency_key` are the ways to be so.

    Args:
        fn: The function; left out where only options are said.
        name: 1 to 64 characters out of `A-Z a-z 0-9 _ -`; `None` takes the function's.
        description: For the model; `None` takes the docstring's.
        on_replay: `"rerun"` declares that running it twice is right. `"reuse"`: once finished, a replay gives the
            recorded result; one that was entered and never finished raises a question of kind `in_doubt`.
        timeout: Seconds a call may take; `None` for any.

    Raises:
        DefinitionError: It cannot be a tool; names the parameter or the option.
    """

    def decorate(given: Callable[..., object], /) -> Tool[Any, ..., object]:
        here = inspect.currentframe()
        return Tool(
            given, name=name, description=description, on_replay=on_replay, timeout=timeout, _frame=here
        )

    if fn is None:
        return cast("ToolDecorator", decorate)
    return decorate(fn)
