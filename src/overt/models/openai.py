"""OpenAI's chat completions, and every endpoint that speaks them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from httpx2 import AsyncClient, Response
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest, ModelResponse, ModelSettings
from overt.models._failures import (
    connection_failure,
    error_body,
    loads,
    other_failure,
    status_failure,
    unreadable,
)
from overt.models._openai_wire import Converter, OutputLimitField, read_reply, usage_of
from overt.models._pool import Pool
from overt.models._wire import wire_name

__all__ = ("OpenAIModel",)

_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "openai-organization", "openai-project", "cookie")


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
            return self._read(response, request, client)
        except OpenAIError as error:
            failure = failure_of(error, client, request)
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

        def make(http: AsyncClient) -> AsyncOpenAI:
            return AsyncOpenAI(api_key=key, base_url=self._base_url, max_retries=0, http_client=http)

        return await _pool.client(self, key=key, make=make)

    def _read(self, response: Response, request: ModelRequest, client: AsyncOpenAI) -> ModelResponse:
        text, secrets = response.text, _secrets(client)
        body = loads(text)
        if not isinstance(body, dict):
            raise unreadable("is not a JSON object", text, headers=response.headers, secrets=secrets)
        reply = cast("dict[str, object]", body)
        usage = usage_of(reply.get("usage"))
        choices = reply.get("choices")
        found = cast("list[object]", choices) if isinstance(choices, list) else []
        choice = cast("dict[str, object]", found[0]) if found and isinstance(found[0], dict) else None
        wrong = reply.get("error")
        if choice is not None:
            wrong = wrong or choice.get("error")
        if wrong:
            raise error_body(wrong, text, headers=response.headers, secrets=secrets, usage=usage)
        lacks = (
            "has no choices"
            if choice is None
            else None
            if isinstance(choice.get("message"), dict)
            else "has a choice without a message"
        )
        if choice is None or lacks is not None:
            raise unreadable(lacks or "", text, headers=response.headers, secrets=secrets, usage=usage)
        return read_reply(reply, choice, request, provider=self._provider)


def failure_of(error: OpenAIError, client: AsyncOpenAI, request: ModelRequest) -> ModelError:
    """Return what the client raised as an error of ours, redacted."""
    kind = type(error).__name__
    secrets = _secrets(client)
    if isinstance(error, APIStatusError):
        try:
            text = error.response.text
        except Exception:  # noqa: BLE001 - a body that cannot be read is no body
            text = ""
        return status_failure(
            kind,
            error.status_code,
            text,
            headers=error.response.headers,
            secrets=secrets,
            tools=request.tools,
            wire_name=wire_name,
        )
    if isinstance(error, APIConnectionError):
        return connection_failure(kind, f"{error.message} {error.__cause__ or ''}".strip(), secrets=secrets)
    return other_failure(kind, error.message if isinstance(error, APIError) else str(error), secrets=secrets)


def _secrets(client: AsyncOpenAI) -> set[str | None]:
    secrets: set[str | None] = {
        client.api_key,
        client.admin_api_key,
        client.organization,
        client.project,
        client.webhook_secret,
    }
    headers: Mapping[str, object] = client.default_headers
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS and isinstance(value, str):
            secrets |= {value, value.partition(" ")[2]}
    return secrets


_pool: Pool[AsyncOpenAI] = Pool("openai", make_http=DefaultAsyncHttpxClient)
