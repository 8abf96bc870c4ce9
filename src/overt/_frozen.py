"""Base of every public data model: frozen, closed, and independent of what it was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

__all__ = ("Frozen", "trusted")

FrozenT = TypeVar("FrozenT", bound="Frozen")


class Frozen(BaseModel):
    """A pydantic model that cannot be assigned to and refuses unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="null",
        hide_input_in_errors=True,
        # At first use instead of at import. For the same reason no `use_attribute_docstrings`: it parses the sources.
        defer_build=True,
    )


def trusted(cls: type[FrozenT], /, **values: Any) -> FrozenT:
    """Make a model of values that are known to fit; every field has to be given.

    `model_construct` at a fraction of its cost: a turn makes several messages.
    """
    made: FrozenT = object.__new__(cls)
    _set_dict(made, values)
    _set_fields(made, _fields.get(cls) or _fields_of(cls))
    _set_extra(made, None)
    _set_private(made, None)
    return made


# The attributes' own setters: assignment by name looks each of them up again.
_set_dict: Callable[[BaseModel, object], None] = vars(BaseModel)["__dict__"].__set__
_set_fields: Callable[[BaseModel, object], None] = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra: Callable[[BaseModel, object], None] = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private: Callable[[BaseModel, object], None] = vars(BaseModel)["__pydantic_private__"].__set__
_fields: dict[type[BaseModel], set[str]] = {}


def _fields_of(cls: type[Frozen]) -> set[str]:
    # One set a class: frozen models never add to it, and a set apiece would be one more object to collect.
    found = _fields.get(cls)
    if found is None:
        found = _fields[cls] = set(cls.model_fields)
    return found
