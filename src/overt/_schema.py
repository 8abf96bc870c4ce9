"""A tool's parameters: JSON Schema for the model, canonical text for the journal, values for the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast, get_args, get_origin

from pydantic import ConfigDict, Field, JsonValue, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, to_json
from typing_extensions import TypedDict

from overt._canonical import NotJson, adapter, encode, jsonable, parse, settle
from overt._signature import MISSING, Parameter
from overt._text import clean
from overt.errors import DefinitionError

__all__ = ("ArgumentsInvalid", "Parameters", "json_of", "object_of", "schema_of")

_SHOWN = 100


class ArgumentsInvalid(ValueError):
    """A model's arguments do not fit the tool; the message is for the model.

    Attributes:
        places: One `"field.path: problem"` for every place found.
    """

    def __init__(self, tool: str, places: Sequence[str]) -> None:
        more = [f"… and {len(places) - _SHOWN} more"] if len(places) > _SHOWN else []
        self.places = tuple(clean(place) for place in places)
        super().__init__("\n".join((f"invalid arguments for {tool}:", *self.places[:_SHOWN], *more)))


class _Compact(GenerateJsonSchema):
    """Without the titles pydantic derives from field names: they say nothing new and cost tokens."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def schema_of(annotation: object) -> dict[str, JsonValue]:
    """Return the JSON Schema of a type.

    Raises:
        Exception: Whatever pydantic raises for a type that has none.
    """
    return adapter(annotation).json_schema(schema_generator=_Compact)


def json_of(text: str) -> JsonValue:
    """Return what the JSON a model wrote says.

    Raises:
        ValueError: It is none; the message says why and is for the model.
    """
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        problem = f"not valid JSON: {error.msg} (character {error.pos} of {len(text)})"
        raise ValueError(problem + ("; it is cut off" if cut else "")) from error
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"not valid JSON: {problem}") from error


def object_of(text: str, must: str) -> dict[str, JsonValue]:
    """Return the JSON object a model wrote.

    Raises:
        ValueError: It is none; the message says why and is for the model. Where the text is JSON of another kind it
            begins with `must`: "the arguments have to be a JSON object".
    """
    parsed = json_of(text)
    if not isinstance(parsed, dict):
        kind: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
        found = kind.get(type(parsed), "a number")
        raise ValueError(f"{must}, not {found}")
    return parsed


