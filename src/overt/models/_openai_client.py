"""One model's way to an endpoint that speaks OpenAI's APIs: the client, its key, and what becomes of failures."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import anyio
from httpx2 import AsyncClient, HTTPError, Request, Response, TimeoutException
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from overt._text import told
from overt.errors import DefinitionError, ModelError
from overt.message import ModelDelta, ModelRequest, ModelResponse, Usage
from overt.models._failures import (
    body_text,
    connection_failure,
    error_body,
    loads,
    other_failure,
    status_failure,
    unreadable,
)
from overt.models._openai_pieces import Heard
from overt.models._pool import Pool
from overt.models._sse import Events, chunks_of
from overt.models._wire import Wire, wire_name

__all__ = ("Answer", "Endpoint", "StreamReader")

_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "openai-organization", "openai-project", "cookie")
_AZURE = (".openai.azure.com", ".azure-api.net", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_OPENAI = "https://api.openai.com/v1"
# What sending raises; the client leaves what goes wrong in the body of a refusal as it is.
_RAISED = (OpenAIError, HTTPError, UnicodeError)
# Seconds a stream may take to end once all of it was said, so that its connection can be used again.
_DRAIN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that says yes, or an event of one, and how to say what is wrong with it.

    Attributes:
        text: The body or the event's data, as it came.
        headers: Of the answer.
        secrets: Strings known to be secret.
        piece: Whether it is one of a stream, which may have been damaged on the way.
    """

    text: str
    headers: Mapping[str, str]
    secrets: frozenset[str | None]
    piece: bool = False

    def reports(self, wrong: object, *, usage: Usage | None = None) -> ModelError:
        """Return the error of an answer that holds one. Nothing of the answer is told but that.

        Args:
            wrong: The error it holds.
            usage: What the provider says to have charged.
        """
        told = json.dumps({"error": wrong}, ensure_ascii=False)
        return error_body(wrong, told, headers=self.headers, secrets=self.secrets, usage=usage)

    def unreadable(self, what: str, *, usage: Usage | None = None) -> ModelError:
        """Return the error of an answer that cannot be read: it `"has no choices"`."""
        return unreadable(
            what,
            self.text,
            headers=self.headers,
            secrets=self.secrets,
            usage=usage,
            retryable=self.piece,
        )

    def mapping(self, *, usage: Usage | None = None) -> Mapping[str, object]:
        """Return it as an object.

        Raises:
            ModelError: It is none.
        """
        body = loads(self.text)
        if not isinstance(body, dict):
            raise self.unreadable("is not a JSON object", usage=usage)
        return cast("dict[str, object]", body)


class StreamReader(Protocol):
    """Reads the events of one reply."""

    usage: Usage | None
    """What it has used so far, `None` where that is not known."""
    ended: bool
    """Whether an event has said that it was the last."""

    def read(self, name: str, event: Mapping[str, object], answer: Answer) -> Iterator[ModelDelta]:
        """Yield what an event says.

        Raises:
            ModelError: It reports a failure, or makes no sense.
        """
        ...

    def end(self, *, done: bool) -> Iterator[ModelDelta]:
        """Yield what is left to say; nothing where the stream broke off.

        Args:
            done: Whether `[DONE]` was said.
        """
        ...


