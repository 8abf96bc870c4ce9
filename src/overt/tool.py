"""Tools: functions a model may call, and what they return."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import FrameType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    Never,
    ParamSpec,
    Protocol,
    cast,
    overload,
)

from pydantic import JsonValue
from typing_extensions import TypeForm, TypeVar

from overt._canonical import NotJson, encode, jsonable
from overt._docstring import read_docstring
from overt._question import Question, make_question
from overt._schema import Parameters
from overt._signature import read_signature
from overt._text import clean
from overt.context import ToolContext
from overt.errors import DefinitionError
from overt.message import ToolSpec
from overt.request import Request

if TYPE_CHECKING:
    from overt.doubt import Resolver

__all__ = ("AnyTool", "Tool", "ToolDecorator", "ToolResult", "pending", "tool")

ToolDepsT = TypeVar("ToolDepsT", contravariant=True)
AnyDepsT = TypeVar("AnyDepsT", contravariant=True, default=None)
D = TypeVar("D")
NeededT = TypeVar("NeededT", default=object)
P = ParamSpec("P")
R = TypeVar("R")
ReturnT = TypeVar("ReturnT", covariant=True)


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
    default policy, `ResumePolicy.REWIND`, resuming a parked run replays the whole suspended wake from its checkpoint,
    and that of each ancestor that waits for it: every finished `rerun` tool of theirs runs again and every model call
    is bought again, so every tool reachable in a wake that may be suspended must be idempotent.
    `@tool(on_replay="reuse")`, `ctx.once` and `ctx.idempotency_key` are the ways to be so.

    ```python
    from overt import Agent, Answer, Request, ToolContext, ToolResult, pending, tool
    from overt.testing import MockModel, call, say

    @tool(description="Deploy, if somebody agrees.")
    def deploy(ctx: ToolContext) -> ToolResult:
        if ctx.answer is None:
            return pending(kind="approval", prompt="Deploy?")
        return ToolResult(output="deployed" if ctx.answer.ok else "not deployed")

    async def yes(request: Request) -> Answer:
        return Answer(id=request.id, ok=True)

    ops = Agent("ops", does="Deploys.", tools=[deploy], model=MockModel([call("deploy"), say("Ready.")]))
    result, _ = ops.run_sync("Deploy.", wait_for=yes)
    print(result.status, result.text)
    #> done Ready.
    ```

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


# ------------------------------------------------------------------ tools


class AnyTool(Protocol[AnyDepsT]):
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

    def __takes_deps__(self, deps: AnyDepsT, /) -> None:
        """Does nothing; tells type checkers which deps the tool can be given."""
        ...


class Arguments(Protocol):
    """What validates the arguments of a tool: `Parameters`, or the schema of a tool from elsewhere."""

    @property
    def json_schema(self) -> dict[str, JsonValue]: ...
    def canonical(self, raw: Mapping[str, object] | str) -> str: ...
    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]: ...


class Tool(Generic[ToolDepsT, P, ReturnT]):
    """A function a model may call; still callable as the function it was. Made by `tool`."""

    __wrapped__: Callable[P, ReturnT]

    def __init__(
        self,
        fn: Callable[P, ReturnT],
        *,
        name: str | None = None,
        description: str | None = None,
        on_replay: Literal["rerun", "reuse"] = "rerun",
        timeout: float | None = None,
        resolve: Resolver[ToolDepsT] | None = None,
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
        if resolve is not None:
            from overt.doubt import check_resolver  # loaded by the first tool that has one

            check_resolver(where, resolve)
        documented, parameters = read_docstring(signature.doc)
        self._declare(
            fn,
            name=signature.name,
            description=documented if description is None else description,
            arguments=Parameters(signature.name, signature.parameters, parameters),
            on_replay=on_replay,
            timeout=timeout,
            resolve=resolve,
            is_async=signature.is_async,
            takes_context=signature.takes_context,
        )
        self.__doc__ = signature.doc or None

    def _declare(
        self,
        fn: Callable[P, ReturnT],
        *,
        name: str,
        description: str,
        arguments: Arguments,
        on_replay: Literal["rerun", "reuse"],
        timeout: float | None,
        resolve: Resolver[ToolDepsT] | None = None,
        is_async: bool,
        takes_context: bool,
    ) -> None:
        """Set all that a tool is made of; for `__init__`, also of tools whose schema is not their function's."""
        self._fn = fn
        self._name = name
        self._description = clean(description)
        self._on_replay: Literal["rerun", "reuse"] = on_replay
        self._timeout = timeout
        self._resolve = resolve
        self._is_async = is_async
        self._takes_context = takes_context
        self._parameters = arguments
        self._spec = ToolSpec(name=name, description=self._description, input_schema=arguments.json_schema)
        self.__wrapped__ = fn

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
    def resolve(self) -> Resolver[ToolDepsT] | None:
        """What finds out what became of a call in doubt; `None` where only a person is asked."""
        return self._resolve

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


