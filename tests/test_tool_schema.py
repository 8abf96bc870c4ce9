"""1.3: what a declared function says of itself."""

from __future__ import annotations

import enum
import functools
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from overt import DefinitionError, Tool, ToolContext, tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForChecking


class Item(BaseModel):
    name: str
    price: float = 0.0


class Colour(enum.Enum):
    RED = "red"


def google(amount: int, note: str = "") -> str:
    """Charge a card.

    The card is the customer's.

    Args:
        amount (int): The amount,
            in cents.
        note: A note.

    Returns:
        What happened.
    """
    return f"{amount}{note}"


def numpy(amount: int, note: str = "") -> str:
    """Charge a card.

    The card is the customer's.

    Parameters
    ----------
    amount : int
        The amount,
        in cents.
    note : str, optional
        A note.

    Returns
    -------
    str
        What happened.
    """
    return f"{amount}{note}"


def sphinx(amount: int, note: str = "") -> str:
    """Charge a card.

    The card is the customer's.

    :param amount: The amount,
        in cents.
    :param str note: A note.
    :returns: What happened.
    """
    return f"{amount}{note}"


@pytest.mark.parametrize("fn", [google, numpy, sphinx])
def test_descriptions_come_from_every_docstring_style(fn: Any) -> None:
    made = tool(fn)
    assert made.name == fn.__name__
    assert made.description == "Charge a card.\n\nThe card is the customer's."
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "description": "The amount, in cents."},
            "note": {"type": "string", "default": "", "description": "A note."},
        },
        "required": ["amount"],
        "additionalProperties": False,
    }


def test_the_authors_own_field_description_wins() -> None:
    @tool
    def t(a: Annotated[int, Field(ge=1, description="own")], b: Annotated[int, Field(le=3)] = 2) -> None:
        """Do.

        Args:
            a: from the docstring
            b: b's
        """

    assert t.input_schema["properties"] == {
        "a": {"type": "integer", "minimum": 1, "description": "own"},
        "b": {"type": "integer", "maximum": 3, "default": 2, "description": "b's"},
    }


def test_options_are_kept() -> None:
    @tool(name="other", description="Said otherwise.", on_replay="reuse", timeout=1.5)
    def t(a: int) -> None:
        """Do.

        Args:
            a: The a.
        """

    assert (t.name, t.description, t.on_replay, t.timeout) == ("other", "Said otherwise.", "reuse", 1.5)
    assert t.input_schema["properties"] == {"a": {"type": "integer", "description": "The a."}}
    assert (t.spec.name, t.spec.description) == ("other", "Said otherwise.")
    direct = tool(google, name="third", on_replay="reuse")
    assert (direct.name, direct.on_replay) == ("third", "reuse")


def test_a_tool_is_still_the_function_it_was() -> None:
    made = tool(google)
    assert made(3, note="x") == "3x"
    assert made.__doc__ == "Charge a card." or (made.__doc__ or "").startswith("Charge a card.")
    assert repr(made) == "<Tool google>"


def test_schemas_are_handed_out_as_copies() -> None:
    made = tool(google)
    made.input_schema["properties"] = {}
    assert made.input_schema["properties"] != {}


def test_no_parameters() -> None:
    @tool
    def t() -> None: ...

    assert t.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert t.description == ""


def test_nested_objects_are_closed_in_the_schema_too() -> None:
    @tool
    def t(item: Item) -> None: ...

    definitions = t.input_schema["$defs"]
    assert isinstance(definitions, dict)
    item = definitions["Item"]
    assert isinstance(item, dict)
    assert item["additionalProperties"] is False


@pytest.mark.parametrize(
    "names", [("z", "a", "m"), ("a", "b"), ("self_", "schema", "copy", "json", "_x", "model_config")]
)
def test_parameter_order_and_awkward_names(names: tuple[str, ...]) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f({', '.join(f'{n}: int' for n in names)}): return ({', '.join(names)})", scope)
    made = tool(scope["f"])
    assert list(made.input_schema["properties"]) == list(names)  # type: ignore[arg-type]
    args, kwargs = made.bind(made.canonical(dict.fromkeys(names, 1)))
    assert made(*args, **kwargs) == (1,) * len(names)


# ------------------------------------------------------------------ the context


def test_context_first_or_none() -> None:
    @tool
    def bare(ctx: ToolContext, a: int) -> None: ...

    @tool
    def typed(context: ToolContext[int], a: int) -> None: ...

    @tool
    def annotated(c: Annotated[ToolContext[int], "x"], a: int) -> None: ...

    @tool
    def unresolvable(ctx: ToolContext[OnlyForChecking], a: int) -> None: ...

    @tool
    def none(a: int) -> None: ...

    for t in (bare, typed, annotated, unresolvable):
        assert t.takes_context
        assert list(t.input_schema["properties"]) == ["a"]  # type: ignore[arg-type]
    assert not none.takes_context

    with pytest.raises(DefinitionError, match=r"'ctx' is a ToolContext, which has to be the first"):

        @tool
        def late(a: int, ctx: ToolContext) -> None: ...

    with pytest.raises(DefinitionError, match="'ctx' has to be a positional"):

        @tool
        def named(*, ctx: ToolContext) -> None: ...


