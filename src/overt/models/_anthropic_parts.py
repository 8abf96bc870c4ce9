"""What users say, in the form of Anthropic's messages API: texts, images and documents."""

from __future__ import annotations

import base64
import binascii
import re

from pydantic import JsonValue

from overt._text import clean
from overt.errors import DefinitionError
from overt.message import FilePart, ImagePart, TextPart, UserMessage, UserPart
from overt.models._wire import Wire

__all__ = ("user_blocks",)

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_PDF = "application/pdf"
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*);base64,(.*)", re.I | re.S)
_TAKES = "gif, jpeg, png and webp images, PDF files, and texts as data"


def user_blocks(message: UserMessage) -> list[JsonValue]:
    """Return the blocks of a message; none for a text that is blank, which the API refuses.

    Raises:
        DefinitionError: A part cannot be sent.
    """
    blocks: list[JsonValue] = []
    for part in (TextPart(text=message.text), *message.parts):
        if not isinstance(part, TextPart):
            blocks.append(_file(part))
        elif part.text.strip():
            blocks.append({"type": "text", "text": clean(part.text)})
    return blocks


def _file(part: ImagePart | FilePart) -> Wire:
    data, url, said = part.data, part.url, part.media_type
    if data is None and url is not None and (found := _DATA_URL.fullmatch(url)) is not None:
        data, said = found[3], found[1] or said
    media_type = (said or "").partition(";")[0].strip().lower()
    if isinstance(part, ImagePart):
        media_type = media_type or ("image/png" if data is not None else "")
        if media_type and media_type not in _IMAGES:
            raise _refusal(part, f"is of type {media_type!r}")
        return {"type": "image", "source": _source(part, data, url, media_type)}
    media_type = media_type or _PDF
    if media_type in _IMAGES:
        return {"type": "image", "source": _source(part, data, url, media_type)}
    if media_type.startswith("text/") and data is not None:
        source: Wire = {"type": "text", "media_type": "text/plain", "data": _decoded(part, data)}
    elif media_type == _PDF:
        source = _source(part, data, url, media_type)
    else:
        raise _refusal(part, f"is of type {media_type!r}" + ("" if data is not None else ", by url"))
    block: Wire = {"type": "document", "source": source}
    if part.name:
        block["title"] = clean(part.name)
    return block


def _source(part: UserPart, data: str | None, url: str | None, media_type: str) -> Wire:
    if data is not None:
        return {"type": "base64", "media_type": media_type, "data": data}
    if url is None:
        raise _refusal(part, "has neither url nor data")
    return {"type": "url", "url": clean(url)}


def _decoded(part: UserPart, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        raise _refusal(part, "is a text whose data is not UTF-8 in base64") from None


def _refusal(part: UserPart, why: str) -> DefinitionError:
    named = f" {part.name!r}" if isinstance(part, FilePart) and part.name else ""
    return DefinitionError(
        f"the {type(part).__name__}{named} of a user message cannot be sent to Anthropic: it {why}. "
        f"The API takes {_TAKES}"
    )
