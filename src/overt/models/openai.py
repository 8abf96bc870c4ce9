"""OpenAI's chat completions, and every endpoint that speaks them."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import cast
from urllib.parse import urlsplit

from anyio.lowlevel import RunVar
from httpx2 import AsyncClient, Response
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from overt._text import clean
from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest, ModelResponse, ModelSettings
from overt.models._openai_wire import Converter, OutputLimitField, read_reply
from overt.models.redact import denied, redact

__all__ = ("OpenAIModel",)

_MAX_DETAIL = 2_000
_MAX_IN_MESSAGE = 200
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "openai-organization", "openai-project", "cookie")
_RETRYABLE = frozenset({408, 409, 425, 429})


class OpenAIModel:
    """A model behind OpenAI's chat completions API or a compatible endpoint, through the official client.

    One object may be used by many runs, and from several event loops, in turn or at once, on asyncio and trio: each
    loop has one pool of connections, shared by all models and closed as the loop ends. The client's own retries are
    off, since the runtime retries and counts each attempt. Tool names the API does not take are sent under another name
    and come back as their own. Arguments that are not one JSON object are reported, not repaired. A limit on
    output tokens is the least of what the request and the settings say.

    Args:
        name: The model, as the provider calls it.
        client: Your own `AsyncOpenAI` (or `AsyncAzureOpenAI`), used with its retries off and never closed; then which
            loops it may be used from is for you to know. `None` makes clients as needed.
        base_url: Another endpoint; `None` is `OPENAI_BASE_URL`, or OpenAI.
        api_key: The key; `None` reads `OPENAI_API_KEY` at each call.
        settings: Settings that hold where the agent's own say nothing.
        output_limit_field: What the endpoint calls its output limit; many compatible ones know only `"max_tokens"`.

    Raises:
        DefinitionError: `name` is empty, `base_url` is no HTTP address, or `client` is given beside `base_url` or
            `api_key`.
    """

    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        output_limit_field: OutputLimitField = "max_completion_tokens",
    ) -> None:
        if not name.strip():
            raise DefinitionError("OpenAIModel: name is empty")
        if client is not None and (base_url is not None or api_key is not None):
            raise DefinitionError(
                f"OpenAIModel {name!r}: base_url and api_key belong to the client that is given"
            )
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise DefinitionError(f"OpenAIModel {name!r}: base_url has to begin with http:// or https://")
        self._name = name
        self._client = None if client is None else client.with_options(max_retries=0)
        self._base_url = base_url
        self._api_key = api_key
        self._settings = settings or ModelSettings()
        at = base_url if self._client is None else str(self._client.base_url)
        self._provider = f"openai-chat:{(urlsplit(at).hostname if at else None) or 'api.openai.com'}"
        self._converter = Converter(self._provider, limit_field=output_limit_field)

    @property
    def name(self) -> str:
        """The model's name, without a provider before it."""
        return self._name

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
        body = self._converter.body(request, model=self._name, base=self._settings)
        failure: ModelError
        try:
            response = await client.post("/chat/completions", body=body, cast_to=Response)
            return self._read(response.text, request, client)
        except OpenAIError as error:
            failure = self._failure(error, client)
        # Outside the handler, so that no traceback leads to the provider's own exception and its body.
        raise failure

    def _key(self) -> str:
        key = self._api_key if self._api_key is not None else os.environ.get("OPENAI_API_KEY")
        if not key or not key.strip():
            raise DefinitionError(
                f"OpenAIModel {self._name!r} has no API key: set OPENAI_API_KEY, or give api_key= or client="
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise DefinitionError(
                f"OpenAIModel {self._name!r}: the API key holds a character no header can carry"
            )
        return key

    async def _own_client(self) -> AsyncOpenAI:
        key = self._key()
        loop = _loops.get(None)
        if loop is None:
            loop = _Loop()
            _loops.set(loop)
            await loop.open()
        made = loop.clients.get(self)
        if made is None or made.api_key != key:
            made = AsyncOpenAI(api_key=key, base_url=self._base_url, max_retries=0, http_client=loop.http)
            loop.clients[self] = made
        return made

    def _read(self, text: str, request: ModelRequest, client: AsyncOpenAI) -> ModelResponse:
        body = _loads(text)
        if not isinstance(body, dict):
            raise self._unreadable("is not a JSON object", text, client)
        reply = cast(dict[str, object], body)
        choices = reply.get("choices")
        found = cast(list[object], choices) if isinstance(choices, list) else []
        choice = cast(dict[str, object], found[0]) if found and isinstance(found[0], dict) else None
        wrong = reply.get("error")
        if choice is not None:
            wrong = wrong or choice.get("error")
        if wrong:
            raise self._error_body(wrong, text, client)
        if choice is None:
            raise self._unreadable("has no choices", text, client)
        if not isinstance(choice.get("message"), dict):
            raise self._unreadable("has a choice without a message", text, client)
        return read_reply(reply, choice, request, provider=self._provider)

    def _unreadable(self, what: str, text: str, client: AsyncOpenAI) -> ModelError:
        detail = self._redact(text, client)
        return ModelError(
            f"the reply {what}: {_cut(detail, _MAX_IN_MESSAGE)}", type="InvalidReply", detail=_cut(detail)
        )

    def _error_body(self, wrong: object, text: str, client: AsyncOpenAI) -> ModelError:
        fields: Mapping[str, object] = cast(dict[str, object], wrong) if isinstance(wrong, dict) else {}
        codes = [
            code
            for key in ("status", "status_code", "code")
            if (code := _status(fields.get(key))) is not None
        ]
        status = codes[0] if codes else None
        return self._status_failure("ErrorReply", status, text, client, retry=None)

    def _failure(self, error: OpenAIError, client: AsyncOpenAI) -> ModelError:
        kind = type(error).__name__
        if isinstance(error, APIStatusError):
            try:
                text = error.response.text
            except Exception:  # noqa: BLE001 - a body that cannot be read is no body
                text = ""
            retry = error.response.headers.get("x-should-retry")
            return self._status_failure(kind, error.status_code, text, client, retry=retry)
        if isinstance(error, APIConnectionError):
            cause = self._redact(str(error.__cause__ or ""), client)
            told = f"{error.message} {cause}".strip()
            return ModelError(f"{kind}: {_cut(told, _MAX_IN_MESSAGE)}", type=kind, retryable=True)
        told = self._redact(error.message if isinstance(error, APIError) else str(error), client)
        return ModelError(f"{kind}: {_cut(told, _MAX_IN_MESSAGE)}", type=kind)

    def _status_failure(
        self, kind: str, status: int | None, text: str, client: AsyncOpenAI, *, retry: str | None
    ) -> ModelError:
        refused = denied(kind, status)
        if refused is not None:
            return ModelError(refused, type=kind, status_code=status)
        retryable = status is not None and (status in _RETRYABLE or status >= 500)
        if retry in ("true", "false"):
            retryable = retry == "true"
        elif _error_fields(text).get("code") == "insufficient_quota":
            retryable = False
        detail = self._redact(text, client)
        message = _error_fields(detail).get("message")
        told = message if isinstance(message, str) and message else detail
        prefix = kind if status is None else f"{kind} {status}"
        return ModelError(
            f"{prefix}: {_cut(told, _MAX_IN_MESSAGE)}" if told else prefix,
            type=kind,
            status_code=status,
            retryable=retryable,
            detail=_cut(detail) or None,
        )

    def _redact(self, text: str, client: AsyncOpenAI) -> str:
        secrets = {
            client.api_key,
            client.admin_api_key,
            client.organization,
            client.project,
            client.webhook_secret,
        }
        for name, value in client.default_headers.items():
            if name.lower() in _SECRET_HEADERS and isinstance(value, str):
                secrets |= {value, value.partition(" ")[2]}
        return redact(text, secrets)


class _Loop:
    """What belongs to one event loop: a pool of connections, and the clients of the models that use it."""

    def __init__(self) -> None:
        self.http: AsyncClient = DefaultAsyncHttpxClient()
        self.clients: weakref.WeakKeyDictionary[OpenAIModel, AsyncOpenAI] = weakref.WeakKeyDictionary()
        self._keeper = self._keep()

    async def open(self) -> None:
        await anext(self._keeper)

    async def _keep(self) -> AsyncGenerator[None]:
        # A loop closes the async generators that were begun in it, while it still runs: the one hook that both
        # asyncio and trio give to a library.
        try:
            yield
        finally:
            try:
                await self.http.aclose()
            finally:
                # The generator knows its loop, and would keep it alive from within the variable.
                _loops.set(None)


_loops: RunVar[_Loop | None] = RunVar("overt.models.openai")


def _loads(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _error_fields(text: str) -> Mapping[str, object]:
    body = _loads(text)
    if not isinstance(body, dict):
        return {}
    fields = cast(dict[str, object], body)
    inner = fields.get("error")
    return cast(dict[str, object], inner) if isinstance(inner, dict) else fields


def _status(value: object) -> int | None:
    try:
        code = int(value) if isinstance(value, int | str) else 0
    except ValueError:
        return None
    return code if 400 <= code < 600 else None


def _cut(text: str, length: int = _MAX_DETAIL) -> str:
    text = clean(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