class Parameters:
    """Validates, canonicalises and binds the arguments of one tool."""

    __slots__ = (
        "_checked", "_extra", "_flat", "_names", "_positional", "_required", "_serialize", "_sets", "_text_of", "_tool",
        "_validate", "json_schema",
    )  # fmt: skip

    def __init__(self, tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]) -> None:
        """Build the validator.

        Raises:
            DefinitionError: A parameter cannot become a schema, or its default does not fit it; names it.
        """
        self._tool = tool
        self._names = tuple(p.name for p in parameters)
        self._positional = tuple(p.name for p in parameters if p.positional_only)
        self._required = tuple(p.name for p in parameters if p.default is MISSING)
        built, schema = _build(tool, parameters, descriptions)
        self.json_schema: dict[str, JsonValue] = schema
        self._validate = built.validator.validate_json
        self._serialize = built.serializer.to_python
        self._text_of = built.serializer.to_json
        facts = _Facts(tool, built.core_schema)
        self._sets, self._checked = facts.sets, facts.checked
        self._flat = facts.flat and not facts.checked
        self._extra: Literal["forbid"] | None = None if facts.own_extra else "forbid"
        if self._extra is not None:
            _close(schema)
        self._check_defaults()

    def canonical(self, raw: Mapping[str, object] | str) -> str:
        """Return the validated arguments as JSON text: defaults filled, coercions applied, keys sorted.

        Raises:
            ArgumentsInvalid: They do not fit, are no JSON object, or would not come back from JSON as they are.
        """
        text = self._text(raw)
        values = self._values(text)
        try:
            out = self._dump(values)
            if self._checked:
                self._check(values, out)
        except ArgumentsInvalid:
            raise
        except Exception as error:  # serialisers of user types raise what they like
            raise ArgumentsInvalid(self._tool, [f"cannot be written as JSON: {error}"]) from error
        return out

    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments, as real instances, from what `canonical` returned.

        Raises:
            ArgumentsInvalid: The text no longer fits: the types have changed since it was written.
        """
        values = self._values(canonical)
        if not self._positional:
            return (), values
        return tuple(values.pop(name) for name in self._positional), values

    def _text(self, raw: Mapping[str, object] | str) -> str:
        if isinstance(raw, str):
            if not raw.strip():
                if self._required:
                    raise ArgumentsInvalid(self._tool, [f"{name}: missing" for name in self._required])
                return "{}"
            self._object(raw)
            return raw
        try:
            text = to_json(raw).decode()
        except ValueError:
            # Half a surrogate pair, or a value that is no JSON: the slow way cleans the one and names the other.
            try:
                return encode(jsonable(raw))
            except (NotJson, RecursionError) as error:
                raise ArgumentsInvalid(self._tool, [f"the arguments are no JSON: {error}"]) from error
        if "NaN" in text or "Infinity" in text or text[:1] != "{":
            self._object(text)
        return text

    def _object(self, text: str) -> dict[str, JsonValue]:
        try:
            return object_of(text, "the arguments have to be a JSON object")
        except ValueError as error:
            raise ArgumentsInvalid(self._tool, [str(error)]) from error

    def _values(self, text: str, *, again: bool = False) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", self._validate(text, extra=self._extra))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            if not again and found[0]["type"] == "json_invalid" and "escape" in found[0]["msg"]:
                return self._values(encode(jsonable(self._object(text))), again=True)
            raise ArgumentsInvalid(self._tool, [self._place(e) for e in found]) from error
        except ArgumentsInvalid:
            raise
        except Exception as error:  # validators of user types raise what they like
            raise ArgumentsInvalid(
                self._tool, [f"a validator failed: {type(error).__name__}: {error}"]
            ) from error

    def _place(self, error: ErrorDetails) -> str:
        path = ".".join(map(str, error["loc"]))
        match error["type"]:
            case "missing" | "missing_argument" | "missing_keyword_only_argument":
                problem = "missing"
            case "extra_forbidden" | "unexpected_keyword_argument":
                known = ", ".join(self._names) or "none"
                problem = (
                    f"unknown field; the fields are {known}" if len(error["loc"]) == 1 else "unknown field"
                )
            case _:
                problem = error["msg"]
        return f"{path}: {problem}" if path else problem

    def _dump(self, values: dict[str, Any]) -> str:
        if self._flat:
            # Fields are built in sorted order, and no object is inside: pydantic's own text is canonical already.
            return self._text_of(values, by_alias=True).decode()
        data = self._serialize(values, mode="json", by_alias=True, round_trip=True)
        if self._sets:
            data = settle(values, data)
        return encode(cast("JsonValue", data))

    def _check(self, values: dict[str, Any], out: str) -> None:
        """Refuse what JSON does not keep: the journal would hold another call than the one that was made."""
        lost = "does not survive being written as JSON, so it cannot be recorded"
        try:
            back = self._values(out)
        except ArgumentsInvalid as error:
            raise ArgumentsInvalid(self._tool, [f"{place} ({lost})" for place in error.places]) from error
        if (wrong := [name for name in values if values[name] != back.get(name, MISSING)]) or self._dump(
            back
        ) != out:
            raise ArgumentsInvalid(self._tool, [f"{name}: {lost}" for name in wrong or self._names])

    def _check_defaults(self) -> None:
        try:
            self._validate("{}")
        except ValidationError as error:
            for found in error.errors(include_url=False):
                if found["type"] != "missing":
                    path, default = found["loc"], found["input"]
                    raise DefinitionError(
                        f"tool {self._tool!r}: parameter {str(path[0])!r}: its default {default!r:.80} does not fit: "
                        f"{found['msg']}"
                    ) from error


def _build(
    tool: str, parameters: Sequence[Parameter], descriptions: Mapping[str, str]
) -> tuple[TypeAdapter[Any], dict[str, JsonValue]]:
    fields = {
        p.name: _field(tool, p, descriptions.get(p.name)) for p in sorted(parameters, key=lambda p: p.name)
    }
    try:
        built = _adapter(fields)
        schema = built.json_schema(schema_generator=_Compact)
    except Exception as error:  # pydantic and user types raise what they like
        # Which one it was, pydantic does not say.
        for p in parameters:
            try:
                _adapter({p.name: fields[p.name]}).json_schema(schema_generator=_Compact)
            except Exception as reason:  # the same
                text = str(reason).split("\n")[0]
                raise DefinitionError(
                    f"tool {tool!r}: parameter {p.name!r}: {_show(p.annotation)} cannot become a JSON schema: {text}"
                ) from reason
        raise DefinitionError(
            f"tool {tool!r}: its parameters cannot become a JSON schema: {error}"
        ) from error
    schema.pop("title", None)
    properties = cast("dict[str, JsonValue]", schema.setdefault("properties", {}))
    order = {p.name: index for index, p in enumerate(parameters)}
    schema["properties"] = {
        k: properties[k] for k in sorted(properties, key=lambda k: order.get(k, len(order)))
    }
    if "required" in schema:
        required = cast("list[str]", schema["required"])
        schema["required"] = [*sorted(required, key=lambda k: order.get(k, len(order)))]
    return built, schema


def _adapter(fields: Mapping[str, object]) -> TypeAdapter[Any]:
    make = cast("Callable[[str, dict[str, object]], Any]", TypedDict)
    made = make("arguments", dict(fields))
    made.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)
    return TypeAdapter(made)


def _field(tool: str, p: Parameter, description: str | None) -> object:
    if isinstance(p.default, FieldInfo):
        raise DefinitionError(
            f"tool {tool!r}: parameter {p.name!r} has a Field as its default: write Annotated[type, Field(...)] = value"
        )
    annotation: Any = p.annotation
    if _described(annotation):
        description = None
    if p.default is not MISSING:
        default: Any = _default(tool, p)
        annotation = Annotated[NotRequired[annotation], Field(default=default, validate_default=True)]
    return annotation if description is None else Annotated[annotation, Field(description=description)]


def _default(tool: str, p: Parameter) -> object:
    """The default as JSON has it, which is how the validator, which reads JSON, and the schema want it."""
    if p.default is None or type(p.default) in (int, bool):
        return p.default
    if type(p.default) is str and clean(p.default) == p.default:
        return p.default
    try:
        kept = adapter(p.annotation)
    except Exception:  # noqa: BLE001  # that the type has no schema is said where the schema is built
        return p.default
    try:
        text = _json_of(kept, kept.validate_python(p.default))
        if _json_of(kept, kept.validate_json(text)) != text:
            raise NotJson(f"it comes back from {text} as something else")
        if clean(text) != text:
            raise NotJson("it has half of a surrogate pair in it")
        return parse(text)
    except Exception as error:  # user types raise what they like
        reason = str(error).replace("\n", " ")
        raise DefinitionError(
            f"tool {tool!r}: parameter {p.name!r}: its default {p.default!r:.80} cannot be written as JSON: {reason}"
        ) from error


def _json_of(kept: TypeAdapter[Any], value: object) -> str:
    return encode(
        cast("JsonValue", settle(value, kept.dump_python(value, mode="json", by_alias=True, round_trip=True)))
    )


def _described(annotation: object) -> bool:
    if get_origin(annotation) is not Annotated:
        return False
    return any(isinstance(m, FieldInfo) and m.description is not None for m in get_args(annotation)[1:])


def _close(schema: JsonValue) -> None:
    """Say in the schema that nested objects take no unknown fields either."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for item in schema.values():
            _close(item)
    elif isinstance(schema, list):
        for item in schema:
            _close(item)


