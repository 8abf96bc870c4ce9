"""An agent's typed answer: JSON Schema for the model, canonical text for the journal, an object for the host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from overt._canonical import NotJson, adapter, encode, jsonable, parse
from overt._schema import (
    _SHOWN,
    ArgumentsInvalid,
    Parameters,
    _adapter,
    _close,
    json_of,
    object_of,
    schema_of,
)
from overt._signature import MISSING, Parameter
from overt._text import clean
from overt.errors import DefinitionError
from overt.message import ToolSpec

__all__ = ("FINAL", "OutputInvalid", "OutputSpec")

FINAL = "final_result"

_VALUE = "value"
_OPEN = f'{{"{_VALUE}":'
_SHAPE = f' {{"{_VALUE}": …}}'
_FENCED = re.compile(r"```(?:json)?(.*)```", re.DOTALL | re.IGNORECASE)


class OutputInvalid(ValueError):
    """A model's answer does not fit the output type; the message is for the model.

    Attributes:
        places: One `"field.path: problem"` for every place found.
        shown: As many of them as the message has.
    """

    def __init__(self, places: Sequence[str]) -> None:
        more = [f"… and {len(places) - _SHOWN} more"] if len(places) > _SHOWN else []
        self.places = tuple(clean(place) for place in places)
        self.shown = (*self.places[:_SHOWN], *more)
        super().__init__("\n".join(("the answer does not fit:", *self.shown)))


class OutputSpec:
    """Validates, writes and reads the typed answer of one agent. The same rules as for a tool's arguments hold.

    Attributes:
        schema: Schema of what the model gives, always of an object: that of a pydantic model, dataclass or `TypedDict`
            as it is; of any other type `{"value": …}`.
        wrapped: Whether it is `{"value": …}`.
        spec: The tool by which a model gives the answer where its provider knows no structured output.
    """

    __slots__ = ("_known", "_parameters", "_textual", "_type", "schema", "spec", "wrapped")

    schema: dict[str, JsonValue]
    wrapped: bool
    spec: ToolSpec

    def __init__(self, output_type: object, *, where: str) -> None:
        """Build the validator.

        Args:
            output_type: Any type pydantic has a JSON schema for.
            where: Who declares it, for the error: `agent 'scout'`.

        Raises:
            DefinitionError: It cannot become a JSON schema, or what it writes it would not read.
        """
        start = f"{where}: output_type {_show(output_type)}"
        try:
            bare = schema_of(output_type)
        except Exception as error:  # pydantic and user types raise what they like
            reason = str(error).split("\n")[0] or type(error).__name__
            raise DefinitionError(f"{start} cannot become a JSON schema: {reason}") from error
        self._type = output_type
        self._parameters = _parameters(start, output_type)
        _refuse_one_way(start, output_type)
        bare = _at_root(bare)
        self._textual = bare.get("type") == "string"
        self.wrapped = bare.get("type") != "object" or not isinstance(bare.get("properties"), dict)
        if self.wrapped:
            bare = self._parameters.json_schema
        elif self._parameters._extra is not None:
            _close(bare)
        self.schema = bare
        self._known = ", ".join(cast("dict[str, JsonValue]", bare["properties"])) or "none"
        self.spec = ToolSpec(
            name=FINAL, description="Give the final answer, once the work is done.", input_schema=bare
        )

    def canonical(self, raw: Mapping[str, object] | str) -> str:
        """Validate an answer.

        Args:
            raw: Arguments of the final tool, or text: JSON that fits `schema`, or nothing for `{}`. One code fence
                around the text is taken off; nothing else is repaired.

        Returns:
            Compact JSON text of the output itself, without `{"value": …}`: defaults filled, coercions applied, keys
            sorted. `load` takes it.

        Raises:
            ValueError: It does not fit (`OutputInvalid`); the message names every place and is for the model.
        """
        text = self._text(raw)
        return self._written(text, wrapped=True) if self.wrapped else self._written(f"{_OPEN}{text}}}")

    def fits(self, text: str) -> str:
        """Validate text that is the output itself, also where a model would give `{"value": …}`.

        It is read as JSON. Of a type that JSON has as text, such as an enum or a date, it may be that text without
        quotes.

        Returns:
            The same as `canonical`.

        Raises:
            ValueError: It does not fit (`OutputInvalid`).
        """
        text = _unfenced(text)
        try:
            json_of(text)
        except ValueError as error:
            if not self._textual:
                raise OutputInvalid([str(error)]) from error
            text = encode(text)
        return self._written(f"{_OPEN}{text}}}")

    def check(self, value: object) -> None:
        """Refuse a value that is not of the type as it stands.

        Raises:
            ValueError: It is not (`OutputInvalid`).
        """
        try:
            adapter(self._type).validate_python(value, strict=True, extra=self._parameters._extra)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            for e in found:
                e["loc"] = (_VALUE, *e["loc"])
            raise OutputInvalid([self._place(self._parameters._place(e)) for e in found]) from error
        except Exception as error:  # validators of user types raise what they like
            raise OutputInvalid([f"a validator failed: {type(error).__name__}: {error}"]) from error

    def load(self, text: str) -> object:
        """Make a new object of what `canonical` returned.

        Raises:
            ValueError: The type has changed since the text was written (`OutputInvalid`).
        """
        try:
            return cast("object", self._parameters.bind(f"{_OPEN}{text}}}")[1][_VALUE])
        except ArgumentsInvalid as error:
            raise OutputInvalid([self._place(place) for place in error.places]) from error

    def _text(self, raw: Mapping[str, object] | str) -> str:
        try:
            if not isinstance(raw, str):
                return encode(jsonable(raw, "the answer"))
            text = _unfenced(raw) or "{}"
            object_of(text, f"the answer has to be a JSON object{_SHAPE if self.wrapped else ''}")
        except RecursionError:
            raise OutputInvalid(["the answer is nested too deeply"]) from None
        except (NotJson, ValueError) as error:
            raise OutputInvalid([str(error)]) from error
        return text

    def _written(self, text: str, *, wrapped: bool = False) -> str:
        try:
            # What pydantic writes by itself has other exponents.
            out = encode(parse(self._parameters.canonical(text)))
            # Looked at again whatever the type is: an answer that could not be read would be lost with its run.
            again = encode(parse(self._parameters.canonical(out)))
        except ArgumentsInvalid as error:
            raise OutputInvalid([self._place(place, wrapped=wrapped) for place in error.places]) from error
        if again != out:
            raise OutputInvalid(["it does not survive being written as JSON, so it cannot be recorded"])
        return out[len(_OPEN) : -1]

    def _place(self, place: str, *, wrapped: bool = False) -> str:
        """A place as the model knows it: the parameter that stands around it is ours."""
        if wrapped:
            return place
        path, found, problem = place.partition(": ")
        if path == _VALUE:
            return problem
        if not path.startswith(f"{_VALUE}."):
            return place
        path = path[len(_VALUE) + 1 :]
        if problem == "unknown field" and not self.wrapped and "." not in path:
            problem = f"unknown field; the fields are {self._known}"
        return f"{path}{found}{problem}"


def _parameters(start: str, output_type: object) -> Parameters:
    try:
        return Parameters(FINAL, [Parameter(_VALUE, output_type, MISSING, positional_only=False)], {})
    except DefinitionError as error:
        reason = str(error).removeprefix(f"tool {FINAL!r}: ").removeprefix(f"parameter {_VALUE!r}: ")
        raise DefinitionError(f"{start}: {reason}") from error


def _unfenced(text: str) -> str:
    text = clean(text).strip()
    found = _FENCED.fullmatch(text)
    return text if found is None else found[1].strip()


def _at_root(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """A recursive type is only referred to at the root, and providers want to see an object there."""
    reference, definitions = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(definitions, dict):
        return schema
    target = definitions.get(reference.removeprefix("#/$defs/"))
    if not isinstance(target, dict):
        return schema
    return {**target, **{key: item for key, item in schema.items() if key != "$ref"}}


def _refuse_one_way(start: str, output_type: object) -> None:
    """Refuse a type of which no answer could be kept: a field that is written and not read, or the other way round."""
    for name, field, config in _fields(_adapter({_VALUE: output_type}).core_schema, {}):
        read, written = _read_names(name, field, config), field.get("serialization_alias") or name
        problem = None
        if field.get("init") is False:
            problem = "is written and, with init=False, not read"
        elif written not in read:
            told = " or ".join(sorted(map(repr, read))) or "a path"
            problem = f"is read as {told} and written as {written!r}"
        elif (field.get("serialization_exclude") or field.get("init_only")) and _needed(field):
            problem = "is required and never written"
        if problem is not None:
            raise DefinitionError(f"{start}: field {name!r} {problem}: an answer could not be read again")


def _needed(field: Mapping[str, Any]) -> bool:
    given = field.get("required")
    return bool(given) if given is not None else field["schema"]["type"] != "default"


def _read_names(name: str, field: Mapping[str, Any], config: Mapping[str, Any]) -> set[str]:
    alias = cast("str | list[str | int] | list[list[str | int]] | None", field.get("validation_alias"))
    if alias is None:
        return {name}
    found: set[str] = set()
    if config.get("validate_by_name"):
        found.add(name)
    if config.get("validate_by_alias", True):
        if isinstance(alias, str):
            found.add(alias)
        else:
            # Of a path only one that is a name alone leads to where the value is written.
            found.update(str(path[0]) for path in alias if isinstance(path, list) and len(path) == 1)
    return found


def _fields(
    schema: object, config: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Every field in a core schema, with the configuration of the type it is in."""
    if isinstance(schema, (list, tuple)):
        for item in cast("Sequence[object]", schema):
            yield from _fields(item, config)
    if not isinstance(schema, dict):
        return
    node = cast("dict[str, Any]", schema)
    config = node.get("config") or config
    held = node.get("fields")
    if node.get("type") in ("model-fields", "typed-dict"):
        named = list(cast("dict[str, Mapping[str, Any]]", held).items())
    elif node.get("type") == "dataclass-args":
        named = [(str(field["name"]), field) for field in cast("list[Mapping[str, Any]]", held)]
    else:
        named = []
    for name, field in named:
        yield name, field, config
        yield from _fields(field["schema"], config)
    for key, item in node.items():
        if key not in ("metadata", "config", "serialization", "default", "expected", "members", "fields"):
            yield from _fields(item, config)


def _show(output_type: object) -> str:
    return output_type.__qualname__ if isinstance(output_type, type) else str(output_type)
