"""Gemini's generateContent, at Google's Gemini API and on Vertex AI."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httpx2
from anyio import CancelScope, to_thread
from google.auth.exceptions import GoogleAuthError, TransportError
from google.genai import Client
from google.genai.client import AsyncClient
from google.genai.errors import APIError
from google.genai.types import HttpOptions, HttpRetryOptions

from overt.errors import DefinitionError, ModelError
from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings
from overt.models._failures import (
    connection_failure,
    error_body,
    kind_of,
    loads,
    other_failure,
    status_failure,
    unreadable,
)
from overt.models._google_reply import Reader, error_of
from overt.models._google_wire import Converter, function_name, version_of
from overt.models._pool import Pool
from overt.models._sse import Events, chunks_of
from overt.models.assemble import Assembler

__all__ = ("GoogleModel",)

_GOOGLE = "https://generativelanguage.googleapis.com"
_KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
_SECRET_HEADERS = ("authorization", "x-goog-api-key", "x-goog-user-project", "cookie")
# The client retries nothing unless it is told to, but with aiohttp it connects twice, and a client may come with
# retries of its own; one attempt per request overrides both.
_ONCE = HttpOptions(retry_options=HttpRetryOptions(attempts=1))
_TIMEOUT = httpx2.Timeout(600, connect=5.0)
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
_TIMED_OUT = frozenset({"httpx.TimeoutException", "httpx2.TimeoutException", "builtins.TimeoutError"})
_UNREACHED = frozenset(
    {"httpx.RequestError", "httpx2.RequestError", "aiohttp.ClientError", "builtins.OSError"}
)


class _Whole(Protocol):
    headers: dict[str, str] | None
    body: str | None


class _Streamed(Protocol):
    headers: dict[str, str]
    response_stream: Any


class _Api(Protocol):
    """What is used of `google.genai._api_client.BaseApiClient`, the client's own way to send a body."""

    vertexai: bool | None
    api_key: str | None
    project: str | None
    location: str | None
    _credentials: object
    _http_options: HttpOptions

    async def async_request(
        self, http_method: str, path: str, request_dict: dict[str, Any], http_options: HttpOptions
    ) -> _Whole: ...

    def _build_request(
        self, http_method: str, path: str, request_dict: dict[str, Any], http_options: HttpOptions
    ) -> object: ...

    async def _async_request(
        self, http_request: object, http_options: HttpOptions, stream: bool
    ) -> _Streamed: ...

    def _access_token(self) -> str: ...


