"""What a callable says of itself: name, parameters with their resolved types, documentation."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import FrameType, FunctionType, MethodType, SimpleNamespace
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from overt.errors import DefinitionError

__all__ = ("MISSING", "NAME", "Parameter", "Signature", "read_signature", "return_annotation")

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

MISSING: object = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter the model fills. `default` is `MISSING` where it has to be given."""

    name: str
    annotation: object
    default: object
    positional_only: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """A callable as a tool sees it; `parameters` leaves out the context and what a partial has bound."""

    name: str
    doc: str
    is_async: bool
    takes_context: bool
    parameters: tuple[Parameter, ...]


def read_signature(
    fn: Callable[..., object], *, name: str | None, context_type: type, frame: FrameType | None
) -> Signature:
    """Read `fn`, resolving its annotations where it stands.

    Args:
        fn: The callable.
        name: Name to take instead of its own.
        context_type: The class whose annotation marks a first parameter as the context.
        frame: Frame of the declaration, for types that are local to a function; `None` for none.

    Raises:
        DefinitionError: It cannot be a tool; names the parameter.
    """
    if not callable(fn):
        raise DefinitionError(f"a tool is made from a callable, not from {type(fn).__name__} {fn!r:.80}")
    if isinstance(fn, type):
        raise DefinitionError(
            f"class {fn.__qualname__} is no tool: give a function, or an instance with __call__"
        )
    inner = _function(fn)
    name = _tool_name(fn, inner, name)
    plain = isinstance(fn, (FunctionType, MethodType, functools.partial))
    target: object = cast("object", fn) if plain else cast("Any", type(fn)).__call__
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in (target, inner)):
        raise DefinitionError(f"tool {name!r} is a generator: return one value instead, such as a list")
    try:
        declared = list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError, NameError) as error:
        raise DefinitionError(f"tool {name!r}: its signature cannot be read: {error}") from error
    bound = _bound_keywords(fn)
    declared = [p for p in declared if p.name not in bound]
    resolve = _Resolver(name, inner, frame)
    takes_context = bool(declared) and resolve.is_context(declared[0], context_type)
    if takes_context:
        if declared[0].kind is inspect.Parameter.KEYWORD_ONLY:
            raise DefinitionError(
                f"tool {name!r}: the context {declared[0].name!r} has to be a positional parameter"
            )
        del declared[0]
    parameters = tuple(_parameter(p, name, resolve, context_type) for p in declared)
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(target)
    return Signature(name, _doc(fn, inner), is_async, takes_context, parameters)


def _parameter(p: inspect.Parameter, tool: str, resolve: _Resolver, context_type: type) -> Parameter:
    where = f"tool {tool!r}: parameter {p.name!r}"
    if p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        stars = "*" if p.kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise DefinitionError(
            f"{where} is {stars}{p.name}: a model can fill named parameters only; take a list or a dict, "
            "and let decorators use functools.wraps"
        )
    if p.annotation is MISSING:
        hint = (
            "; a method is declared on its instance: tool(instance.method)"
            if p.name in ("self", "cls")
            else ""
        )
        raise DefinitionError(f"{where} has no annotation{hint}")
    annotation = resolve(p)
    if _is_context(annotation, context_type):
        raise DefinitionError(f"{where} is a ToolContext, which has to be the first parameter")
    return Parameter(p.name, annotation, p.default, p.kind is inspect.Parameter.POSITIONAL_ONLY)


def _function(fn: object) -> object:
    """The function at the bottom, whose module and scope the annotations belong to."""
    while True:
        if isinstance(fn, functools.partial):
            fn = cast("functools.partial[object]", fn).func
        elif isinstance(fn, MethodType):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = cast("Any", fn).__wrapped__
        elif isinstance(fn, FunctionType):
            return fn
        else:
            call = inspect.getattr_static(type(fn), "__call__", None)
            if not isinstance(call, FunctionType):
                return fn
            fn = call


def _bound_keywords(fn: object) -> set[str]:
    bound: set[str] = set()
    while isinstance(fn, functools.partial):
        part = cast("functools.partial[object]", fn)
        bound.update(part.keywords)
        fn = part.func
    return bound


