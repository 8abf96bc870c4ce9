"""B057: arguments arrive as instances of what is annotated, or not at all."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from overt import tool
from overt._schema import ArgumentsInvalid


class Address(BaseModel):
    city: str
    zip: int = 0


class Person(BaseModel):
    name: str
    address: Address


@dataclass
class Size:
    width: int
    height: int = 1


class Colour(enum.Enum):
    RED = "red"


@tool
def order(
    person: Person, size: Size, colour: Colour, others: list[Address], speed: Literal["slow", "fast"] = "slow"
) -> str:
    return person.address.city


GOOD: dict[str, Any] = {
    "person": {"name": "n", "address": {"city": "c", "zip": "7"}},
    "size": {"width": 2},
    "colour": "red",
    "others": [{"city": "d"}],
}


def test_valid_input_arrives_as_instances() -> None:
    args, kwargs = order.bind(order.canonical(GOOD))
    assert args == ()
    assert kwargs == {
        "person": Person(name="n", address=Address(city="c", zip=7)),
        "size": Size(2, 1),
        "colour": Colour.RED,
        "others": [Address(city="d", zip=0)],
        "speed": "slow",
    }
    assert type(kwargs["size"]) is Size
    assert type(kwargs["others"][0]) is Address
    assert order(**kwargs) == "c"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"person": None}, "person"),
        ({"person": {"name": "n"}}, "person.address: missing"),
        ({"person": {"name": "n", "address": {"city": 1}}}, "person.address.city"),
        (
            {"person": {"name": "n", "address": {"city": "c", "street": "s"}}},
            "person.address.street: unknown field",
        ),
        ({"size": {"width": "two"}}, "size.width"),
        ({"size": {"width": 1, "depth": 1}}, "size.depth: unknown field"),
        ({"colour": "green"}, "colour"),
        ({"others": [{"city": "c"}, {"zip": 1}]}, "others.1.city: missing"),
        ({"speed": "warp"}, "speed"),
        ({"extra": 1}, "extra: unknown field"),
    ],
)
def test_every_invalid_one_names_its_place(change: dict[str, Any], place: str) -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        order.canonical({**GOOD, **change})
    assert len(caught.value.places) == 1
    assert caught.value.places[0].startswith(place)
