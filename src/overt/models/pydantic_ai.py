"""Providers without an adapter of their own, through the models of pydantic-ai."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import cast

import anyio
from anyio.lowlevel import RunVar
from pydantic_ai import direct
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelResponse as Reply,
)
from pydantic_ai.messages import (
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, StreamedResponse, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import ModelProfile

from overt._text import clean
from overt.errors import DefinitionError, ModelError
from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings, ToolCallDelta
from overt.models._failures import cut
from overt.models._pydantic_ai_failures import definition_error, failure_of, incomplete, secrets_of
from overt.models._pydantic_ai_wire import (
    PARAGRAPH,
    Converter,
    Traits,
    is_whole,
    read_reply,
    says_nothing,
    usage_of,
)
from overt.models._wire import arguments_text
from overt.models.redact import redact

__all__ = ("PydanticAIModel",)

_MAX_BUFFERED = 10_000
_OBJECTS_ON_THE_WIRE = {"AnthropicModel", "BedrockConverseModel"}
_STREAM_UNASKED = {"AnthropicModel", "BedrockConverseModel"}


class PydanticAIModel:
    """A model of any provider pydantic-ai knows: Groq, Mistral, Bedrock, Cohere, OpenRouter, Ollama and dozens more.

    It is asked through `pydantic_ai.direct`, one request at a time; nothing else of the library runs. Each provider
    needs the library's own extra, such as `pip install 'pydantic-ai-slim[groq]'`. The clients are made for asyncio; on
    trio OpenAI's and what is compatible with it, Anthropic's, Google's and Groq's were seen to work, and Mistral's was
    seen not to. There OpenAI's leaves finished streams to trio's collector, which says so in a `ResourceWarning`.

    A name may be used from several event loops, in turn or at once: each loop has its own client, shared by all models
    of that name and closed as the loop ends. A model that is given is entered once in every loop that uses it, which
    is what `async with model` does, and left as the loop ends; use it in one loop at a time, and make it once.

    What is guaranteed, and what is not:

    * Retries of the clients are off (`max_retries=0` at every call), and settings that want them are refused. They
      cannot be turned off from here on Bedrock (`AWS_MAX_ATTEMPTS=1` in the environment does), xAI, Hugging Face and
      MCP sampling, nor in a transport of your own that retries. Anthropic's model sends a request a second time in two
      cases, and the runtime counts one call: a container of its code tool that has expired, and reasoning that no
      longer fits the settings (that one warns).
    * A reply without usage has the usage `None`, also where the library counts zero tokens. Cached tokens are within
      the input; what the provider calls the total is not kept by the library, so it is always input and output.
    * Arguments come as the provider sent them and are never repaired. A call for which nothing at all was sent has
      none, where the provider's wire has arguments as objects.
    * Reasoning with its signatures, ids of items and whatever else is only the provider's goes back to the same
      endpoint unchanged, in its place, and to no other. Where text was edited since, it goes without its id.
    * Files a model makes come back in `opaque` only. Citations are not kept.
    * A stream is taken for whole only with the provider's own word for why it ended; so is a reply of Anthropic's or
      Bedrock's, which the library may stream without being asked to. Tool calls come at the end of a stream, whole.
    * A reply the provider suspended (`pause_turn`, background mode) is a `ModelError` of the type `"SuspendedReply"`.
    * Our conversion of a message is kept. The library and its clients convert the whole transcript at every call, and
      hold the event loop meanwhile: through OpenAI's client some 0.4 milliseconds a message. Where there is an adapter
      of ours, it does not.
    * What the library cannot read is an error, though it was paid for: with OpenAI's wire that is also a usage whose
      counts are null and a call without an id, with Anthropic's a reply without usage.
    * The deadline of a request is kept by the runtime, which cancels the call; the client is not told.

    Args:
        model: A model of the library, or its name there, such as `"groq:llama-3.3-70b-versatile"`. A name is looked up
            at first use or by `check`, and reads its key from the environment once in each event loop.
        settings: Settings that hold where the agent's own say nothing, over those the library's model has. In `extra`
            stand the library's settings by their names, such as `{"top_p": 0.9, "thinking": "low"}`; fields for the
            body of the request go under `"extra_body"`.

    Raises:
        DefinitionError: The name is empty, or the model is a `FallbackModel`: it makes attempts nobody would count.
    """

    def __init__(self, model: Model | str, *, settings: ModelSettings | None = None) -> None:
        if isinstance(model, str):
            if not model.strip():
                raise DefinitionError("PydanticAIModel: the name is empty")
        elif isinstance(_inner(model), FallbackModel):
            raise DefinitionError(
                "PydanticAIModel: a FallbackModel makes attempts in one call that nobody would see or count; "
                "give one of its models"
            )
        self._source: Model | str = model
        self._settings = settings or ModelSettings()
        self._known: tuple[Traits, Converter] | None = None

    @property
    def name(self) -> str:
        """The model's name, without a provider before it."""
        source = self._source
        return (source.partition(":")[2] or source) if isinstance(source, str) else source.model_name

    @property
    def provider(self) -> str:
        """The provider, as the library calls it: what prices are looked up under.

        Raises:
            DefinitionError: As `check` does.
        """
        return self._about()[0].system

    @property
    def structured_output(self) -> bool:
        """Whether the provider takes a schema for the answer, as the library knows it.

        Raises:
            DefinitionError: As `check` does.
        """
        return self._about()[0].structured

    def check(self) -> None:
        """Say now what `generate` would say at its first use.

        Raises:
            DefinitionError: The library knows no such model, its provider's package is not installed, or there is no
                key.
        """
        self._about()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the provider once.

        Args:
            request: What is asked. Lone surrogates in it are sent as U+FFFD.

        Returns:
            The reply. Its usage is `None` where the provider reports none; `turns` and `model_calls` are not counted
            here.

        Raises:
            ModelError: The provider refused or failed, could not be reached, or its answer cannot be read. Body and
                message are redacted; of a 401 or 403 there is neither. A failure while the library fetches the address
                of a file is one too.
            DefinitionError: As `check` does, or the library cannot send such a request to this provider. Nothing was
                sent.
        """
        traits, converter = self._about()
        asked = converter.asked(request, base=self._settings)
        model = await _entered(self._source)
        failure: Exception
        try:
            reply = await direct.model_request(
                model,
                asked.messages,
                model_settings=asked.settings,
                model_request_parameters=asked.parameters,
            )
            _refuse_suspended(reply)
            if says_nothing(reply, traits):
                raise ModelError(
                    "the reply has neither content nor usage nor a reason for its end", type="InvalidReply"
                )
            if not is_whole(reply, traits, streamed=False):
                raise incomplete()
            return read_reply(reply, request, traits)
        except (ModelError, DefinitionError):
            raise
        except Exception as error:  # noqa: BLE001 - every provider's client has exceptions of its own, and bodies in them
            failure = failure_of(error, model, request)
        # Outside the handler, so that no traceback leads to the provider's own exception and its body.
        raise failure

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Ask the provider once and give the reply in pieces.

        Leaving early closes the connection, with Google's client a moment later. A model whose class cannot stream
        gives the whole reply as one piece.

        Args:
            request: What is asked.

        Yields:
            Pieces of text and reasoning as they come; then the calls, each whole, usage and finish reason.

        Raises:
            ModelError: As `generate` does, before the first piece or after some; also where the library took back a
                text that was passed on.
            DefinitionError: As `generate` does.
        """
        traits, converter = self._about()
        asked = converter.asked(request, base=self._settings)
        model = await _entered(self._source)
        if type(_inner(model)).request_stream is Model.request_stream:
            for delta in _rest(await self.generate(request), "", "", whole=True):
                yield delta
            return
        failure: Exception
        try:
            async with direct.model_request_stream(
                model,
                asked.messages,
                model_settings=asked.settings,
                model_request_parameters=asked.parameters,
            ) as stream:
                said = _Said()
                events = aiter(stream)
                try:
                    async for event in events:
                        piece = said.piece(event)
                        if piece is not None:
                            yield piece
                finally:
                    await _end(stream, events)
                reply = stream.get()
            _refuse_suspended(reply)
            response = read_reply(reply, request, traits)
            text = clean("".join(said.text))
            if not response.message.text.startswith(text):
                raise ModelError(
                    "the library took back a part of the reply it had passed on",
                    type="InvalidReply",
                    usage=response.usage,
                )
            whole = is_whole(reply, traits, streamed=True)
            for delta in _rest(response, text, "".join(said.reasoning), whole=whole):
                yield delta
            return
        except (ModelError, DefinitionError):
            raise
        except Exception as error:  # noqa: BLE001 - as in generate
            failure = failure_of(error, model, request)
        raise failure

    def _about(self) -> tuple[Traits, Converter]:
        if self._known is None:
            source = self._source
            traits = _traits(_inferred(source) if isinstance(source, str) else source)
            self._known = traits, Converter(traits)
        return self._known


