"""Listings and results that are a little wrong, as the SDK takes them.

It refuses a listing as a whole for one schema without a `type`, and a result for what it leaves out. Here such a tool
is set apart, so that the others can be used and the error names the one that cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ("APART", "given_schema", "mend")

APART = "overt/input_schema"
"""Where a schema is put that the SDK would not take."""


def mend(result: dict[str, Any]) -> None:
    """Mend a response in place; one that is as the protocol has it stays as it is."""
    tools = result.get("tools")
    if isinstance(tools, list):
        result["tools"] = [_tool(tool) for tool in cast("list[object]", tools)]
    if "structuredContent" in result and not isinstance(result.get("content"), list):
        result["content"] = []


def _tool(tool: object) -> dict[str, Any]:
    made = dict(cast("Mapping[str, Any]", tool)) if isinstance(tool, Mapping) else {}
    if not isinstance(made.get("name"), str):
        made["name"] = ""
    schema = made.get("inputSchema")
    if not _is_plain(schema):
        meta = made.get("_meta")
        made["_meta"] = {**(cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}), APART: schema}
        made["inputSchema"] = {"type": "object"}
    if not _is_plain(made.get("outputSchema", {"type": "object"})):
        del made["outputSchema"]
    hints = made.get("annotations")
    if hints is not None and not (
        isinstance(hints, Mapping) and all(map(_is_hint, cast("Any", hints).items()))
    ):
        # What is no hint is believed in nothing.
        del made["annotations"]
    return made


def _is_plain(schema: object) -> bool:
    """Whether every version of the protocol takes a schema."""
    if not isinstance(schema, dict):
        return False
    found = cast("dict[str, Any]", schema)
    properties, required = found.get("properties", {}), found.get("required", [])
    return (
        found.get("type") == "object"
        and isinstance(found.get("$schema", ""), str)
        and isinstance(properties, dict)
        and all(isinstance(field, dict | bool) for field in cast("dict[str, Any]", properties).values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in cast("list[object]", required))
    )


def _is_hint(item: tuple[str, object]) -> bool:
    name, value = item
    return not name.endswith("Hint") or isinstance(value, bool)


def given_schema(schema: Mapping[str, Any], meta: Mapping[str, Any] | None) -> object:
    """Return a tool's schema as the server gave it."""
    return meta[APART] if meta is not None and APART in meta else schema
