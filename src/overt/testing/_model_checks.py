"""What the conformance checks of models are made of."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeVar, cast, final

import anyio
from pydantic import JsonValue

from overt.errors import ModelError
from overt.message import (
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    StreamingModel,
    SystemMessage,
    ToolSpec,
    UserMessage,
)
from overt.models.assemble import Assembler
from overt.testing._model_cases import MODEL_CASES, ModelCase

__all__ = (
    "LOOK",
    "WIDTHS",
    "ModelBench",
    "ModelCheck",
    "ask",
    "asked_with",
    "assembled",
    "expect",
    "leaves",
    "model_error",
    "show",
    "truth",
    "unsent",
    "ways",
)

ValueT = TypeVar("ValueT")

WIDTHS: Final = (None, 7)
"""Bytes of a piece in which a reply arrives: as the provider would send it, and cut anywhere."""

LOOK: Final = ToolSpec(
    name="look",
    description="Look at a square.",
    input_schema={
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    },
)


class ModelBench(Protocol):
    """What the checks need of whoever tests a model: a provider that answers what a case says.

    A bench serves one check. Most are a fake transport under the provider's own client.
    """

    @property
    def not_applicable(self) -> Mapping[str, str]:
        """Why something cannot be asked of this model, by name of a case or a check: its API has nothing like it."""
        ...

    def model(self, *cases: ModelCase, pieces: int | None = None) -> Model:
        """Make a model whose provider answers each request with the next case, the first with the first.

        Args:
            *cases: The answers, in order.
            pieces: Bytes in which the answer of a stream arrives, cut anywhere; `None` as the provider would send it.
        """
        ...

    def sent(self) -> Sequence[JsonValue]:
        """Return the body of every request the provider got so far, in order, of all models of this bench."""
        ...

    def unclosed(self) -> int:
        """Return how many answers were begun and neither read to the end nor closed."""
        ...


Needs = Literal["stream", "schema", "call"]
_Body = Callable[[ModelBench], Awaitable[None]]


@final
class ModelCheck:
    """One thing asked of a model. `str` of it is its name; calling it checks the model of one fresh bench.

    Attributes:
        name: What is asked, as an identifier.
        says: What is asked, in words.
        cases: Names of the cases the provider has to be able to answer.
        needs: What the model has to have: `"stream"`, `"schema"` (it honours `output_schema`), `"call"` (it does not,
            and gives typed output by a call), or `None`.
    """

    __slots__ = ("_body", "cases", "name", "needs", "says")

    def __init__(
        self, body: _Body, *, name: str, says: str, cases: Sequence[str], needs: Needs | None = None
    ) -> None:
        self.name: Final[str] = name
        self.says: Final[str] = says
        self.cases: Final[tuple[str, ...]] = tuple(cases)
        self.needs: Final[Needs | None] = needs
        self._body: Final = body

    def __repr__(self) -> str:
        return self.name

    def why_not(self, bench: ModelBench) -> str | None:
        """Say why this cannot be asked of the model of a bench; `None` where it can."""
        for name in (self.name, *self.cases):
            if name in bench.not_applicable:
                return bench.not_applicable[name]
        if self.needs is None:
            return None
        model = bench.model(MODEL_CASES["text"])
        if self.needs == "stream":
            return None if isinstance(model, StreamingModel) else "does not stream"
        native = bool(getattr(model, "structured_output", False))
        if self.needs == "schema":
            return None if native else "takes no schema for its answer"
        return "takes a schema for its answer" if native else None

    async def __call__(self, make_bench: Callable[[], ModelBench]) -> None:
        """Check a model.

        Args:
            make_bench: Makes a bench; called once.

        Raises:
            AssertionError: The model does not do what is asked.
        """
        bench = make_bench()
        try:
            await self._body(bench)
        except AssertionError as error:
            raise AssertionError(f"{self.name}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{self.name}: {type(error).__name__}: {error}") from error
        expect(bench.unclosed(), 0, f"{self.name}: answers left open")


def expect(actual: object, expected: object, what: str) -> None:
    """Fail unless `actual == expected`; `what` says what was compared."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {actual!r}")


