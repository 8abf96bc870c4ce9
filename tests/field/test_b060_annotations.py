"""B060: postponed annotations give the same schema as evaluated ones."""

import sys
import types
from pathlib import Path

import pytest

from overt import DefinitionError, tool

BODY = """
from typing import TYPE_CHECKING, Annotated, Literal, Optional
from pydantic import BaseModel, Field
from overt import ToolContext, tool
if TYPE_CHECKING:
    from decimal import Decimal as Hidden

class User(BaseModel):
    name: str
    boss: "User | None" = None

@tool
def module_level(ctx: ToolContext, user: User, n: Optional[int] = None, kind: Literal["a", "b"] = "a",
                 many: list["User"] = [], limited: Annotated[int, Field(ge=1)] = 1) -> str:
    return user.name

def make():
    class Local(BaseModel):
        x: int

    def deeper():
        class User(BaseModel):
            shadow: bool

        class Holder:
            class Inner(BaseModel):
                y: int

            @tool
            @staticmethod
            def in_class(inner: Inner) -> str:
                return type(inner).__name__

        @tool
        def local(local: Local, user: User, more: dict[str, Local] = {}) -> str:
            return type(local).__name__ + type(user).__name__

        @tool(name="optioned")
        def with_options(local: Local) -> str:
            return type(local).__name__

        return local, with_options, Holder.in_class

    Local  # keeps the name where the inner function can see it
    return deeper()

def hidden():
    @tool
    def t(a: int, price: "Hidden") -> None: ...
"""


def load(name: str, head: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(head + BODY, f"/virtual/{Path(name).name}.py", "exec"), module.__dict__)
    return module


@pytest.fixture(scope="module")
def modules() -> tuple[types.ModuleType, types.ModuleType]:
    return load("b060_now", ""), load("b060_later", "from __future__ import annotations")


def test_schemas_are_the_same(modules: tuple[types.ModuleType, types.ModuleType]) -> None:
    now, later = modules
    assert now.module_level.input_schema == later.module_level.input_schema
    assert now.module_level.takes_context
    assert later.module_level.takes_context
    for one, other in zip(now.make(), later.make(), strict=True):
        assert one.input_schema == other.input_schema


def test_calls_get_the_types_meant(modules: tuple[types.ModuleType, types.ModuleType]) -> None:
    for module in modules:
        local, optioned, in_class = module.make()
        args, kwargs = local.bind(local.canonical('{"local":{"x":1},"user":{"shadow":true}}'))
        assert local(*args, **kwargs) == "LocalUser"
        assert kwargs["user"].shadow is True
        args, kwargs = optioned.bind(optioned.canonical('{"local":{"x":1}}'))
        assert optioned(*args, **kwargs) == "Local"
        args, kwargs = in_class.bind(in_class.canonical('{"inner":{"y":1}}'))
        assert in_class(*args, **kwargs) == "Inner"


def test_a_name_that_cannot_be_resolved_names_the_parameter(
    modules: tuple[types.ModuleType, types.ModuleType],
) -> None:
    for module in modules:
        with pytest.raises(
            DefinitionError, match=r"tool 't': parameter 'price': the annotation .*Hidden.*is not defined"
        ):
            module.hidden()


def test_a_syntax_error_names_the_parameter() -> None:
    def t(a: "int |") -> None: ...  # type: ignore[valid-type]  # noqa: F722

    with pytest.raises(DefinitionError, match="tool 't': parameter 'a'"):
        tool(t)
