"""Names of a server's tools as providers take them: 1 to 64 characters out of `A-Z a-z 0-9 _ -`."""

from __future__ import annotations

import hashlib
import re

from overt._canonical import encode
from overt._signature import NAME
from overt._text import clean

__all__ = ("prefix_of", "tool_name")

BETWEEN = "__"
_LONGEST = 64
_DIGITS = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def prefix_of(server: str) -> str:
    """Return what stands before the names of a server's tools where the host says nothing else."""
    return f"{server}{BETWEEN}"


def tool_name(server: str, tool: str, prefix: str | None = None) -> str:
    """Return the name a model calls a tool by.

    It depends on these three alone, never on which other tools there are: a stored run finds its tools again, also
    when the server has got more of them. A name that can stay as it is stays; one that has to be changed ends in eight
    digits made of what it was, since `a.b` and `a b` would meet at `a_b`.

    Args:
        server: The server, as the host calls it.
        tool: The tool, as the server calls it; not empty.
        prefix: What stands before the name; `None`: the server's name and two underscores.
    """
    full = f"{prefix_of(server) if prefix is None else prefix}{tool}"
    # Two underscores part the two names in one way only where the first neither has them nor ends in one.
    parted = prefix is not None or (BETWEEN not in server and not server.endswith("_"))
    if parted and NAME.fullmatch(full):
        return full
    origin = encode([clean(server) if prefix is None else clean(prefix), clean(tool)])
    digits = hashlib.sha256(origin.encode()).hexdigest()[:_DIGITS]
    stem = _OTHER.sub("_", full)[: _LONGEST - _DIGITS - 1].strip("_") or "tool"
    return f"{stem}_{digits}"
