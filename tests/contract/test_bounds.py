"""What a stub cannot say of models: which values their fields take, and that nothing is changed, added or aliased."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import annotated_types
from pydantic import BaseModel
from tools.site_names import public_modules

FINITE = "finite"
BOUNDS = {
    "overt.Budget": {
        "max_turns": ("ge=0",), "max_tokens": ("ge=0",), "max_tool_calls": ("ge=0",), "max_model_calls": ("ge=0",),
        "max_wall": ("ge=0", "le=10000000000.0", FINITE), "max_cost": ("ge=0", FINITE), "max_children": ("ge=0",),
        "max_concurrent": ("ge=1",), "max_depth": ("ge=1",),
    },
    "overt.RetryPolicy": {
        "max_retries": ("ge=0", "le=100"), "base": ("ge=0", "le=3600", FINITE), "cap": ("ge=0", "le=3600", FINITE),
        "jitter": ("ge=0", "le=1"), "max_retry_after": ("ge=0", "le=86400", FINITE),
    },
    "overt.Price": dict.fromkeys(("input", "output", "cached", "cache_write", "reasoning"), ("ge=0", FINITE)),
    "overt.ModelSettings": {"max_output_tokens": ("ge=1",)},
    "overt.Answer": {"ok": ("strict",)},
}  # fmt: skip


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    seen: set[object] = set()
    for module in map(importlib.import_module, public_modules()):
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, type) and issubclass(found, BaseModel) and found not in seen:
                seen.add(found)
                yield f"{module.__name__}.{name}", found


def said(rule: object) -> str:
    match rule:
        case annotated_types.Ge(ge=bound):
            return f"ge={bound}"
        case annotated_types.Le(le=bound):
            return f"le={bound}"
        case _:
            return {"AllowInfNan(allow_inf_nan=False)": FINITE, "Strict(strict=True)": "strict"}.get(
                repr(rule), repr(rule)
            )


def test_every_field_takes_what_it_did() -> None:
    found = {
        path: {
            name: tuple(map(said, field.metadata))
            for name, field in cls.model_fields.items()
            if field.metadata
        }
        for path, cls in models()
    }
    assert {path: bounds for path, bounds in found.items() if bounds} == BOUNDS


def test_no_model_is_changed_or_takes_what_it_does_not_know() -> None:
    kinds = {path: (cls.model_config.get("frozen"), cls.model_config.get("extra")) for path, cls in models()}
    assert len(kinds) > 40
    assert {path: kind for path, kind in kinds.items() if kind != (True, "forbid")} == {}


def test_fields_are_called_what_they_are_named() -> None:
    names = (field.alias or field.validation_alias or field.serialization_alias or field.exclude
             for _, cls in models() for field in cls.model_fields.values())  # fmt: skip
    assert not any(names)
