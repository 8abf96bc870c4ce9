from openai import AsyncOpenAI

from overt import Model, ModelRequest, ModelResponse, ModelSettings

def resolve(name: str) -> Model: ...

class OpenAIModel(Model):
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

class OpenAIResponsesModel(Model):
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