# ------------------------------------------------------------------ what is refused, by name


def test_a_name_only_for_checking_is_refused_by_parameter() -> None:
    with pytest.raises(DefinitionError, match=r"tool 't': parameter 'price'.*OnlyForChecking.*TYPE_CHECKING"):

        @tool
        def t(amount: int, price: OnlyForChecking) -> None: ...


def test_what_cannot_become_a_schema_is_refused_by_parameter() -> None:
    class Opaque: ...

    def opaque(a: int, thing: Opaque) -> None: ...
    def unannotated(a: int, thing) -> None: ...  # type: ignore[no-untyped-def]
    def callback(a: int, thing: type[int]) -> None: ...
    def implicit(a: int, thing: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
    def wrong_default(a: int, thing: int = "x") -> None: ...  # type: ignore[assignment]
    def field_default(a: int, thing: int = Field(ge=1)) -> None: ...
    def opaque_default(a: int, thing: Any = object()) -> None: ...  # noqa: B008
    def many(a: int, *thing: int) -> None: ...
    def named(a: int, **thing: int) -> None: ...

    for fn in (
        opaque, unannotated, callback, implicit, wrong_default, field_default, opaque_default, many, named,
    ):  # fmt: skip
        with pytest.raises(DefinitionError, match=f"tool '{fn.__name__}': parameter 'thing'"):
            tool(fn)


def test_iterators_and_secrets_are_refused() -> None:
    def lazy(thing: Iterable[int]) -> None: ...
    def secret(thing: SecretStr) -> None: ...

    with pytest.raises(DefinitionError, match=r"tool 'lazy': parameter 'thing': an iterator.*Sequence"):
        tool(lazy)
    with pytest.raises(DefinitionError, match=r"tool 'secret': parameter 'thing': SecretStr hides"):
        tool(secret)


def test_methods_without_an_instance_are_refused() -> None:
    with pytest.raises(DefinitionError, match=r"parameter 'self' has no annotation.*tool\(instance.method\)"):

        class Shop:
            @tool
            def order(self, a: int) -> None: ...


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tool(lambda: "x"), "lambda has no name"),
        (lambda: tool(functools.partial(lambda: "x")), "lambda has no name"),
        (lambda: tool(Item), "class Item is no tool"),
        (lambda: tool(3), "not from int"),  # type: ignore[call-overload]
        (lambda: tool(google, timeout=0), "timeout is a positive"),
        (lambda: tool(google, timeout=float("inf")), "timeout is a positive"),
        (lambda: tool(google, on_replay="twice"), "on_replay is 'rerun' or 'reuse', not 'twice'"),  # type: ignore[call-overload]
        (lambda: tool(len), "parameter 'obj' has no annotation"),
    ],
)
def test_other_refusals(make: Any, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        make()


def test_generators_are_refused() -> None:
    with pytest.raises(DefinitionError, match="'gen' is a generator"):

        @tool
        def gen(a: int) -> Any:
            yield a

    with pytest.raises(DefinitionError, match="'agen' is a generator"):

        @tool
        async def agen(a: int) -> Any:
            yield a


# ------------------------------------------------------------------ forms


def test_positional_only_parameters_are_passed_by_position() -> None:
    @tool
    def t(ctx: ToolContext, a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        return (a, b, c, d)

    args, kwargs = t.bind(t.canonical({"a": 1}))
    assert args == (1, 2)
    assert kwargs == {"c": 3, "d": 4}


def test_defaults_are_shown_as_json() -> None:
    @tool
    def t(
        a: Sequence[int] = (),
        b: Colour = Colour.RED,
        c: frozenset[int] = frozenset({2, 1}),
        d: Item | None = None,
    ) -> None: ...

    assert t.canonical({}) == '{"a":[],"b":"red","c":[1,2],"d":null}'
    shown = [p.get("default") for p in t.input_schema["properties"].values()]  # type: ignore[union-attr]
    assert shown == [[], "red", [1, 2], None]


def test_dataclass_enum_and_literal_in_the_schema() -> None:
    @dataclass
    class Point:
        x: int

    @tool
    def t(p: Point, c: Colour, l: Literal["a", "b"] = "a", items: list[Item] = []) -> None: ...  # noqa: B006, E741

    schema = t.input_schema
    assert set(schema["$defs"]) == {"Point", "Colour", "Item"}  # type: ignore[arg-type]
    assert schema["required"] == ["p", "c"]


@pytest.mark.parametrize("more", ["", "\n@overt.tool\ndef f(a: int) -> str: return ''"])
def test_importing_costs_no_docstring_parser(more: str) -> None:
    unwanted = "{'docstring_parser', 'griffe', 'trio', 'sqlite3'}"
    code = f"import overt, sys{more}\nassert not {unwanted} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tool_can_be_made_directly() -> None:
    assert Tool(google).name == "google"