class _Said:
    """What of a reply was passed on while it came."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self._thought = -1

    def piece(self, event: ModelResponseStreamEvent) -> ModelDelta | None:
        """Return the event as a piece; `None` for what is read off the whole reply."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) if text:
                return self._text(text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                return self._text(text)
            case PartStartEvent(index=index, part=ThinkingPart(content=text)) if text:
                return self._reasoning(index, text)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))) if text:
                return self._reasoning(index, text)
            case _:
                return None

    def _text(self, text: str) -> ModelDelta:
        self.text.append(text)
        return ModelDelta(text=text)

    def _reasoning(self, index: int, text: str) -> ModelDelta:
        if self.reasoning and index != self._thought:
            text = PARAGRAPH + text
        self._thought = index
        self.reasoning.append(text)
        return ModelDelta(reasoning=text)


def _rest(response: ModelResponse, text: str, reasoning: str, *, whole: bool) -> Iterator[ModelDelta]:
    """Give what of a reply was not passed on while it came."""
    message = response.message
    more = message.text[len(text) :]
    thought = message.reasoning if message.reasoning is not None and not reasoning else None
    if more or thought:
        yield ModelDelta(text=more or None, reasoning=thought)
    for index, call in enumerate(message.tool_calls):
        arguments = response.invalid_arguments.get(index)
        if arguments is None:
            arguments = arguments_text(call.arguments)
        yield ModelDelta(
            tool_call=ToolCallDelta(index=index, id=call.id, name=call.name, arguments=arguments)
        )
    yield ModelDelta(
        usage=response.usage,
        finish_reason=response.finish_reason if whole else None,
        raw_finish_reason=response.raw_finish_reason,
        model=response.model,
        opaque=message.opaque,
    )


