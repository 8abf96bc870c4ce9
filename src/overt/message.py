"""Transcript messages, usage, and what a model is asked and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import Field, JsonValue

from overt._frozen import Frozen

__all__ = (
    "AssistantMessage",
    "FilePart",
    "ImagePart",
    "Message",
    "Model",
    "ModelDelta",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "StreamingModel",
    "SystemMessage",
    "TextPart",
    "ToolCall",
    "ToolCallDelta",
    "ToolMessage",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "UserPart",
)


class Usage(Frozen):
    """Counts of what was spent. Adds with `+`; every field defaults to 0."""

    input_tokens: int = 0
    """Tokens sent, cached ones included."""
    output_tokens: int = 0
    """Tokens received, reasoning included."""
    cached_tokens: int = 0
    """The part of `input_tokens` the provider read from its cache."""
    cache_write_tokens: int = 0
    """The part of `input_tokens` the provider wrote into its cache, where it says so because it charges for that."""
    reasoning_tokens: int = 0
    """The part of `output_tokens` spent on reasoning."""
    total_tokens: int = 0
    """`input_tokens + output_tokens`, unless the provider says otherwise."""
    turns: int = 0
    """Replies received."""
    model_calls: int = 0
    """Attempts at the provider, failed and interrupted ones included."""
    tool_calls: int = 0
    """Calls that entered a tool, and delegations."""
    unreported_calls: int = 0
    """Model calls for which no usage is known. Absent is not zero."""

    def __add__(self, other: Usage) -> Usage:
        """Return the sum, field by field."""
        return Usage.model_construct(
            **{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields}
        )


class ToolCall(Frozen):
    """One call a model asks for."""

    id: str
    """Ours, unique in the transcript; never the provider's."""
    name: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class TextPart(Frozen):
    """Text beside other parts of a user message."""

    kind: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    """An image, by `url` or as base64 `data`; where both are given the data is sent."""

    kind: Literal["image"] = "image"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    """Of the image, such as `"image/jpeg"`; `None` is PNG where there is data."""


class FilePart(Frozen):
    """A file, by `url` or as base64 `data`; where both are given the data is sent."""

    kind: Literal["file"] = "file"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    """Of the file, such as `"text/plain"`; `None` is PDF where there is data."""
    name: str | None = None


UserPart = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="kind")]
"""A part of a user message, told apart by `kind`."""


class SystemMessage(Frozen):
    """Instructions to the model."""

    role: Literal["system"] = "system"
    text: str


class UserMessage(Frozen):
    """What the host, a parent agent or the inbox said."""

    role: Literal["user"] = "user"
    text: str
    parts: tuple[UserPart, ...] = ()
    """Parts that follow `text`, in order."""


class AssistantMessage(Frozen):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    opaque: dict[str, JsonValue] | None = None
    """Parts only the provider that wrote them understands; handed back to it unchanged."""


class ToolMessage(Frozen):
    """The result of one tool call."""

    role: Literal["tool"] = "tool"
    text: str
    call_id: str
    name: str
    is_error: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""One message of a transcript, told apart by `role`."""


class ModelSettings(Frozen):
    """How a model is to answer. `None` leaves the provider's own default."""

    temperature: float | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tool_choice: Literal["auto", "required", "none"] | None = None
    parallel_tool_calls: bool | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, JsonValue] = {}
    """Further fields of the provider's request, passed on as they are."""

    def over(self, base: ModelSettings) -> ModelSettings:
        """Return `base` with every field that is set here."""
        return base.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One turn's question to a model. Everything in it is for reading only.

    Attributes:
        messages: The transcript, system message first if the agent has instructions. The same message is the same
            object from turn to turn, so that a provider adapter converts it once.
        tools: The tools offered this turn.
        agent: Name of the asking agent.
        handle: Id of the asking handle.
        model: The name after the provider's prefix.
        settings: Settings of the agent.
        output_schema: JSON Schema the final answer has to fit, or `None` for text.
        max_output_tokens: Cap on this reply in tokens: the settings' one, clamped to what the budget leaves.
        deadline: When the call has to be over (aware), or `None`.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    agent: str = ""
    handle: str = ""
    model: str = ""
    settings: ModelSettings = field(default_factory=ModelSettings)
    output_schema: Mapping[str, JsonValue] | None = None
    max_output_tokens: int | None = None
    deadline: datetime | None = None


class ModelResponse(Frozen):
    """One reply of a model."""

    message: AssistantMessage
    usage: Usage | None = None
    """`None`: the provider said nothing about usage."""
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] = "stop"
    raw_finish_reason: str | None = None
    """The provider's own word, kept as it came."""
    model: str = ""
    invalid_arguments: dict[int, str] = Field(default_factory=dict)
    """Raw argument text of the calls (by index) whose arguments were no JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """A piece of one call of a reply.

    Attributes:
        index: Which call of the reply it belongs to, from 0. Another id under the same index begins another call: some
            providers give every call index 0.
        id: The provider's id; with the first piece, with each, or never.
        name: Name of the tool, whole; the first one said counts.
        arguments: The next piece of the argument text.
    """

    index: int = 0
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDelta:
    """A piece of a reply, as a model streams it. What it does not say is `None`; a piece may say nothing at all.

    Attributes:
        text: The next piece of the text, cut anywhere.
        reasoning: The next piece of the reasoning.
        tool_call: A piece of a call; those of several calls may come mixed.
        usage: What the reply has used so far, not since the piece before: the last one said counts, and repeating it
            adds nothing. A usage whose counts are unknown is `None`.
        finish_reason: Why the reply ended. A stream that ends without one has broken off; where a provider gives no
            reason, its end is `"unknown"`.
        raw_finish_reason: The provider's own word.
        model: What the provider calls the model that replies.
        opaque: Parts only the provider understands; a key said again replaces what it had before.
    """

    text: str | None = None
    reasoning: str | None = None
    tool_call: ToolCallDelta | None = None
    usage: Usage | None = None
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = (
        None
    )
    raw_finish_reason: str | None = None
    model: str | None = None
    opaque: Mapping[str, JsonValue] | None = None


@runtime_checkable
class Model(Protocol):
    """What the runtime asks of a model. Any object with these two will do.

    A model may also have `structured_output: bool`, which says whether it honours `ModelRequest.output_schema`. Without
    it the runtime has typed output given through a tool.
    """

    @property
    def name(self) -> str:
        """Name for people, the ledger and telemetry."""
        ...

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer one request. Raise `ModelError` (or anything) to fail; cancellation must be let through.

        A `DefinitionError` says that the request cannot be sent: then it counts as no model call.
        """
        ...


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can also say its reply piece by piece. It is asked to where somebody reads along.

    An async generator method fits. Nothing may be sent to the provider before the first piece is asked for, and leaving
    the iteration early ends the call.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Answer one request in pieces, which together are what `generate` would have returned.

        Raise `ModelError` (or anything) to fail, before the first piece or after some; cancellation must be let
        through.
        """
        ...
