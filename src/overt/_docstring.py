"""Descriptions from a docstring in Google, NumPy or Sphinx style."""

from __future__ import annotations

__all__ = ("read_docstring",)


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the description without its sections, and a description per parameter."""
    if not doc:
        return "", {}
    # Costs 6 ms, and a program whose tools have no docstring never pays them.
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(doc)
    except ParseError:
        return doc, {}
    texts = {p.arg_name.lstrip("*"): " ".join((p.description or "").split()) for p in parsed.params}
    description = (parsed.description or "").strip()
    return description, {name: text for name, text in texts.items() if text}
