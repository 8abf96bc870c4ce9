"""Base of every public data model: frozen, closed, and independent of what it was made from."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

__all__ = ("Frozen",)


class Frozen(BaseModel):
    """A pydantic model that cannot be assigned to and refuses unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="null",
        hide_input_in_errors=True,
    )