def truth(held: object, what: str) -> None:
    """Fail unless `held` is true."""
    if not held:
        raise AssertionError(what)


def ask(*messages: Message, tools: tuple[ToolSpec, ...] = (LOOK,)) -> ModelRequest:
    """Return a request: with instructions and a prompt unless messages are given."""
    given = messages or (SystemMessage(text="Look twice."), UserMessage(text="Where is it?"))
    return ModelRequest(messages=given, tools=tools, agent="scout", handle="root/scout.1", model="kit")


def ways(
    bench: ModelBench, *cases: str
) -> Iterator[tuple[str, Callable[[ModelRequest], Awaitable[ModelResponse]]]]:
    """Yield every way to get the answer of cases, with its name: whole, and streamed in pieces of several sizes.

    A model is made for each, and asked once for each case.
    """
    answers = [MODEL_CASES[name] for name in cases]
    model = bench.model(*answers)
    yield "whole", model.generate
    if not isinstance(model, StreamingModel):
        return
    for width in WIDTHS:
        yield f"streamed, {show(width)}", assembled(bench.model(*answers, pieces=width))


def show(width: int | None) -> str:
    """Return the name of a way to cut a stream."""
    return "as sent" if width is None else f"in pieces of {width}"


def assembled(model: Model) -> Callable[[ModelRequest], Awaitable[ModelResponse]]:
    """Return what asks a model for a stream and puts it together."""

    async def stream(request: ModelRequest) -> ModelResponse:
        assembler = Assembler()
        deltas = cast(StreamingModel, model).stream(request)
        try:
            async for delta in deltas:
                assembler.add(delta)
        finally:
            if hasattr(deltas, "aclose"):
                await cast("AsyncGenerator[object]", deltas).aclose()
        return assembler.response()

    return stream


async def asked_with(bench: ModelBench, request: ModelRequest) -> JsonValue:
    """Ask a model whose provider answers `text`, and return the body it sent."""
    await bench.model(MODEL_CASES["text"]).generate(request)
    sent = bench.sent()
    truth(sent, "nothing was sent")
    return sent[-1]


async def model_error(call: Awaitable[object], what: str) -> ModelError:
    """Await `call` and return its `ModelError`; fail unless it raises one, with nothing behind it."""
    try:
        with anyio.fail_after(30):
            reply = await call
    except ModelError as error:
        truth(
            error.__cause__ is None and error.__context__ is None,
            f"{what}: the error leads to the client's own",
        )
        return error
    raise AssertionError(f"{what}: expected ModelError, found {reply!r}")


def leaves(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Yield every value of a body that is no container, and every key, with the key or path it stands under, in order.

    Text that is a JSON object or array is gone through as well: arguments of calls are sent so. A key is yielded as a
    value under `""`.
    """
    yield from _leaves(value, "")


def _leaves(value: JsonValue, at: str) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield "", key
            yield from _leaves(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, at)
    else:
        inner: JsonValue = None
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                inner = json.loads(value)
            except ValueError:
                inner = None
        if inner:
            yield from _leaves(inner, at)
        else:
            yield at, value


def unsent(opaque: Mapping[str, JsonValue], body: JsonValue) -> list[str]:
    """Return the texts within opaque parts that are not in a body.

    Words and hexadecimal numbers are not looked for: an adapter may note things of its own beside the provider's.
    """
    sent = [leaf for _, leaf in leaves(body) if isinstance(leaf, str)]
    kept = [leaf for at, leaf in leaves(dict(opaque)) if at and isinstance(leaf, str)]
    telling = [text for text in kept if not text.isidentifier() and not _HEX.fullmatch(text)]
    return [text for text in telling if not any(text in other for other in sent)]


_HEX = re.compile("[0-9a-f-]*")
