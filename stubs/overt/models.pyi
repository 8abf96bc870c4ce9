from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from openai import AsyncOpenAI
from pydantic_ai.models import Model as PydanticModel

from overt import Model as Model
from overt import ModelDelta
from overt import ModelRequest as ModelRequest
from overt import ModelResponse as ModelResponse
from overt import ModelSettings as ModelSettings

def resolve(name: str) -> Model: ...
def register(provider: str, factory: Callable[[str], Model]) -> None: ...

class OpenAIModel:
    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
        output_limit_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...

class OpenAIResponsesModel:
    def __init__(
        self,
        name: str,
        *,
        client: AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: ModelSettings | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...

class PydanticAIModel:
    def __init__(
        self, model: PydanticModel[Any] | str, *, settings: ModelSettings | None = None
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def structured_output(self) -> bool: ...
    def check(self) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]: ...
