from collections.abc import AsyncGenerator, Callable
from typing import Literal

from openai import AsyncOpenAI

from overt import Model as Model
from overt import ModelDelta
from overt import ModelRequest as ModelRequest
from overt import ModelResponse as ModelResponse
from overt import ModelSettings as ModelSettings

def resolve(name: str) -> Model: ...
def register(provider: str, factory: Callable[[str], Model]) -> None: ...

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