async def _end(stream: StreamedResponse, events: AsyncIterator[ModelResponseStreamEvent]) -> None:
    """End the library's iteration where it was left early, down to the client's; one that is through has nothing left.

    Closing the outer generator would leave those within to the event loop's collector, of which trio complains. Going
    on within a cancelled scope ends them at the first thing they wait for; that may be a lock before the client's own
    iteration, which the library closes only if asked.
    """
    with anyio.CancelScope() as scope, suppress(Exception):
        scope.cancel()
        for _ in range(_MAX_BUFFERED):
            await anext(events)
    close: Callable[[], Awaitable[None]] | None = getattr(getattr(stream, "_response", None), "aclose", None)
    if close is not None:
        with suppress(Exception):
            await close()


def _refuse_suspended(reply: Reply) -> None:
    if reply.state == "suspended":
        raise ModelError(
            "the provider suspended its reply and waits to be asked again, which this model does not do: "
            "turn off background mode and tools that run at the provider",
            type="SuspendedReply",
            usage=usage_of(reply.usage),
        )


def _inner(model: Model) -> Model:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _traits(model: Model) -> Traits:
    inner = _inner(model)
    kinds = {kind.__name__ for kind in type(inner).__mro__}
    profile: ModelProfile = model.profile
    url = model.base_url
    # An address may hold the name of an account.
    at = "" if url is None else f":{hashlib.sha256(url.encode()).hexdigest()[:8]}"
    # Before Gemini 3 a schema and tools in one request are refused.
    both = cast("dict[str, object]", profile).get("google_supports_tool_combination", True)
    return Traits(
        system=model.system,
        key=f"pydantic-ai:{model.system}{at}",
        name=model.model_name,
        id_length=profile.get("tool_call_id_length"),
        one_try="max_retries" not in inner.unsupported_settings,
        says_why=inner.provider is not None,
        streams_unasked=bool(kinds & _STREAM_UNASKED),
        makes_up_stop="OpenAIChatModel" in kinds,
        arguments_are_objects=bool(kinds & _OBJECTS_ON_THE_WIRE),
        structured=bool(profile.get("supports_json_schema_output", False) and both),
    )


def _inferred(name: str) -> Model:
    failure: DefinitionError
    try:
        return infer_model(name)
    except UserError as error:
        failure = definition_error(f"PydanticAIModel {name!r}: {error}")
    except ImportError as error:
        failure = definition_error(f"PydanticAIModel {name!r}: {error}")
    except Exception as error:  # noqa: BLE001 - a provider's client that does not like its environment
        told = cut(redact(str(error), secrets_of(None)), 200)
        failure = DefinitionError(f"PydanticAIModel {name!r}: {type(error).__name__}: {told}")
    raise failure


async def _entered(source: Model | str) -> Model:
    """Return the model, or one of that name, whose client belongs to this event loop."""
    loop = _loops.get(None)
    if loop is None:
        loop = _Loop()
        _loops.set(loop)
        await loop.open()
    return await loop.entered(source)


class _Loop:
    """What belongs to one event loop: the models that are entered in it."""

    def __init__(self) -> None:
        self._models: dict[str | int, Model] = {}
        self._stack = AsyncExitStack()
        self._lock = anyio.Lock()
        self._keeper = self._keep()

    async def open(self) -> None:
        await anext(self._keeper)

    async def entered(self, source: Model | str) -> Model:
        key = source if isinstance(source, str) else id(source)
        found = self._models.get(key)
        if found is not None:
            return found
        async with self._lock:
            if key not in self._models:
                model = _inferred(source) if isinstance(source, str) else source
                await self._stack.enter_async_context(model)
                self._models[key] = model
            return self._models[key]

    async def _keep(self) -> AsyncGenerator[None]:
        # A loop closes the async generators that were begun in it, while it still runs: the one hook that both
        # asyncio and trio give to a library. On trio they are closed within a cancelled scope.
        try:
            yield
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._stack.aclose()
            finally:
                # The generator knows its loop, and would keep it alive from within the variable.
                _loops.set(None)


_loops: RunVar[_Loop | None] = RunVar("overt.models.pydantic_ai")