class Endpoint:
    """Sends bodies and brings answers, on any event loop; made once for a model.

    Args:
        kind: Name of the model's class, for errors.
        name: Name of the model.
        client: The host's own, or `None`.
        base_url: Of the endpoint; `None` is `OPENAI_BASE_URL` as it is now, or OpenAI.
        api_key: The key; `None` reads `OPENAI_API_KEY` at each call.

    Attributes:
        host: Its host name.
        provider: `"openai"`, `"azure"`, or the host name of any other.
        official: Whether it is OpenAI's own.

    Raises:
        DefinitionError: `name` is empty, `base_url` is no HTTP address, or `client` is given beside `base_url` or
            `api_key`.
    """

    host: str
    provider: str
    official: bool

    def __init__(
        self, kind: str, name: str, *, client: AsyncOpenAI | None, base_url: str | None, api_key: str | None
    ) -> None:
        if not name.strip():
            raise DefinitionError(f"{kind}: name is empty")
        self._told = f"{kind} {name!r}"
        if client is not None and (base_url is not None or api_key is not None):
            raise DefinitionError(f"{self._told}: base_url and api_key belong to the client that is given")
        if client is None and base_url is None:
            # Now, and not by the client at the first call: reasoning goes back to the host that is known here.
            base_url = os.environ.get("OPENAI_BASE_URL", "").strip() or _OPENAI
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise DefinitionError(f"{self._told}: base_url has to begin with http:// or https://")
        self._client = None if client is None else client.with_options(max_retries=0)
        self._base_url = base_url
        self._api_key = api_key
        at = base_url if self._client is None else str(self._client.base_url)
        self.host = (urlsplit(at).hostname if at else None) or "api.openai.com"
        self.official = f".{self.host}".endswith(".api.openai.com")
        azure = self.host.endswith(_AZURE)
        self.provider = "openai" if self.official else "azure" if azure else self.host

    def check(self) -> None:
        """Say now what is missing.

        Raises:
            DefinitionError: There is no API key.
        """
        if self._client is None:
            self._key()

    async def ask(
        self,
        path: str,
        body: Wire,
        request: ModelRequest,
        *,
        read: Callable[[Mapping[str, object], Answer], ModelResponse],
    ) -> ModelResponse:
        """Send a body and return what its answer says.

        Args:
            path: Where to.
            body: What is sent.
            request: What is asked, for the names of the tools.
            read: Reads the answer.

        Raises:
            ModelError: There is no answer, it says no, or it cannot be read.
            DefinitionError: There is no API key. Nothing was sent.
        """
        client = self._client or await self._own_client()
        failure: ModelError
        try:
            response = await client.post(path, body=body, cast_to=Response)
        except _RAISED as error:
            failure = _failure_of(error, client, request)
        else:
            secrets = _secrets(client, response.request, response.headers)
            answer = Answer(text=body_text(response), headers=response.headers, secrets=secrets)
            return read(answer.mapping(), answer)
        # Outside the handler, so that no traceback leads to the provider's own exception and its body.
        raise failure

    async def stream(
        self,
        path: str,
        body: Wire,
        request: ModelRequest,
        *,
        read: Callable[[Mapping[str, object], Answer], ModelResponse],
        reader: StreamReader,
    ) -> AsyncGenerator[ModelDelta]:
        """Send a body and yield what its answer says, as it comes. Leaving the iteration closes the answer.

        Args:
            path: Where to.
            body: What is sent.
            request: What is asked, for the names of the tools.
            read: Reads an answer that came whole in spite.
            reader: Reads the events of this answer.

        Raises:
            ModelError: As `ask`, or the stream broke.
            DefinitionError: There is no API key. Nothing was sent.
        """
        client = self._client or await self._own_client()
        response: Response | None = None
        failure: ModelError | None = None
        try:
            # With this `cast_to` the client hands out the response itself, unread.
            given: object = await client.post(
                path, body=body, cast_to=Response, stream=True, stream_cls=AsyncStream[object]
            )
            response = cast("Response", given)
        except _RAISED as error:
            failure = _failure_of(error, client, request)
        if response is None:
            # As in `ask`, outside the handler.
            raise failure or AssertionError("unreachable")
        secrets = _secrets(client, response.request, response.headers)
        try:
            media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media.endswith("json") or media == "text/html":
                try:
                    await response.aread()
                except Exception as error:  # noqa: BLE001 - what a connection raises is not all of one family
                    failure = _broken(error, response, secrets, None)
                if failure is not None:
                    raise failure
                answer = Answer(text=body_text(response), headers=response.headers, secrets=secrets)
                for delta in Heard().rest(read(answer.mapping(), answer)):
                    yield delta
                return
            done = False
            events = Events()
            async with aclosing(chunks_of(response.aiter_bytes(), response.aclose)) as chunks:
                while not done:
                    try:
                        chunk = await anext(chunks)
                    except StopAsyncIteration:
                        break
                    except Exception as error:  # noqa: BLE001 - as above
                        failure = _broken(error, response, secrets, reader.usage)
                        break
                    for name, data in events.feed(chunk):
                        if data.startswith("[DONE]"):
                            done = True
                            break
                        answer = Answer(text=data, headers=response.headers, secrets=secrets, piece=True)
                        for delta in reader.read(name, answer.mapping(usage=reader.usage), answer):
                            yield delta
                    done = done or reader.ended
                if done:
                    await _drain(chunks)
            if failure is not None:
                raise failure
            for delta in reader.end(done=done):
                yield delta
        finally:
            await response.aclose()

    def _key(self) -> str:
        key = self._api_key if self._api_key is not None else os.environ.get("OPENAI_API_KEY")
        if not key or not key.strip():
            raise DefinitionError(
                f"{self._told} has no API key: set OPENAI_API_KEY, or give api_key= or client="
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise DefinitionError(f"{self._told}: the API key holds a character no header can carry")
        return key

    async def _own_client(self) -> AsyncOpenAI:
        key = self._key()

        def make(http: AsyncClient) -> AsyncOpenAI:
            return AsyncOpenAI(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

        return await _pool.client(self, key=key, make=make)


async def _drain(chunks: AsyncGenerator[bytes]) -> None:
    """Read what follows the end of a stream, but do not wait for it."""
    with anyio.move_on_after(_DRAIN):
        try:
            async for _ in chunks:
                pass
        except Exception:  # noqa: BLE001 - everything was said; only the connection is lost
            pass


def _broken(
    error: Exception, response: Response, secrets: frozenset[str | None], usage: Usage | None
) -> ModelError:
    """Return what a connection raised in the middle of an answer, named as the client names it."""
    slow = isinstance(error, TimeoutException | TimeoutError)
    return connection_failure(
        "APITimeoutError" if slow else "APIConnectionError",
        f"the answer broke off: {told(error) or type(error).__name__}",
        headers=response.headers,
        secrets=secrets,
        usage=usage,
    )


def _failure_of(error: Exception, client: AsyncOpenAI, request: ModelRequest) -> ModelError:
    """Return what the client raised as an error of ours, redacted."""
    kind = type(error).__name__
    if isinstance(error, APIStatusError):
        try:
            text = body_text(error.response)
        except Exception:  # noqa: BLE001 - a body that cannot be read is no body
            text = ""
        return status_failure(
            kind,
            error.status_code,
            text,
            headers=error.response.headers,
            secrets=_secrets(client, error.request, error.response.headers),
            tools=request.tools,
            wire_name=wire_name,
        )
    if isinstance(error, APIConnectionError):
        secrets = _secrets(client, error.request, {})
        return connection_failure(kind, f"{error.message} {error.__cause__ or ''}".strip(), secrets=secrets)
    if isinstance(error, HTTPError):
        # The connection broke, or made no sense, while the body of a refusal was read.
        slow = isinstance(error, TimeoutException)
        return connection_failure(
            "APITimeoutError" if slow else "APIConnectionError",
            f"the answer broke off: {told(error) or kind}",
            secrets=_secrets(client, None, {}),
        )
    said = error.message if isinstance(error, APIError) else str(error)
    return other_failure(kind, said, secrets=_secrets(client, None, {}))


def _secrets(
    client: AsyncOpenAI, request: Request | None, headers: Mapping[str, str]
) -> frozenset[str | None]:
    """Return what must not be told: all the client was given, and what it sent and got in headers."""
    secrets: set[str | None] = {
        client.api_key,
        client.admin_api_key,
        client.organization,
        client.project,
        client.webhook_secret,
    }
    # A token that a provider of tokens gave stands in the request alone.
    sent: Mapping[str, object] = {} if request is None else request.headers
    given: tuple[Mapping[str, object], ...] = (client.default_headers, sent, headers)
    for mapping in given:
        for name, value in mapping.items():
            if name.lower() in _SECRET_HEADERS and isinstance(value, str):
                secrets |= {value, value.partition(" ")[2]}
    return frozenset(secrets)


_pool: Pool[AsyncOpenAI] = Pool("openai", make_http=DefaultAsyncHttpxClient)
