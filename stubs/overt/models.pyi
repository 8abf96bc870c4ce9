from collections.abc import AsyncGenerator, Callable
from typing import Literal

from anthropic import AsyncAnthropic
from anthropic.lib.vertex import AsyncAnthropicVertex
from google.genai import Client
from google.genai.client import AsyncClient
from openai import AsyncOpenAI
from pydantic_ai.models import Model as PydanticModel

from overt import Model as Model
from overt import ModelDelta
from overt import ModelRequest as ModelRequest
from overt import ModelResponse as ModelResponse
from overt import ModelSettings as ModelSettings

def resolve(name: str) -> Model: ...
def register(provider: str, factory: Callable[[str], Model]) -> None: ...

class AnthropicModel:
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
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def structured_output(self) -> bool: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...

class GoogleModel:
    def __init__(
        self,
        name: str,
        *,
        client: Client | AsyncClient | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        structured_output: bool | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def structured_output(self) -> bool: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...

class OpenAIModel:
    structured_output: bool
    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        output_limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        structured_output: bool | None = None,
        stream_usage: bool = True,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...

class OpenAIResponsesModel:
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
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...

class PydanticAIModel:
    def __init__(self, model: PydanticModel | str, *, settings: ModelSettings | None = None) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def structured_output(self) -> bool: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...
