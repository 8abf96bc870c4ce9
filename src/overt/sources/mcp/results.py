"""What a server returned, as text for a model and data for the host."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import JsonValue

from overt._canonical import NotJson, encode, jsonable
from overt._text import clean
from overt.core.render import _after, _before
from overt.sources.mcp.secrets import Secrets
from overt.tool import ToolResult

__all__ = ("cut", "result_of")


def result_of(result: CallToolResult, *, secrets: Secrets, longest: int) -> ToolResult:
    """Return a tool's result: text, and `structured_content` in its metadata.

    Bytes are never shown: of an image, a sound or a binary resource the text says kind, media type and size.

    Args:
        result: As it came.
        secrets: What the server was given and nobody else is to see.
        longest: Characters of text, and as many of structured content; what is longer is cut, or left out.
    """
    texts = [_shown(block) for block in result.content]
    metadata: dict[str, JsonValue] = {}
    structured: str | None = None
    if result.structured_content is not None:
        structured = _structured(result.structured_content, metadata, secrets, longest)
    output = "\n".join(texts)
    if not output.strip():
        output = structured or ("The tool failed and says nothing more." if result.is_error else "")
    return ToolResult(cut(secrets.hide(output), longest), is_error=result.is_error, metadata=metadata)


def _structured(value: object, metadata: dict[str, JsonValue], secrets: Secrets, longest: int) -> str | None:
    """Note structured content in the metadata, and return it as text; `None` where it is no JSON."""
    try:
        data = secrets.hide_in(jsonable(value))
        text = encode(data)
    except (NotJson, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        metadata["structured_content_left_out"] = f"it is no JSON: {why}"
        return None
    if len(text) > longest:
        metadata["structured_content_left_out"] = f"it has {len(text):,} characters, more than {longest:,}"
    else:
        metadata["structured_content"] = data
    return text


def _shown(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return clean(block.text)
        case ImageContent() | AudioContent():
            return f"[{block.type}, {clean(block.mime_type)}, {_bytes(block.data)}]"
        case ResourceLink():
            return f"[link, {_told(block.uri, block.mime_type, block.name)}]"
        case EmbeddedResource(resource=BlobResourceContents() as binary):
            return f"[resource, {_told(binary.uri, binary.mime_type)}, {_bytes(binary.blob)}]"
        case EmbeddedResource():
            text = block.resource
            return f"[resource, {_told(text.uri, text.mime_type)}]\n{clean(getattr(text, 'text', ''))}"


def _told(uri: str, media_type: str | None, name: str | None = None) -> str:
    said: Sequence[str | None] = (name, uri, media_type)
    return ", ".join(clean(part) for part in said if part)


def _bytes(base64: str) -> str:
    size = len(base64.rstrip("=")) * 3 // 4
    return f"{size:,} byte{'' if size == 1 else 's'}"


def cut(text: str, longest: int) -> str:
    """Return a text of at most `longest` characters: its head, how much is left out, and its tail."""
    if len(text) <= longest:
        return text
    marker = f"\n[… {len(text) - longest:,} of {len(text):,} characters left out …]\n"
    if len(marker) * 2 > longest:
        return text[: max(longest - 1, 0)] + "…"
    room = longest - len(marker) - 12  # the numbers grow by what the marker takes
    head, tail = _before(text, room - room // 3), _after(text, len(text) - room // 3)
    return f"{text[:head]}\n[… {tail - head:,} of {len(text):,} characters left out …]\n{text[tail:]}"