class ToolDecorator(Protocol[NeededT]):  # pyright: ignore[reportInvalidTypeVarUse]  # invariant as parameters are
    """What `tool(name=…)` returns: takes the function.

    Where `resolve` needs deps, the function may need these or less. What needs others makes a tool that fits no agent;
    where it needs more particular ones, write `tool(fn, resolve=…)`.
    """

    @overload
    def __call__(
        self: ToolDecorator[object], fn: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[NeededT], P], R], /
    ) -> Tool[NeededT, Concatenate[ToolContext[NeededT], P], R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[Never], P], R], /
    ) -> Tool[Never, Concatenate[ToolContext[Never], P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[NeededT, P, R]: ...


@overload
def tool(
    fn: Callable[Concatenate[ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[D] | None = None,
) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
@overload
def tool(  # type: ignore[overload-overlap]  # where the deps do not fit, the next one is not meant
    fn: Callable[Concatenate[ToolContext[Never], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[D],
) -> Tool[Never, Concatenate[ToolContext[Never], P], R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[NeededT] | None = None,
) -> Tool[NeededT, P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[NeededT] | None = None,
) -> ToolDecorator[NeededT]: ...
def tool(
    fn: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[Any] | None = None,
) -> Tool[Any, ..., object] | ToolDecorator[Any]:
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

    ```python
    from overt import tool

    @tool(on_replay="reuse", timeout=30, description="Pay money back.")
    async def refund(order: str, amount: float = 0.0) -> str:
        return f"refunded {amount:.2f}"

    print(refund.name, refund.description, refund.input_schema["required"])
    #> refund Pay money back. ['order']
    ```

    **What a replay asks of your tool.** Under the default policy, `ResumePolicy.REWIND`, resuming a parked run
    replays the whole suspended wake from its checkpoint, and that of each ancestor that waits for it: every finished
    `rerun` tool of theirs runs again. Under either policy a tool that asks runs again from its first line for every
    answer, and one whose process died is entered again. So a tool must be idempotent; `on_replay="reuse"`, `ctx.once`
    and `ctx.idempotency_key` are the ways to be so.

    Args:
        fn: The function; left out where only options are said.
        name: 1 to 64 characters out of `A-Z a-z 0-9 _ -`; `None` takes the function's.
        description: For the model; `None` takes the docstring's.
        on_replay: `"rerun"` declares that running it twice is right: a finished call runs again when its wake is
            replayed. `"reuse"`: once finished, a replay gives the recorded result; one that was entered and never
            finished raises a question of kind `in_doubt`.
        timeout: Seconds a call may take, and then `resolve`; `None` for any.
        resolve: Asks the outside world, by idempotency key, what became of a call that was entered and left without an
            outcome, or of a `ctx.once` block of it, and returns `Succeeded`, `Failed`, `Retry`, or `None` where it
            cannot tell. It is asked before any person is, once for each doubt and again by a process that recovers
            the run while it is being asked, so it must change nothing. Where it returns `None`, raises or takes too
            long, the question of kind `in_doubt` goes to `wait_for` and on to a person. A function or an async
            function of a `Doubt`; a plain one runs in a worker thread. `None`: a person is asked.

    Raises:
        DefinitionError: It cannot be a tool; names the parameter or the option.
    """

    def decorate(given: Callable[..., object], /) -> Tool[Any, ..., object]:
        here = inspect.currentframe()
        return Tool(
            given,
            name=name,
            description=description,
            on_replay=on_replay,
            timeout=timeout,
            resolve=resolve,
            _frame=here,
        )

    if fn is None:
        return cast("ToolDecorator[Any]", decorate)
    return decorate(fn)