def _show(annotation: object) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


class _Facts:
    """What a core schema says about how its values behave."""

    # Types of which it is known that JSON text and value are one to one, so that looking again is not needed.
    _PLAIN = frozenset({
        "any", "bool", "dataclass", "dataclass-args", "dataclass-field", "date", "default", "definition-ref",
        "definitions", "dict", "enum", "float", "frozenset", "int", "json-or-python", "lax-or-strict", "list",
        "literal", "model", "model-field", "model-fields", "none", "nullable", "set", "str", "tuple", "typed-dict",
        "typed-dict-field", "uuid",
    })  # fmt: skip
    _SCALAR = frozenset({"bool", "int", "str", "none", "literal", "float"})

    _OBJECTS = frozenset(
        {"any", "dataclass", "dict", "json-or-python", "lax-or-strict", "model", "definition-ref"}
    )

    def __init__(self, tool: str, schema: object) -> None:
        self.sets = False
        self.checked = False
        self.own_extra = False
        self.flat = True
        objects = 0
        for where, node in _placed(f"tool {tool!r}", schema):
            self._look(where, node)
            objects += node.get("type") == "typed-dict"
            # An alias would be written out of order.
            self.flat &= node.get("type") not in self._OBJECTS and "serialization_alias" not in node
        self.flat &= objects == 1 and not self.sets

    def _look(self, where: str, node: Mapping[str, Any]) -> None:
        kind = node.get("type")
        cls = node.get("cls")
        if isinstance(cls, type) and issubclass(cls, (SecretStr, SecretBytes)):
            raise DefinitionError(
                f"{where}: {cls.__name__} hides its value, so it cannot be recorded: take a str"
            )
        if kind == "is-subclass":
            raise DefinitionError(f"{where}: a class cannot come from JSON")
        if kind in ("generator", "callable"):
            raise DefinitionError(f"{where}: an iterator cannot be recorded: take a list or a Sequence")
        config = cast("Mapping[str, Any]", node.get("config") or {})
        self.own_extra |= (
            node.get("extra_behavior") in ("allow", "ignore")
            or config.get("extra_fields_behavior") in ("allow", "ignore")
        )  # fmt: skip
        self.sets |= kind in ("set", "frozenset")
        if kind == "union":
            self.checked |= any(
                _kind(choice) not in self._SCALAR for choice in cast("list[object]", node["choices"])
            )
        elif isinstance(kind, str):
            self.checked |= kind not in self._PLAIN
        self.checked |= bool(
            "serialization" in node or node.get("custom_init") or node.get("post_init") or node.get("init") is False
            or node.get("init_only") or node.get("serialization_exclude") or "default_factory" in node
            or node.get("validation_alias") != node.get("serialization_alias")
        )  # fmt: skip


def _placed(tool: str, schema: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every node, with the parameter it belongs to; shared definitions belong to none."""
    outer = cast("Mapping[str, Any]", schema)
    top = cast("Mapping[str, Any]", outer["schema"] if outer["type"] == "definitions" else outer)
    yield tool, top
    for name, field in cast("Mapping[str, object]", top["fields"]).items():
        yield from ((f"{tool}: parameter {name!r}", node) for node in _nodes(field))
    yield from ((tool, node) for node in _nodes(outer.get("definitions", [])))


def _kind(choice: object) -> object:
    labelled = cast("tuple[object, ...]", choice)[0] if isinstance(choice, tuple) else choice
    return cast("Mapping[str, object]", labelled).get("type")


def _nodes(schema: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        yield node
        for key, item in node.items():
            if key == "fields" and isinstance(item, dict):
                # Keys of this one are names of the user's.
                yield from (
                    inner for field in cast("dict[str, Any]", item).values() for inner in _nodes(field)
                )
            elif key not in ("metadata", "config", "serialization", "default", "expected", "members"):
                yield from _nodes(item)
    elif isinstance(schema, (list, tuple)):
        for item in cast("Sequence[object]", schema):
            yield from _nodes(item)
