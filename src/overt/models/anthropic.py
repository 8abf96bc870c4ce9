"""Anthropic's messages API, and every endpoint that speaks it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TypeAlias, cast
from urllib.parse import urlsplit

import anyio
from anthropic import (
    AnthropicError,
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncAnthropic,
    AsyncStream,
    DefaultAsyncHttpxClient,
    transform_schema,
)
from anthropic.lib.vertex import AsyncAnthropicVertex
from httpx2 import AsyncClient, HTTPError, Response, TimeoutException

from overt.errors import DefinitionError, ModelError
from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings, Usage
from overt.models._anthropic_reply import read_reply, usage_of
from overt.models._anthropic_stream import StreamReader
from overt.models._anthropic_wire import Converter
from overt.models._failures import (
    body_text,
    connection_failure,
    error_body,
    kind_of,
    loads,
    other_failure,
    status_failure,
    unreadable,
)
from overt.models._pool import Pool
from overt.models._sse import Events, chunks_of
from overt.models._wire import Wire, wire_name

__all__ = ("AnthropicModel",)

_Client: TypeAlias = AsyncAnthropic | AsyncAnthropicVertex

_ANTHROPIC = "https://api.anthropic.com"
_PATH = "/v1/messages"
_SECRET_HEADERS = (
    "anthropic-organization-id",
    "anthropic-workspace-id",
    "api-key",
    "authorization",
    "cookie",
    "x-api-key",
)
_SECRET_NAMES = ("api_key", "auth_token", "webhook_key", "access_token", "project_id")
# What sending raises; the client leaves what goes wrong in the body of a refusal as it is.
_RAISED = (AnthropicError, HTTPError, UnicodeError)
_MAX_SHOWN = 50_000
_DRAIN = 1.0


class AnthropicModel:
    """A model behind Anthropic's messages API or a compatible endpoint, through the official client.

    One object may be used by many runs, and from several event loops, in turn or at once, on asyncio and trio: each
    loop has one pool of connections, shared by all models and closed as the loop ends. The client's own retries are
    off, since the runtime retries and counts each attempt. Tool names the API does not take are sent under another name
    and come back as their own. Arguments that are not one JSON object are reported, not repaired.

    Sent are texts, gif, jpeg, png and webp images and PDF files as data or by url, and other texts as data. A text that
    is blank, which the API refuses, is left out, or `(empty)` where nothing else was said. The API demands a limit on
    each reply: the least of what request and settings say, or else `max_output_tokens`; thinking counts. Replies of
    more than about 20,000 tokens take longer than the client waits for one that is not streamed, ten minutes.
    `settings.extra` goes into the body as it is, so `{"thinking": {"type": "adaptive"}}` has the model think; `tools`
    in it are added to the agent's, `output_config` to the schema of the answer.

    Thinking, and whatever else only the API understands, is kept with the message and sent back with it unchanged, to
    the host it came from, as long as nothing it builds on is another: not the message itself, and not instructions,
    tools and messages before it. Otherwise it is left out, because the API would refuse the request, and where thinking
    is `"disabled"`. With `{"type": "enabled"}` only the message itself has to be unchanged, as older models, which
    think so, want it.

    A reply that pauses for a tool of the provider's own (`pause_turn`), or fills the context window, ends with
    `"length"`: it is no answer. One that is refused has the provider's words for it as its text, where it has no other.

    Args:
        name: The model, as the provider calls it.
        client: Your own `AsyncAnthropic`, `AsyncAnthropicVertex` or subclass, used with its retries off and never
            closed; then which loops it may be used from is for you to know. `None` makes clients as needed.
        base_url: Another endpoint, without `/v1`; `None` is `ANTHROPIC_BASE_URL` as it is now, or
            Anthropic.
        api_key: The key; `None` reads `ANTHROPIC_API_KEY` at each call.
        settings: Settings that hold where the agent's own say nothing.
        max_output_tokens: Tokens a reply may have where neither settings nor budget say less.
        structured_output: Whether typed output is asked for by schema; models before Claude 4.5, and some compatible
            endpoints, do not know it. An answer with free mappings or a recursive type, which it cannot express, is
            asked for in words.
        cache: Whether the provider is to cache tools, instructions and the transcript for five minutes. Writing into
            the cache costs more than sending, reading from it far less.

    Raises:
        DefinitionError: `name` is empty, `max_output_tokens` less than 1, `base_url` no HTTP address, or `client` is
            given beside `base_url` or `api_key`.
    """

    def __init__(
        self,
        name: str,
        *,
        client: AsyncAnthropic | AsyncAnthropicVertex | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        max_output_tokens: int = 16_384,
        structured_output: bool = True,
        cache: bool = False,
    ) -> None:
        if not name.strip():
            raise DefinitionError("AnthropicModel: name is empty")
        if max_output_tokens < 1:
            raise DefinitionError(f"AnthropicModel {name!r}: max_output_tokens is {max_output_tokens}")
        if client is not None and (base_url is not None or api_key is not None):
            raise DefinitionError(
                f"AnthropicModel {name!r}: base_url and api_key belong to the client that is given"
            )
        if client is None and base_url is None:
            # Now, and not by the client at the first call: thinking goes back to the host that is known here.
            base_url = os.environ.get("ANTHROPIC_BASE_URL", "").strip() or _ANTHROPIC
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise DefinitionError(f"AnthropicModel {name!r}: base_url has to begin with http:// or https://")
        self._name = name
        self._client: _Client | None = None if client is None else client.with_options(max_retries=0)
        self._base_url = base_url
        self._api_key = api_key
        self._settings = settings or ModelSettings()
        self._structured_output = structured_output
        at = str(self._client.base_url) if self._client is not None else base_url
        self._provider = f"anthropic:{(urlsplit(at).hostname if at else None) or 'api.anthropic.com'}"
        self._converter = Converter(
            self._provider, limit=max_output_tokens, cache=cache, transform=transform_schema
        )

    @property
    def name(self) -> str:
        """The model's name, without a provider before it."""
        return self._name

    @property
    def provider(self) -> str:
        """Whose prices hold: `"anthropic"`."""
        return "anthropic"

    @property
    def structured_output(self) -> bool:
        """Whether typed output is asked for by schema."""
        return self._structured_output

    def check(self) -> None:
        """Say now what `generate` would say at its first use.

        Raises:
            DefinitionError: There is no API key.
        """
        if self._client is None:
            self._key()

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
        client = self._client or await self._own_client()
        body, prefix = self._converter.body(request, model=self._name, base=self._settings)
        body.pop("stream", None)
        failure: ModelError
        try:
            response = await _post(client, body)
            if response.is_success:
                return self._read(response, request, client, prefix)
            failure = _refusal(response, client, request)
        except _RAISED as error:
            failure = _failure(error, client, request)
        # Outside the handler, so that no traceback leads to the provider's own exception and its body.
        raise failure

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Ask the provider once, and give the reply as it comes.

        Nothing is sent before the first piece is asked for. Leaving early closes the connection, and the provider stops
        soon after.

        Args:
            request: What is asked, as for `generate`.

        Yields:
            Pieces, which together are what `generate` would have returned. Usage is told as it becomes known. A reply
            that breaks off ends without a finish reason.

        Raises:
            ModelError: As from `generate`; after some pieces too, then with the usage known so far.
            DefinitionError: As from `generate`.
        """
        client = self._client or await self._own_client()
        body, prefix = self._converter.body(request, model=self._name, base=self._settings)
        body["stream"] = True
        reader = StreamReader(request, provider=self._provider, prefix=prefix)
        failure: ModelError | None = None
        try:
            response = await _post(client, body)
            if response.is_success:
                async with aclosing(_events(response, client, reader)) as events:
                    async for event in events:
                        for delta in reader.read(event):
                            yield delta
            else:
                failure = _refusal(response, client, request)
        except _RAISED as error:
            failure = _failure(error, client, request, usage=reader.usage)
        if failure is not None:
            raise failure

    def _key(self) -> str:
        key = self._api_key if self._api_key is not None else os.environ.get("ANTHROPIC_API_KEY")
        if not key or not key.strip():
            raise DefinitionError(
                f"AnthropicModel {self._name!r} has no API key: set ANTHROPIC_API_KEY, or give api_key= or client="
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise DefinitionError(
                f"AnthropicModel {self._name!r}: the API key holds a character no header can carry"
            )
        return key

    async def _own_client(self) -> AsyncAnthropic:
        key = self._key()

        def make(http: AsyncClient) -> AsyncAnthropic:
            return AsyncAnthropic(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

        return await _pool.client(self, key=key, make=make)

    def _read(self, response: Response, request: ModelRequest, client: _Client, prefix: int) -> ModelResponse:
        text, secrets = body_text(response), _secrets(client, response)
        body = loads(text)
        if not isinstance(body, dict):
            raise unreadable("is not a JSON object", text, headers=response.headers, secrets=secrets)
        reply = cast("dict[str, object]", body)
        usage = usage_of(reply.get("usage"))
        if reply.get("error"):
            raise error_body(reply["error"], text, headers=response.headers, secrets=secrets, usage=usage)
        content = reply.get("content")
        if content is None and "stop_reason" in reply:
            content = []
        if not isinstance(content, list):
            raise unreadable("has no content", text, headers=response.headers, secrets=secrets, usage=usage)
        return read_reply(
            reply, cast("list[object]", content), request, provider=self._provider, prefix=prefix
        )


async def _post(client: _Client, body: Wire) -> Response:
    """Send a body; the response to one that asks for a stream is not read yet."""
    streamed = body.get("stream") is True
    answer: object = None
    unknown = False
    try:
        if type(client) is AsyncAnthropic:
            # The client copies a body in Python before it encodes it, which costs five times as much as encoding it.
            answer = await client.post(
                _PATH,
                content=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
                cast_to=Response,
                stream=streamed,
                stream_cls=AsyncStream[object],
            )
        else:
            answer = await client.post(
                _PATH, body=body, cast_to=Response, stream=streamed, stream_cls=AsyncStream[object]
            )
    except TypeError as error:
        if "authentication" not in str(error):
            raise
        unknown = True
    if unknown:
        raise DefinitionError("the client given to AnthropicModel has no credentials")
    response = cast("Response", answer)
    if not response.is_success:
        # Here it is only where a middleware of the client's has let it through.
        await response.aread()
    return response


async def _events(
    response: Response, client: _Client, reader: StreamReader
) -> AsyncGenerator[Mapping[str, object]]:
    """Yield the events of a stream as objects.

    Raises:
        ModelError: The connection broke, an event is an error or cannot be read, or there is none in an answer that is
            not empty.
    """
    events, seen, any_yet, done = Events(), bytearray(), False, False
    failure: ModelError | None = None
    async with aclosing(chunks_of(response.aiter_bytes(), response.aclose)) as chunks:
        while not done:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                break
            except Exception as error:  # noqa: BLE001 - what a connection raises is not all of one family
                failure = _broken(error, response, client, reader.usage)
                break
            for name, data in events.feed(chunk):
                any_yet = True
                event = _event(name, data, response, client, reader.usage)
                yield event
                done = done or event.get("type") == "message_stop"
            if not any_yet and len(seen) < _MAX_SHOWN:
                seen += chunk
        if done:
            # All is said; what is left to read is the end of the answer, without which the connection is lost.
            with anyio.move_on_after(_DRAIN), suppress(Exception):
                async for _ in chunks:
                    pass
    if failure is not None:
        raise failure
    if any_yet or _begins(bytes(seen).lstrip()):
        return
    text = seen.decode("utf-8", "replace")
    body = loads(text)
    wrong = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    secrets = _secrets(client, response)
    if wrong:
        raise error_body(wrong, text, headers=response.headers, secrets=secrets)
    raise unreadable("is no stream of events", text, headers=response.headers, secrets=secrets)


def _begins(head: bytes) -> bool:
    """Say whether an answer that ended within its first event, or before, was a stream of events."""
    return head.startswith((b"event:", b"data:", b":")) or b"event:".startswith(head)


def _event(
    name: str, data: str, response: Response, client: _Client, usage: Usage | None
) -> Mapping[str, object]:
    found = loads(data)
    body = cast("dict[str, object]", found) if isinstance(found, dict) else None
    if name == "error" or (body is not None and body.get("type") == "error"):
        wrong: object = data if body is None else body.get("error") or body
        raise error_body(
            wrong, data, headers=response.headers, secrets=_secrets(client, response), usage=usage
        )
    if body is not None:
        return body
    failure = connection_failure(
        "StreamIncomplete",
        f"an event of the stream cannot be read: {data}",
        secrets=_secrets(client, response),
    )
    failure.usage = usage
    raise failure


def _failure(
    error: Exception, client: _Client, request: ModelRequest, *, usage: Usage | None = None
) -> ModelError:
    """Return what the client raised as an error of ours, redacted."""
    kind, secrets = type(error).__name__, _secrets(client, None)
    if isinstance(error, APIStatusError):
        return _refusal(error.response, client, request)
    if isinstance(error, APIConnectionError):
        failure = connection_failure(
            kind, f"{error.message} {error.__cause__ or ''}".strip(), secrets=secrets
        )
    elif isinstance(error, HTTPError):
        # The connection broke while the body of a refusal was read.
        failure = _broken(error, None, client, usage)
    else:
        failure = other_failure(
            kind, error.message if isinstance(error, APIError) else str(error), secrets=secrets
        )
    failure.usage = usage
    return failure


def _broken(error: Exception, response: Response | None, client: _Client, usage: Usage | None) -> ModelError:
    """Return what a connection raised within an answer, named as the client names it."""
    kind = "APITimeoutError" if isinstance(error, TimeoutException | TimeoutError) else "APIConnectionError"
    failure = connection_failure(
        kind,
        f"the answer broke off: {type(error).__name__} {error}".strip(),
        secrets=_secrets(client, response),
    )
    failure.usage = usage
    return failure


def _refusal(response: Response, client: _Client, request: ModelRequest) -> ModelError:
    try:
        text = body_text(response)
    except Exception:  # noqa: BLE001 - a body that cannot be read is no body
        text = ""
    return status_failure(
        kind_of(response.status_code),
        response.status_code,
        text,
        headers=response.headers,
        secrets=_secrets(client, response),
        tools=request.tools,
        wire_name=wire_name,
    )


def _secrets(client: _Client, response: Response | None) -> set[str | None]:
    secrets: set[str | None] = set()
    for name in _SECRET_NAMES:
        value = getattr(client, name, None)
        secrets.add(value if isinstance(value, str) else None)
    headers: list[Mapping[str, object]] = [client.default_headers]
    if response is not None:
        # A token the client fetched itself is only here.
        headers += (response.request.headers, response.headers)
    for name, value in (item for known in headers for item in known.items()):
        if name.lower() in _SECRET_HEADERS and isinstance(value, str):
            secrets |= {value, value.partition(" ")[2]}
    return secrets


def _http() -> AsyncClient:
    # The key is in a header of Anthropic's own, which a redirect would carry to wherever it leads.
    return DefaultAsyncHttpxClient(follow_redirects=False)


_pool: Pool[AsyncAnthropic] = Pool("anthropic", make_http=_http)
