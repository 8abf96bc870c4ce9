"""A toy package whose stub and source differ in no way, to be edited."""

from __future__ import annotations

from pathlib import Path

from tools.contract_compare import Comparison, check, compare

__all__ = ("Toy",)

SOURCE = '''
from __future__ import annotations
import typing as t
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Generic, Literal, Optional, TypedDict, TypeVar, overload
from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    def copy_of(self) -> "str": ...

class Part(_Frozen):
    """Docstrings do not count."""

    kind: Literal["b", "a"] = "a"
    size: int = Field(default=3, ge=0)
    tags: tuple[str, ...] = Field(default_factory=tuple)
    extra: dict[str, int] = Field(default_factory=lambda: {"a": 1})
    needed: int = Field(ge=1)

_Hidden = Part | None
Choice = Annotated[t.Union[Part, str], Field(discriminator="kind")]

@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    content: T
    name: "str | None" = None
    items: list[int] = field(default_factory=list)

    @property
    def full(self) -> bool: ...
    @cached_property
    def cost(self) -> int: ...
    def _private(self) -> None: ...
    def __repr__(self) -> str: ...
    async def open(self, key: Optional[int], /, *more: str, force: bool = False) -> Part: ...
    async def stream(self) -> AsyncIterator[Part]:
        yield Part()

class Keys(TypedDict, total=False):
    depth: int
    height: int

class Kind(StrEnum):
    A = "a"
    B = "b"

class Failed(Exception):
    def __init__(self, part: Part) -> None:
        self.part: Part = part

@overload
def pick(x: int) -> Part: ...
@overload
def pick(x: str, *, hard: bool = ...) -> str: ...
def pick(x, *, hard=False): ...

def first(parts: Sequence[Part]) -> _Hidden: ...
'''

STUB = """
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, Literal, TypedDict, TypeVar, overload
from pydantic import BaseModel

T = TypeVar("T")

class Part(BaseModel):
    kind: Literal["a", "b"] = "a"
    size: int = 3
    tags: tuple[str, ...] = ()
    extra: dict[str, int] = ...
    needed: int
    def copy_of(self) -> str: ...

Choice = str | Part

@dataclass(frozen=True)
class Box(Generic[T]):
    content: T
    name: str | None = None
    items: list[int] = []
    @property
    def full(self) -> bool: ...
    @property
    def cost(self) -> int: ...
    async def open(self, key: None | int, /, *more: str, force: bool = False) -> Part: ...
    def stream(self) -> AsyncIterator[Part]: ...

class Keys(TypedDict, total=False):
    depth: int
    height: int

class Kind(StrEnum):
    A = "a"
    B = "b"

class Failed(Exception):
    part: Part
    def __init__(self, part: Part) -> None: ...

@overload
def pick(x: int) -> Part: ...
@overload
def pick(x: str, *, hard: bool = False) -> str: ...

def first(parts: Sequence[Part]) -> Part | None: ...
"""

ALL = '__all__ = ("Box", "Choice", "Failed", "Keys", "Kind", "Part", "first", "pick")\n'


class Toy:
    """Two trees on disk, and what the tool says of them."""

    def __init__(self, at: Path) -> None:
        self.source, self.stubs = at / "src", at / "stubs"
        self.write(
            "src/toy/__init__.py",
            "from toy.inner import Box, Choice, Failed, Keys, Kind, Part, first, pick\n" + ALL,
        )
        self.write("src/toy/inner.py", ALL + SOURCE)
        self.write("stubs/toy/__init__.pyi", STUB)

    def write(self, name: str, content: str) -> None:
        path = self.source.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        content = (self.source.parent / name).read_text(encoding="utf-8")
        assert old in content
        self.write(name, content.replace(old, new))

    @property
    def comparison(self) -> Comparison:
        return compare("toy", self.source, self.stubs)

    def problems(self, *pending: str) -> list[str]:
        return check(self.comparison, pending)
