"""What type checkers see of the adapters for providers. Each mistake carries the code it is reported with."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from overt import Agent, Model, ModelSettings, StreamingModel
from overt.models import (
    AnthropicModel,
    GoogleModel,
    OpenAIModel,
    OpenAIResponsesModel,
    PydanticAIModel,
    register,
    resolve,
)
from overt.sources.mcp import ServerUnavailable

if TYPE_CHECKING:

    def adapters() -> list[StreamingModel]:
        settings = ModelSettings(temperature=0)
        return [
            AnthropicModel("m", api_key="k", cache=True),
            GoogleModel("m", structured_output=True),
            OpenAIModel("m", base_url="http://localhost:8080/v1", settings=settings, null_content=False),
            OpenAIResponsesModel("m", encrypted_reasoning=True),
            PydanticAIModel("groq:m", settings=settings),
        ]

    def names() -> None:
        assert_type(resolve("openai:m"), Model)
        register("mine", lambda name: OpenAIModel(name, base_url="http://localhost:1/v1"))
        Agent("a", does="d", model=OpenAIModel("m"))
        OpenAIModel("m", output_limit_field="tokens")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        OpenAIResponsesModel("m", stream_usage=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        AnthropicModel(name="m", max_output_tokens="16k")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        AnthropicModel(api_key="k")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        GoogleModel("m", cache=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        PydanticAIModel()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        resolve("openai", "m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        OpenAIModel("m").name = "n"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    def unreachable(error: ServerUnavailable) -> None:
        assert_type(error.server, str)
        raise ServerUnavailable("gone")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
