"""The bridge to pydantic-ai over the wire of OpenAI's chat completions."""

from __future__ import annotations

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.conformance.openai import ChatWire
from tests.models.openai_fake import KEY

from overt.message import Model
from overt.models import PydanticAIModel

__all__ = ("BridgeWire",)


class BridgeWire:
    """The replies are OpenAI's, the model between them and us is pydantic-ai's."""

    def __init__(self) -> None:
        self._wire = ChatWire()

    def body(self, case: str) -> bytes:
        return self._wire.body(case)

    def events(self, case: str) -> list[bytes]:
        return self._wire.events(case)

    def make(self, transport: httpx2.AsyncBaseTransport) -> Model:
        http = DefaultAsyncHttpxClient(transport=transport)
        provider = OpenAIProvider(openai_client=AsyncOpenAI(api_key=KEY, http_client=http))
        return PydanticAIModel(OpenAIChatModel("gpt-4.1-mini", provider=provider))
