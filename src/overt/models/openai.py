"""OpenAI's chat completions, and every endpoint that speaks them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import cast

from openai import AsyncOpenAI

from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings
from overt.models._openai_client import Answer, Endpoint
from overt.models._openai_stream import ChatReader
from overt.models._openai_wire import Converter, OutputLimitField, error_of, read_reply, usage_of
from overt.models._wire import Wire

__all__ = ("OpenAIModel",)

_PATH = "/chat/completions"


class OpenAIModel:
    """A model behind OpenAI's chat completions API or a compatible endpoint, through the official client.

    One object may be used by many runs, and from several event loops, in turn or at once, on asyncio and trio: each
    loop has one pool of connections, shared by all models and closed as the loop ends. The client's own retries are
    off, since the runtime retries and counts each attempt.

    Sent are the transcript with texts, images, files (as data, not by URL), calls and results; the tools; and of the
    settings only what was set. Tool names the API does not take are sent under another name and come back as their own.
    A limit on output tokens is the least of what the request and the settings say. Reasoning that came with calls, as
    compatible endpoints give it, goes back to the host it came from and to no other.

    Read are texts and calls; arguments that are not one JSON object are reported, not repaired. Audio, log
    probabilities and further choices are not.

    Args:
        name: The model, as the provider calls it.
        client: Your own `AsyncOpenAI` (or `AsyncAzureOpenAI`), used with its retries off and never closed; then which
            loops it may be used from is for you to know. `None` makes clients as needed.
        base_url: Another endpoint; `None` is `OPENAI_BASE_URL` as it is now, or OpenAI.
        api_key: The key; `None` reads `OPENAI_API_KEY` at each call.
        settings: Settings that hold where the agent's own say nothing.
        output_limit_field: What the endpoint calls its output limit; many compatible ones know only `"max_tokens"`.
        structured_output: Whether the endpoint takes a JSON schema for the answer (`response_format`); `None` is yes
            for OpenAI's own hosts and no for any other. Without it typed output is given through a tool.
        stream_usage: Whether to ask for the usage of streamed replies (`stream_options`). Where an endpoint refuses to
            be asked, `False` leaves usage unknown unless it comes unasked.

    Attributes:
        structured_output: As given, or found by the host.

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
        output_limit_field: OutputLimitField = "max_completion_tokens",
        structured_output: bool | None = None,
        stream_usage: bool = True,
    ) -> None:
        self._endpoint = Endpoint("OpenAIModel", name, client=client, base_url=base_url, api_key=api_key)
        self._name = name
        self._settings = settings or ModelSettings()
        self._stream_usage = stream_usage
        self._kept_as = f"openai-chat:{self._endpoint.host}"
        self._converter = Converter(self._kept_as, limit_field=output_limit_field)
        self.structured_output = self._endpoint.official if structured_output is None else structured_output

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
            DefinitionError: There is no API key, or a message has a part this API does not take. Nothing was sent.
        """
        body = self._converter.body(request, model=self._name, base=self._settings)

        def read(reply: Mapping[str, object], answer: Answer) -> ModelResponse:
            return self._read(reply, answer, request)

        return await self._endpoint.ask(_PATH, body, request, read=read)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Ask the provider once and yield its reply as it comes. Together the pieces are what `generate` returns.

        Names of tools come at the end. An endpoint that answers whole in spite is read as such. Nothing is sent before
        the first piece is asked for; leaving the iteration early ends the call.

        Args:
            request: As for `generate`.

        Raises:
            ModelError: As `generate`, or the stream broke; then it may be tried again, and `usage` is what the provider
                had said by then.
            DefinitionError: As `generate`.
        """
        body: Wire = {"stream": True}
        if self._stream_usage:
            body["stream_options"] = {"include_usage": True}
        body.update(self._converter.body(request, model=self._name, base=self._settings))

        def read(reply: Mapping[str, object], answer: Answer) -> ModelResponse:
            return self._read(reply, answer, request)

        reader = ChatReader(request, provider=self._kept_as)
        pieces = self._endpoint.stream(_PATH, body, request, read=read, reader=reader)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _read(self, reply: Mapping[str, object], answer: Answer, request: ModelRequest) -> ModelResponse:
        choices = reply.get("choices")
        found = cast("list[object]", choices) if isinstance(choices, list) else []
        choice = cast("dict[str, object]", found[0]) if found and isinstance(found[0], dict) else None
        usage = usage_of(reply.get("usage"))
        wrong = error_of(reply, choice)
        if wrong:
            raise answer.reports(wrong, usage=usage)
        if choice is None:
            raise answer.unreadable("has no choices", usage=usage)
        if not isinstance(choice.get("message"), dict):
            raise answer.unreadable("has a choice without a message", usage=usage)
        return read_reply(reply, choice, request, provider=self._kept_as)
