"""A model that says what a script says."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Literal, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic import BaseModel, JsonValue, ValidationError

from overt._text import clean
from overt.clock import Clock
from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ToolCall,
    Usage,
    UserMessage,
)
from overt.models.arguments import parse_arguments
from overt.testing._chunks import chunks

__all__ = ("MockModel", "Part", "Reply", "Script", "call", "raw_call", "say")

_put = object.__setattr__
_ModelT = TypeVar("_ModelT", bound=BaseModel)

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Text or one call of a scripted reply; made by `say`, `call` and `raw_call`."""

    text: str = ""
    tool: str | None = None
    arguments: Mapping[str, JsonValue] | None = None
    raw: str | None = None
    id: str | None = None
    tokens: int | None = None
    usage: Usage | EllipsisType | None = ...
    finish: FinishReason | None = None
    fail_after: int | None = None

    def with_options(
        self,
        *,
        id: str | None = None,
        tokens: int | None = None,
        usage: Usage | EllipsisType | None = ...,
        finish: FinishReason | None = None,
        fail_after: int | None = None,
    ) -> Part:
        """Return this part with what is given here; `call("refund", order="A1").with_options(tokens=7)`.

        Args:
            id: The provider's id of a call, whatever it be: empty, or the same as another's.
            tokens: Total tokens of the reply; several parts of one reply add up.
            usage: The reply's usage as it is, or `None` for a provider that reports none; `...` leaves it as it was.
            finish: The reply's finish reason.
            fail_after: The reply fails: streamed, after so many pieces; asked for whole, at once.

        Returns:
            A new part.
        """
        return replace(
            self,
            id=self.id if id is None else id,
            tokens=self.tokens if tokens is None else tokens,
            usage=self.usage if isinstance(usage, EllipsisType) else usage,
            finish=self.finish if finish is None else finish,
            fail_after=self.fail_after if fail_after is None else fail_after,
        )


Reply: TypeAlias = Part | str | ModelResponse | BaseException | type[BaseException] | Sequence[Part | str]
"""One scripted reply: a part, text, a list of both (text and parallel calls), a whole response, or what to raise."""

Script: TypeAlias = (
    Sequence[Reply] | Mapping[str, "Script"] | Callable[[ModelRequest], Reply | Awaitable[Reply]]
)
"""Replies in order, or such a script for each agent by name, or a function of the request, sync or async."""


def say(
    text: str,
    *,
    tokens: int | None = None,
    usage: Usage | EllipsisType | None = ...,
    finish: FinishReason | None = None,
    fail_after: int | None = None,
) -> Part:
    """Text of a scripted reply.

    Args:
        text: What the model says.
        tokens: Total tokens of the reply; `None` takes the model's `tokens`.
        usage: The usage as it is; `None` is a provider that reports none, `...` makes it from `tokens`.
        finish: The finish reason; `None` is `"tool_calls"` beside calls and `"stop"` otherwise.
        fail_after: The reply fails: streamed, after so many pieces; asked for whole, at once.

    Returns:
        A part, to be used as a reply or in a list of parts.
    """
    return Part(text=text, tokens=tokens, usage=usage, finish=finish, fail_after=fail_after)


def call(tool: str, /, **arguments: object) -> Part:
    """One tool call of a scripted reply. Tokens, id and the like: `call(…).with_options(tokens=7)`.

    Args:
        tool: Name of the tool; it need not exist.
        **arguments: The arguments, JSON values.

    Returns:
        A part, to be used as a reply or in a list of parts.

    Raises:
        DefinitionError: An argument is not a JSON value; then `raw_call` is what is wanted.
    """
    try:
        checked = ToolCall.model_validate({"id": "_", "name": tool, "arguments": arguments})
    except ValidationError as error:
        places = ", ".join(sorted({str(item["loc"][1]) for item in error.errors() if len(item["loc"]) > 1}))
        raise DefinitionError(f"call({tool!r}): {places or 'name or arguments'}: not a JSON value") from None
    return Part(tool=tool, arguments=checked.arguments)


