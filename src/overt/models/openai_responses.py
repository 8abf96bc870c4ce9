"""OpenAI's Responses API, and every endpoint that speaks it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from openai import AsyncOpenAI

from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings
from overt.models._openai_client import Answer, Endpoint
from overt.models._responses_stream import ResponsesReader, failure_in
from overt.models._responses_wire import ResponsesConverter, output_of, read_response, usage_in
from overt.models._wire import Wire

__all__ = ("OpenAIResponsesModel",)

_PATH = "/responses"
# They refuse to be asked for reasoning.
_NO_REASONING = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt-|gpt-5(?:\.\d+)?-chat|computer-use)")


class OpenAIResponsesModel:
    """A model behind OpenAI's Responses API or a compatible endpoint, through the official client.

    Clients, event loops, keys, names of tools and errors are as for `OpenAIModel`, whose connections it shares.

    Every request holds the whole transcript: `store` is `False` unless `ModelSettings.extra` says otherwise, and
    nothing depends on what the provider keeps. Reasoning is asked for encrypted (`include`) and goes back whole, in its
    place, to the host it came from and to no other; so do the items of the provider's own tools that are complete in
    themselves, and the ids and phases of messages. Reasoning that came neither encrypted nor in full is left out.

    A limit on output tokens is the least of what the request and the settings say, and at least 16, as the API wants.
    The API knows no stop sequences: `ModelSettings.stop` is refused. Of `ModelSettings.extra` the fields `tools`,
    `include` and `text` are joined with what the adapter sends, so that the provider's own tools can stand beside the
    agent's; any other field is sent as it is.

    Texts of several messages of one reply are divided by an empty line; of a typed answer, remarks on the way
    (`"phase": "commentary"`) are read as reasoning.

    Args:
        name: The model, as the provider calls it.
        client: Your own `AsyncOpenAI` (or `AsyncAzureOpenAI`), used with its retries off and never closed; then which
            loops it may be used from is for you to know. `None` makes clients as needed.
        base_url: Another endpoint; `None` is `OPENAI_BASE_URL` as it is now, or OpenAI.
        api_key: The key; `None` reads `OPENAI_API_KEY` at each call.
        settings: Settings that hold where the agent's own say nothing.
        encrypted_reasoning: Whether to ask for encrypted reasoning. `None` is yes, but for names of models known not to
            reason, which refuse to be asked. Say it where the name tells nothing, as that of a deployment.
        structured_output: Whether the endpoint takes a JSON schema for the answer (`text.format`). Without it typed
            output is given through a tool.

    Attributes:
        structured_output: As given.

    Raises:
        DefinitionError: `name` is empty, `base_url` is no HTTP address, or `client` is given beside `base_url` or
            `api_key`.
    """

    structured_output: bool

    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        encrypted_reasoning: bool | None = None,
        structured_output: bool = True,
    ) -> None:
        self._endpoint = Endpoint(
            "OpenAIResponsesModel", name, client=client, base_url=base_url, api_key=api_key
        )
        self._name = name
        self._settings = settings or ModelSettings()
        self._kept_as = f"openai-responses:{self._endpoint.host}"
        encrypted = _NO_REASONING.match(name) is None if encrypted_reasoning is None else encrypted_reasoning
        self._converter = ResponsesConverter(self._kept_as, encrypted=encrypted)
        self.structured_output = structured_output

    @property
    def name(self) -> str:
        """The model's name, without a provider before it."""
        return self._name

    @property
    def provider(self) -> str:
        """Whose prices hold: `"openai"`, `"azure"`, or the host name of any other endpoint."""
        return self._endpoint.provider

    def check(self) -> None:
        """Say now what `generate` would say at its first use.

        Raises:
            DefinitionError: There is no API key.
        """
        self._endpoint.check()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Ask the provider once.

        Args:
            request: What is asked. Lone surrogates in it are sent as U+FFFD.

        Returns:
            The reply. Its usage is `None` where the provider reports none; `turns` and `model_calls` are not counted
            here.

        Raises:
            ModelError: The provider refused or failed, could not be reached, or its answer cannot be read. Body and
                message are redacted; of a 401 or 403 there is neither.
            DefinitionError: There is no API key, a message has a part this API does not take, or the settings have
                `stop`. Nothing was sent.
        """
        body = self._converter.body(request, model=self._name, base=self._settings)

        def read(reply: Mapping[str, object], answer: Answer) -> ModelResponse:
            return self._read(reply, answer, request, stored=_stored(body))

        return await self._endpoint.ask(_PATH, body, request, read=read)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Ask the provider once and yield its reply as it comes. Together the pieces are what `generate` returns.

        An endpoint that answers whole in spite is read as such. Nothing is sent before
        the first piece is asked for; leaving the iteration early ends the call.

        Args:
            request: As for `generate`.

        Raises:
            ModelError: As `generate`, or the stream broke; then it may be tried again, and `usage` is what the provider
                had said by then.
            DefinitionError: As `generate`.
        """
        body: Wire = {
            "stream": True,
            **self._converter.body(request, model=self._name, base=self._settings),
        }
        stored = _stored(body)

        def read(reply: Mapping[str, object], answer: Answer) -> ModelResponse:
            return self._read(reply, answer, request, stored=stored)

        reader = ResponsesReader(request, provider=self._kept_as, stored=stored)
        pieces = self._endpoint.stream(_PATH, body, request, read=read, reader=reader)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _read(
        self, reply: Mapping[str, object], answer: Answer, request: ModelRequest, *, stored: bool
    ) -> ModelResponse:
        usage = usage_in(reply.get("usage"))
        wrong = failure_in(reply)
        if wrong:
            raise answer.reports(wrong, usage=usage)
        output = output_of(reply)
        if output is None:
            raise answer.unreadable("has no output", usage=usage)
        return read_response(reply, output, request, provider=self._kept_as, stored=stored)


def _stored(body: Wire) -> bool:
    return body.get("store") is True
