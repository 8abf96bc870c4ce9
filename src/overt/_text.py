"""Where text enters: lone surrogates become U+FFFD, escaped pairs become the character they mean."""

from __future__ import annotations

__all__ = ("clean", "size", "told")


def clean(text: str) -> str:
    """Return `text` such that it can be encoded as UTF-8.

    A surrogate pair written as two code points is joined; half of one becomes U+FFFD. NUL is kept.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def told(error: BaseException) -> str:
    """Return what an exception says, cleaned; nothing where it cannot even say that."""
    try:
        return clean(str(error))
    except Exception:  # noqa: BLE001  # its own __str__ failed, and what it stands for has to be reported all the same
        return ""


def size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