def _tool_name(fn: object, inner: object, name: str | None) -> str:
    own = fn
    while isinstance(own, functools.partial):
        own = cast("functools.partial[object]", own).func
    derived = getattr(own, "__name__", None) or type(own).__name__
    if name is None:
        if derived == "<lambda>" or getattr(inner, "__name__", "") == "<lambda>":
            raise DefinitionError("a lambda has no name and no annotations: declare a tool with def")
        name = str(derived)
    if not isinstance(cast("object", name), str) or not NAME.fullmatch(name):
        raise DefinitionError(
            f"tool name {name!r:.120} is not allowed: 1 to 64 characters out of A-Z, a-z, 0-9, '_' and '-'"
        )
    return name


def _doc(fn: object, inner: object) -> str:
    candidates = [inner]
    if not isinstance(fn, (functools.partial, FunctionType, MethodType)):
        candidates = [cast("Any", type(fn)).__call__, type(fn), inner]
    elif not isinstance(fn, functools.partial):
        candidates = [fn, inner]
    for candidate in candidates:
        doc = getattr(candidate, "__doc__", None)
        if isinstance(doc, str) and doc.strip():
            return inspect.cleandoc(doc)
    return ""


# ------------------------------------------------------------------ annotations


def _is_context(annotation: object, context_type: type) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    annotation = get_origin(annotation) or annotation
    return isinstance(annotation, type) and issubclass(annotation, context_type)


class _Resolver:
    """Evaluates the annotations of one function: module, enclosing scopes, closure."""

    def __init__(self, tool: str, inner: object, frame: FrameType | None) -> None:
        self._tool = tool
        self._globals: dict[str, object] = getattr(inner, "__globals__", {})
        self._locals = _scope(inner, frame)

    def __call__(self, p: inspect.Parameter) -> object:
        try:
            return self._evaluate(p.annotation)
        except NameError as error:
            raise DefinitionError(
                f"tool {self._tool!r}: parameter {p.name!r}: the annotation {p.annotation!r} cannot be resolved: "
                f"{error}. Import the name at run time, not under TYPE_CHECKING, before the tool is declared"
            ) from error
        except Exception as error:  # evaluating an annotation runs arbitrary expressions
            raise DefinitionError(
                f"tool {self._tool!r}: parameter {p.name!r}: the annotation {p.annotation!r} cannot be resolved: "
                f"{type(error).__name__}: {error}"
            ) from error

    def is_context(self, p: inspect.Parameter, context_type: type) -> bool:
        """Whether it is the context. What stands in its brackets is for type checkers and need not exist here."""
        annotation: object = p.annotation
        if isinstance(annotation, str):
            head = annotation.split("[", 1)[0].strip()
            if re.fullmatch(r"[\w.]+", head):
                try:
                    annotation = self._evaluate(head)
                except Exception:  # noqa: BLE001  # the whole annotation is evaluated, and reported, where it is needed
                    return False
        return annotation is not MISSING and _is_context(annotation, context_type)

    def _evaluate(self, annotation: object) -> object:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        hints = get_type_hints(holder, self._globals, dict(self._locals), include_extras=True)
        return cast("object", hints["it"])


def _scope(inner: object, frame: FrameType | None) -> Mapping[str, object]:
    """Names visible where the function was written, beside its module's."""
    scopes: list[Mapping[str, object]] = []
    code, qualname = getattr(inner, "__code__", None), getattr(inner, "__qualname__", "")
    while frame is not None and code is not None:
        there = frame.f_code
        if there.co_filename == code.co_filename and qualname.startswith(there.co_qualname + "."):
            scopes.append(frame.f_locals)
        frame = frame.f_back
    names: dict[str, object] = {}
    for scope in reversed(scopes):
        names.update(scope)
    for name, cell in zip(
        getattr(code, "co_freevars", ()), getattr(inner, "__closure__", None) or (), strict=False
    ):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # assigned after the function was made
    return names


def return_annotation(fn: Callable[[], Awaitable[object]]) -> object:
    """Return the type that awaiting `fn()` gives, or `None` where it says nothing of use.

    Raises:
        DefinitionError: The annotation cannot be resolved.
    """
    inner = _function(fn)
    declared = getattr(inner, "__annotations__", {}).get("return", MISSING)
    if declared is MISSING:
        return None
    p = inspect.Parameter("return", inspect.Parameter.KEYWORD_ONLY, annotation=declared)
    resolved = _Resolver(getattr(inner, "__qualname__", repr(fn)), inner, None)(p)
    if not inspect.iscoroutinefunction(inner) and get_origin(resolved) in (Awaitable, Coroutine):
        resolved = get_args(resolved)[-1]
    return None if resolved is Any or resolved is object else resolved
