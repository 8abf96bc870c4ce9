"""Names for calls and questions that come out the same in every attempt and every process."""

from __future__ import annotations

import hashlib
import json
from typing import cast

__all__ = ("call_key", "idempotency_key", "request_id")


def idempotency_key(
    run_id: str, handle: str, wake: int, tool: str, canonical_args: str, occurrence: int
) -> str:
    """Return the key of one tool call: 32 hex digits.

    Args:
        run_id: The run.
        handle: Id of the calling handle.
        wake: Number of the wake in the life of the handle.
        tool: The tool's name.
        canonical_args: JSON text of the validated arguments. The order of keys and the way a number is written
            (`1`, `1.0`, `1e0`) make no difference.
        occurrence: How many calls of the same tool with the same arguments came before it since the checkpoint.

    Raises:
        ValueError: `canonical_args` is no JSON.
    """
    # Without a point or an exponent there is no float in it, and nothing to shorten.
    floats = "." in canonical_args or "e" in canonical_args or "E" in canonical_args
    arguments: object = json.loads(canonical_args)
    if floats:
        arguments = _plain(arguments)
    return _digest(["call", run_id, handle, wake, tool, arguments, occurrence])[:32]


def call_key(run_id: str, handle: str, wake: int, tool: str, canonical_args: str, occurrence: int) -> str:
    """`idempotency_key` of arguments that are known to be canonical: compact, keys sorted.

    The text the digest is taken of is put together instead of parsed and written again.
    """
    if "." in canonical_args or "e" in canonical_args or "E" in canonical_args:
        return idempotency_key(run_id, handle, wake, tool, canonical_args, occurrence)
    text = f'["call",{_quote(run_id)},{_quote(handle)},{wake},{_quote(tool)},{canonical_args},{occurrence}]'
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def request_id(run_id: str, handle: str, wake: int, key: str, ordinal: int) -> str:
    """Return the id of one question: `"req_"` and 24 hex digits.

    Args:
        run_id: The run.
        handle: Id of the asking handle.
        wake: Number of the wake in the life of the handle.
        key: The asking call's `idempotency_key`, or the runtime's own word for a question of its own.
        ordinal: Which question of that call it is.
    """
    return "req_" + _digest(["request", run_id, handle, wake, key, ordinal])[:24]


def _plain(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[object]", value)]
    return value


_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def _digest(parts: list[object]) -> str:
    # Half a surrogate pair must neither fail here nor meet another text's bytes.
    return hashlib.sha256(_encode(parts).encode("utf-8", "surrogatepass")).hexdigest()