class GoogleModel:
    """A Gemini model through Google's official client: the Gemini API, or Vertex AI with a client of your own.

    One object may be used by many runs, and from several event loops, in turn or at once, on asyncio and trio: each
    loop has one pool of connections, shared by all models and closed as the loop ends. The client's own retries are
    off, since the runtime retries and counts each attempt. A request that gets no answer for 600 seconds fails, unless
    a client of your own has another timeout or none.

    Tool names the API does not take are sent under another name and come back as their own. The API may give calls no
    ids; results are told apart by their order then. Thoughts and thought signatures go back, at their places, to the
    host they came from, and to no other; calls of another provider are sent to Gemini 3 and later with the mark
    Google documents for them. `parallel_tool_calls` has no counterpart and is ignored. Of the settings' `extra`, an
    object such as `generationConfig` is merged into ours and `tools` are added to ours; all else is sent as it is.
    Thinking is as the model does it by default: `extra={"generationConfig": {"thinkingConfig": {…}}}`. A reply that
    Google would continue in another request ends as cut off (`"length"`). Arguments that come in pieces, as Vertex AI
    sends them if it is asked to, are reported as invalid.

    Args:
        name: The model, as the provider calls it: `"gemini-3.8-flash"`, `"tunedModels/…"`, on Vertex AI also a
            resource name.
        client: Your own `google.genai.Client`, or its `aio`, used with its retries off and never closed; then which
            loops it may be used from is for you to know. On trio it has to be made with
            `HttpOptions(httpx_async_client=httpx2.AsyncClient())`. `None` makes clients for the Gemini API as needed.
        base_url: Another endpoint, without the API's version; `None` is `GOOGLE_GEMINI_BASE_URL` as it is now, or
            Google. The version is the client's own choice, `v1` unless `GOOGLE_GENAI_API_VERSION` says otherwise.
        api_key: The key; `None` reads `GOOGLE_API_KEY`, else `GEMINI_API_KEY`, at each call.
        settings: Settings that hold where the agent's own say nothing.
        structured_output: Whether typed output is asked for by a schema also where tools are offered. `None` is by the
            name: Gemini 3 and later take both together, earlier ones refuse that, and of others it is not known.

    Raises:
        DefinitionError: `name` is empty or no name, `base_url` is no HTTP address, or `client` is given beside
            `base_url` or `api_key`.
    """

    def __init__(
        self,
        name: str,
        *,
        client: Client | AsyncClient | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        structured_output: bool | None = None,
    ) -> None:
        if not name.strip():
            raise DefinitionError("GoogleModel: name is empty")
        if ".." in name or re.search(r"[?&#\s]", name):
            raise DefinitionError(f"GoogleModel {name!r}: the name would lead to another address")
        if client is not None and (base_url is not None or api_key is not None):
            raise DefinitionError(
                f"GoogleModel {name!r}: base_url and api_key belong to the client that is given"
            )
        if client is None and base_url is None:
            # Now, and not by the client at the first call: thoughts go back to the host that is known here.
            base_url = os.environ.get("GOOGLE_GEMINI_BASE_URL", "").strip() or _GOOGLE
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise DefinitionError(f"GoogleModel {name!r}: base_url has to begin with http:// or https://")
        self._name = name
        self._client = client
        self._base_url = base_url
        self._api_key = api_key
        self._settings = settings or ModelSettings()
        at = base_url if client is None else api_of(client)._http_options.base_url
        self._host = (
            f"google:{(urlsplit(at).hostname if at else None) or 'generativelanguage.googleapis.com'}"
        )
        version = version_of(name)
        recent = version is not None and version >= 3
        self._structured_output = recent if structured_output is None else structured_output
        self._converter = Converter(self._host, signed=recent)

    @property
    def name(self) -> str:
        """The model's name, without a provider before it."""
        return self._name

    @property
    def provider(self) -> str:
        """`"google"`, whose prices hold."""
        return "google"

    @property
    def structured_output(self) -> bool:
        """Whether `ModelRequest.output_schema` is honoured beside tools."""
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
            ModelError: The provider refused or failed, could not be reached, its answer cannot be read, or it says
                that it made no usable one (`MalformedFunctionCall`, `UnexpectedToolCall`, …). Body and message are
                redacted; of a 401 or 403 there is neither.
            DefinitionError: There is no API key, a message has a part this API does not take, or the client that was
                given cannot be used on trio. Nothing was sent.
        """
        api = await self._api()
        body = self._converter.body(request, base=self._settings)
        failure: ModelError | None = None
        text, headers = "", cast("Mapping[str, str]", {})
        try:
            await _authorised(api)
            path = f"{self._path(api)}:generateContent"
            answer = await api.async_request("post", path, body, _ONCE)
            text, headers = answer.body or "", answer.headers or {}
        except Exception as error:
            failure = failure_of(error, api, request)
            if failure is None:
                raise
        if failure is not None:
            # Outside the handler, so that no traceback leads to the client's own exception and its body.
            raise failure
        return self._read(text, headers, request, api)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Ask the provider once and give the reply as it comes; together it is what `generate` would have returned.

        Nothing is sent before the first piece is asked for. Leaving the iteration closes the connection.

        Args:
            request: What is asked.

        Yields:
            The pieces. Why the reply ended comes last, so a stream that broke off has no reason.

        Raises:
            ModelError: As `generate`, also after some pieces; then with the usage that was reported until then.
            DefinitionError: As `generate`.
        """
        api = await self._api()
        body = self._converter.body(request, base=self._settings)
        reader = Reader(request, provider=self._host)
        failure: ModelError | None = None
        response: Any = None
        try:
            await _authorised(api)
            path = f"{self._path(api)}:streamGenerateContent?alt=sse"
            # `async_request_streamed` does the same, but leaves the response open where its iteration is left.
            http_request = api._build_request("post", path, body, _ONCE)
            answer = await api._async_request(http_request, _ONCE, stream=True)
            response, headers = answer.response_stream, answer.headers
            events = Events()
            async with aclosing(_chunks(response)) as chunks:
                async for chunk in chunks:
                    for _, event in events.feed(chunk):
                        for delta in reader.read(_event(event, headers, api, reader)):
                            yield delta
            for _, event in events.end():
                for delta in reader.read(_event(event, headers, api, reader)):
                    yield delta
            _check_stray(b"\n".join(events.stray), headers, api, reader)
            _check_failed(reader, headers, api)
            yield reader.end(whole=False)
        except ModelError:
            raise
        except Exception as error:
            failure = failure_of(error, api, request)
            if failure is None:
                raise
        finally:
            with CancelScope(shield=True):
                await _close(response)
        if failure is not None:
            failure.usage = failure.usage or reader.usage
            raise failure

    def _key(self) -> str:
        given = (self._api_key,) if self._api_key is not None else (os.environ.get(name) for name in _KEYS)
        key = next((key.strip() for key in given if key and key.strip()), None)
        if key is None:
            raise DefinitionError(
                f"GoogleModel {self._name!r} has no API key: set GEMINI_API_KEY or GOOGLE_API_KEY, "
                "or give api_key= or client="
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise DefinitionError(
                f"GoogleModel {self._name!r}: the API key holds a character no header can carry"
            )
        return key

    async def _api(self) -> _Api:
        if self._client is not None:
            api = api_of(self._client)
            if not _on_asyncio() and not _knows_trio(api):
                raise DefinitionError(
                    f"GoogleModel {self._name!r}: the client that was given needs asyncio; for trio make it with "
                    "http_options=HttpOptions(httpx_async_client=httpx2.AsyncClient())"
                )
            return api
        key = self._key()

        def make(http: httpx2.AsyncClient) -> Client:
            options = HttpOptions(
                base_url=self._base_url,
                httpx_async_client=http,
                # Neither is ever used, but the client would make its own, which takes a tenth of a second.
                httpx_client=httpx2.Client(transport=httpx2.MockTransport(_unused), trust_env=False),
                async_client_args={"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
            )
            return Client(vertexai=False, api_key=key, http_options=options)

        return api_of(await _pool.client(self, key=key, make=make))

    def _path(self, api: _Api) -> str:
        name = self._name
        if not api.vertexai:
            return name if name.startswith(("models/", "tunedModels/")) else f"models/{name}"
        if name.startswith(("projects/", "models/", "publishers/")):
            return name
        publisher, slash, model = name.partition("/")
        return f"publishers/{publisher}/models/{model}" if slash else f"publishers/google/models/{name}"

    def _read(self, text: str, headers: Mapping[str, str], request: ModelRequest, api: _Api) -> ModelResponse:
        secrets = _secrets(api)
        body = loads(text)
        wrong = error_of(body)
        reader = Reader(request, provider=self._host)
        made = Assembler()
        if isinstance(body, dict):
            for delta in reader.read(cast("dict[str, object]", body)):
                made.add(delta)
        if wrong is not None:
            raise error_body(wrong, text, headers=headers, secrets=secrets, usage=reader.usage)
        if not isinstance(body, dict):
            raise unreadable("is not a JSON object", text, headers=headers, secrets=secrets)
        if not reader.begun:
            raise unreadable("has no candidates", text, headers=headers, secrets=secrets, usage=reader.usage)
        _check_failed(reader, headers, api)
        made.add(reader.end(whole=True))
        return made.response()


def _event(text: str, headers: Mapping[str, str], api: _Api, reader: Reader) -> Mapping[str, object]:
    body = loads(text)
    wrong = error_of(body)
    if wrong is not None:
        raise error_body(wrong, text, headers=headers, secrets=_secrets(api), usage=reader.usage)
    if not isinstance(body, dict):
        told = "has an event that is not a JSON object"
        failure = unreadable(told, text, headers=headers, secrets=_secrets(api), usage=reader.usage)
        # Most likely it was cut off.
        failure.retryable = True
        raise failure
    return cast("dict[str, object]", body)


def _check_stray(stray: bytes, headers: Mapping[str, str], api: _Api, reader: Reader) -> None:
    """Raise what stands outside of all events: Google's errors come so, and a page does."""
    text = stray.decode("utf-8", "replace")
    if not text.strip():
        return
    wrong = error_of(loads(text))
    if wrong is not None:
        raise error_body(wrong, text, headers=headers, secrets=_secrets(api), usage=reader.usage)
    if not reader.begun:
        raise unreadable("is not a stream of events", text, headers=headers, secrets=_secrets(api))


def _check_failed(reader: Reader, headers: Mapping[str, str], api: _Api) -> None:
    if reader.failed is not None:
        kind, told, again = reader.failed
        text = json.dumps({"message": told})
        failure = status_failure(kind, None, text, headers=headers, secrets=_secrets(api), usage=reader.usage)
        failure.retryable = again
        raise failure


def failure_of(error: Exception, api: _Api, request: ModelRequest) -> ModelError | None:
    """Return what the client raised as an error of ours, redacted; `None` for what is none of the provider's."""
    secrets = _secrets(api)
    if isinstance(error, APIError):
        return _refusal(error, secrets, request)
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(error).__mro__}
    if names & _TIMED_OUT:
        return connection_failure("APITimeoutError", str(error), secrets=secrets)
    if isinstance(error, TransportError):
        return connection_failure("APIConnectionError", "Google's credentials could not be renewed")
    if names & _UNREACHED:
        return connection_failure("APIConnectionError", str(error), secrets=secrets)
    if isinstance(error, GoogleAuthError):
        # What is told here comes from the place that gives out credentials.
        failure = other_failure("AuthenticationError", "Google's credentials are missing or were refused")
        failure.retryable = getattr(error, "retryable", False) is True
        return failure
    if isinstance(error, ValueError | RecursionError | httpx2.InvalidURL):
        # The client reads the body of a refusal with whatever that raises.
        return other_failure(type(error).__name__, str(error), secrets=secrets)
    return None


def _refusal(error: APIError, secrets: set[str | None], request: ModelRequest) -> ModelError:
    told = cast("Any", error)
    response = told.response
    try:
        text = getattr(response, "text", None)
    except Exception:  # noqa: BLE001 - a body in an encoding that cannot be used is no body
        text = ""
    if not isinstance(text, str):
        # aiohttp has read it already, and the client keeps what was in it.
        text = json.dumps(told.details)
    headers = {str(name): str(value) for name, value in getattr(response, "headers", {}).items()}
    kind = kind_of(error.code)
    if "API_KEY_INVALID" in text:
        kind = "AuthenticationError"
    return status_failure(
        kind,
        error.code,
        text,
        headers=headers,
        secrets=secrets,
        tools=request.tools,
        wire_name=function_name,
    )


def api_of(client: Client | AsyncClient) -> _Api:
    """Return what sends a client's requests."""
    return cast("_Api", client._api_client)


def _secrets(api: _Api) -> set[str | None]:
    credentials: object = api._credentials
    secrets: set[str | None] = {api.api_key, api.project}
    for name in ("token", "quota_project_id", "service_account_email"):
        value: object = getattr(credentials, name, None)
        if isinstance(value, str):
            secrets.add(value)
    for name, value in (api._http_options.headers or {}).items():
        if name.lower() in _SECRET_HEADERS:
            secrets |= {value, value.partition(" ")[2]}
    return secrets


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _knows_trio(api: _Api) -> bool:
    options = cast("Any", api._http_options)
    return options.httpx_async_client is not None or "transport" in (options.async_client_args or {})


async def _authorised(api: _Api) -> None:
    """Have credentials in hand: the client renews them with asyncio alone, but also in a thread."""
    if api.vertexai and (api.project or api.location) and not api.api_key and not _on_asyncio():
        await to_thread.run_sync(api._access_token)


def _chunks(response: Any) -> AsyncGenerator[bytes]:
    # Of httpx2 and httpx, else of aiohttp.
    parts = response.aiter_bytes() if hasattr(response, "aiter_bytes") else response.content.iter_any()
    return chunks_of(parts, partial(_close, response))


async def _close(response: Any) -> None:
    if hasattr(response, "aclose"):
        await response.aclose()
    elif response is not None:
        response.close()


async def _timed(request: httpx2.Request) -> None:
    # The client asks for no timeout where none is set, and a dead connection would be waited for without end.
    if not any(cast("dict[str, float | None]", request.extensions.get("timeout", {})).values()):
        request.extensions["timeout"] = _TIMEOUT.as_dict()


def _unused(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"{request.method} without asyncio or trio")


def _http() -> httpx2.AsyncClient:
    # The key is in a header of Google's own, which a redirect would carry to wherever it leads.
    return httpx2.AsyncClient(limits=_LIMITS, event_hooks={"request": [_timed]}, follow_redirects=False)


_pool: Pool[Client] = Pool("google", make_http=_http)