def raw_call(
    tool: str,
    text: str,
    *,
    id: str | None = None,
    tokens: int | None = None,
    usage: Usage | EllipsisType | None = ...,
    finish: FinishReason | None = None,
    fail_after: int | None = None,
) -> Part:
    """One tool call whose argument text is given as a model would write it, broken or not.

    Args:
        tool: Name of the tool, also an empty one.
        text: The argument text. What is no JSON object goes to `ModelResponse.invalid_arguments`.
        id: The provider's id, also an empty or repeated one; `None` makes one.
        tokens: Total tokens of the reply; `None` takes the model's `tokens`.
        usage: As in `say`.
        finish: As in `say`.
        fail_after: As in `say`.

    Returns:
        A part, to be used as a reply or in a list of parts.
    """
    return Part(tool=tool, raw=text, id=id, tokens=tokens, usage=usage, finish=finish, fail_after=fail_after)


class MockModel:
    """A model that answers from a script, for tests and examples.

    Which reply it gives depends on the request alone: on how many assistant messages follow the last user message, and
    on the agent's name if the script is a mapping. The model counts nothing, so the same request gets the same reply
    however often it is asked, in this process or another. A gate's feedback, a summary of `compactor` and the note
    that typed output is missing are user messages too: `prompts` has a script for each. Feedback on an answer given by
    `final_result` is that call's result, and no user message.

    Usage is exact in total and split four to one: of 100 tokens 80 are input and 20 output (`tokens // 5` is output).

    ```python
    from overt import Agent
    from overt.testing import MockModel, call, say

    model = MockModel(
        {
            "lead": [call("task", agent="scout", prompt="Look."), say("It is here.")],
            "scout": [say("Here.", tokens=40)],
        }
    )
    lead = Agent("lead", does="Leads.", team=[Agent("scout", does="Looks.")])
    result, _ = lead.run_sync("Where is it?", model=model)
    print(result.text, result.own_tokens, result.total_tokens, len(model.requests))
    #> It is here. 200 240 3
    ```

    Args:
        script: A list of replies, a mapping from agent name to a script, or a function of the request.
        prompts: Instead of `script`: one script per user message of the request, the last one repeated.
        name: The model's name.
        tokens: Total tokens of a reply that does not say its own.
        think_time: Seconds each reply takes, failures included.
        clock: What `think_time` is slept on; `None` is the event loop's own time.
        record: Whether `requests` is kept.
        chunk: Characters in a piece of a streamed reply.
        structured_output: Whether it passes for a model that honours `ModelRequest.output_schema`. Its replies are the
            script's either way.

    Attributes:
        requests: What the model was asked, in order; only a record, it decides nothing.
        structured_output: As given.

    Raises:
        DefinitionError: Neither or both of `script` and `prompts` are given, or a reply cannot be understood.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        prompts: Sequence[Script] | None = None,
        name: str = "mock",
        tokens: int = 100,
        think_time: float = 0.0,
        clock: Clock | None = None,
        record: bool = True,
        chunk: int = 8,
        structured_output: bool = False,
    ) -> None:
        if (script is None) == (prompts is None):
            raise DefinitionError("MockModel: give either script or prompts")
        if tokens < 0 or think_time < 0:
            raise DefinitionError("MockModel: tokens and think_time may not be negative")
        if type(chunk) is not int or chunk < 1:
            raise DefinitionError(f"MockModel: chunk is an int of at least 1, not {chunk!r}")
        self.structured_output: bool = structured_output
        self.requests: list[ModelRequest] = []
        self._name = name
        self._tokens = tokens
        self._think_time = think_time
        self._clock = clock
        self._record = record
        self._chunk = chunk
        self._by_prompt = prompts is not None
        scripts = [script] if prompts is None else list(prompts)
        if not scripts:
            raise DefinitionError("MockModel: prompts is empty")
        self._scripts = [
            self._compile_script(item, "script" if prompts is None else f"prompts[{index}]")
            for index, item in enumerate(scripts)
        ]

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Give the scripted reply.

        Args:
            request: What is asked.

        Returns:
            The reply. Its arguments are a copy: whoever changes them changes no other reply.

        Raises:
            ModelError: The script has no reply for this request; `type` is `"ScriptExhausted"`, not retryable.
            BaseException: Whatever the script says to raise.
        """
        return (await self._reply_to(request)).build()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Give the scripted reply in pieces of `chunk` characters; together they are what `generate` gives.

        Usage comes as it grows, and the whole of it twice. Others run between the pieces.

        Args:
            request: What is asked.

        Yields:
            The pieces: reasoning, text, calls, then why it ended.

        Raises:
            ModelError: As `generate`; also what `fail_after` says, of type `"StreamBroken"`.
            BaseException: Whatever the script says to raise.
        """
        reply = await self._reply_to(request)
        broken = reply if isinstance(reply, _Broken) else None
        response = reply.build() if broken is None else broken.response
        for number, delta in enumerate(chunks(response, self._chunk)):
            if broken is not None and number >= broken.after:
                break
            await anyio.lowlevel.checkpoint()
            yield delta
        if broken is not None:
            broken.build()

    async def _reply_to(self, request: ModelRequest) -> _Reply:
        if self._record:
            self.requests.append(request)
        if self._think_time:
            await (anyio.sleep if self._clock is None else self._clock.sleep)(self._think_time)
        prompt = 0
        if self._by_prompt:
            asked = sum(message.role == "user" for message in request.messages)
            prompt = min(max(asked, 1), len(self._scripts)) - 1
        script = self._scripts[prompt]
        while isinstance(script, _ByAgent):
            if request.agent not in script.scripts:
                known = ", ".join(map(repr, script.scripts)) or "nobody"
                raise self._exhausted(f"no script for agent {request.agent!r}, only for {known}. Add one")
            script = script.scripts[request.agent]
        if isinstance(script, _Function):
            reply = script.function(request)
            if inspect.isawaitable(reply):
                reply = await reply
            return self._compile_reply(reply, f"the reply of {script.where}")
        index = _replies_so_far(request.messages)
        if index >= len(script.replies):
            where = f" for prompt {prompt + 1}" if self._by_prompt else ""
            raise self._exhausted(
                f"no reply {index + 1} for agent {request.agent!r}: its script{where} has {len(script.replies)}."
                " Add the next reply to it, for instance say('…')"
            )
        return script.replies[index]

    def _exhausted(self, what: str) -> ModelError:
        return ModelError(f"MockModel {self._name!r} has {what}.", type="ScriptExhausted")

    def _compile_script(self, script: object, where: str) -> _Compiled:
        if isinstance(script, Mapping):
            items = cast(Mapping[str, object], script).items()
            return _ByAgent(
                {agent: self._compile_script(item, f"{where}[{agent!r}]") for agent, item in items}
            )
        if isinstance(script, str | Part | ModelResponse | BaseException | type):
            return _Replies((self._compile_reply(script, where),))
        if isinstance(script, Sequence):
            replies = enumerate(cast(Sequence[object], script))
            return _Replies(
                tuple(self._compile_reply(reply, f"{where}[{index}]") for index, reply in replies)
            )
        if callable(script):
            return _Function(cast(Callable[[ModelRequest], object], script), where)
        raise DefinitionError(
            f"MockModel: {where} is {script!r}; a script is a list, a mapping or a function"
        )

    def _compile_reply(self, reply: object, where: str) -> _Reply:
        if isinstance(reply, ModelResponse):
            return _Calls(reply) if reply.message.tool_calls else _Fixed(reply)
        if isinstance(reply, BaseException | type):
            return _Failure(_exception(reply, where))
        items: Sequence[object] = (reply,)
        if isinstance(reply, Sequence) and not isinstance(reply, str):
            items = cast(Sequence[object], reply)
        parts: list[Part] = []
        for item in items:
            if isinstance(item, str):
                parts.append(say(item))
            elif isinstance(item, Part):
                parts.append(item)
            else:
                raise DefinitionError(
                    f"MockModel: {where} holds {item!r}; a reply is say, call, str, a list of them, or an exception"
                )
        response = self._respond(parts)
        after = [part.fail_after for part in parts if part.fail_after is not None]
        if after:
            return _Broken(response, min(after))
        return _Calls(response) if response.message.tool_calls else _Fixed(response)

    def _respond(self, parts: Sequence[Part]) -> ModelResponse:
        calls: list[ToolCall] = []
        invalid: dict[int, str] = {}
        for part in parts:
            if part.tool is None:
                continue
            arguments = dict(part.arguments or {})
            if part.raw is not None:
                try:
                    arguments = parse_arguments(part.raw)
                except ValueError:
                    invalid[len(calls)] = clean(part.raw)
            id = part.id if part.id is not None else f"call_{len(calls) + 1}"
            calls.append(ToolCall(id=id, name=clean(part.tool), arguments=arguments))
        said = [part.tokens for part in parts if part.tokens is not None]
        usage: Usage | None = _usage(sum(said) if said else self._tokens)
        finish: FinishReason = "tool_calls" if calls else "stop"
        for part in parts:
            finish = part.finish or finish
            if not isinstance(part.usage, EllipsisType):
                usage = part.usage
        return ModelResponse(
            message=AssistantMessage(
                text=clean("".join(part.text for part in parts)), tool_calls=tuple(calls)
            ),
            usage=usage,
            finish_reason=finish,
            raw_finish_reason=finish,
            model=self._name,
            invalid_arguments=invalid,
        )


@dataclass(frozen=True, slots=True)
class _Fixed:
    response: ModelResponse

    def build(self) -> ModelResponse:
        return self.response


@dataclass(frozen=True, slots=True)
class _Calls:
    response: ModelResponse

    def build(self) -> ModelResponse:
        message = self.response.message
        calls = tuple(
            _with(item, "arguments", {key: _copy(value) for key, value in item.arguments.items()})
            if item.arguments
            else item
            for item in message.tool_calls
        )
        return _with(self.response, "message", _with(message, "tool_calls", calls))


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException

    def build(self) -> ModelResponse:
        raise self.error.with_traceback(None)


@dataclass(frozen=True, slots=True)
class _Broken:
    response: ModelResponse
    after: int

    def build(self) -> ModelResponse:
        raise ModelError(
            f"MockModel: the reply broke off after {self.after} pieces.", type="StreamBroken", retryable=True
        )


_Reply: TypeAlias = _Fixed | _Calls | _Failure | _Broken


@dataclass(frozen=True, slots=True)
class _Replies:
    replies: tuple[_Reply, ...]


@dataclass(frozen=True, slots=True)
class _Function:
    function: Callable[[ModelRequest], object]
    where: str


@dataclass(frozen=True, slots=True)
class _ByAgent:
    scripts: Mapping[str, _Compiled]


_Compiled: TypeAlias = _Replies | _Function | _ByAgent


def _replies_so_far(messages: Sequence[Message]) -> int:
    count = 0
    end = len(messages)
    size = 16
    # By type and in slices from the end: a loop in Python costs five times as much in a wake of a thousand turns.
    while end > 0:
        start = max(0, end - size)
        kinds = [*map(type, messages[start:end])]
        if UserMessage in kinds:
            kinds.reverse()
            return count + kinds[: kinds.index(UserMessage)].count(AssistantMessage)
        count += kinds.count(AssistantMessage)
        end = start
        size *= 2
    return count


def _with(model: _ModelT, field: str, value: object) -> _ModelT:
    # What `copy` does, at half its cost; `model_copy` and `model_construct` cost three times as much.
    copied = object.__new__(type(model))
    _put(copied, "__dict__", {**vars(model), field: value})
    _put(copied, "__pydantic_fields_set__", model.__pydantic_fields_set__)
    _put(copied, "__pydantic_extra__", None)
    _put(copied, "__pydantic_private__", None)
    return copied


def _copy(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _usage(tokens: int) -> Usage:
    output = tokens // 5
    return Usage(input_tokens=tokens - output, output_tokens=output, total_tokens=tokens)


def _exception(reply: BaseException | type, where: str) -> BaseException:
    if isinstance(reply, BaseException):
        return reply
    if issubclass(reply, BaseException):
        try:
            return reply("scripted failure")
        except TypeError:
            pass
    raise DefinitionError(f"MockModel: {where} is the class {reply.__name__}; give an exception, made")
