"""Checking an answer's data against the schema of its request, in any process."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_core import from_json

from overt._canonical import encode, faithful
from overt.errors import InvalidAnswer
from overt.request import Answer, Request

if TYPE_CHECKING:
    from jsonschema_rs import Validator

__all__ = ("check_data", "fits_schema", "text_of")


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    from jsonschema_rs import validator_for  # loaded with the first request that has a schema

    # A schema may come from elsewhere, and nothing is fetched because it says so.
    return validator_for(json.loads(schema), offline=True)


def text_of(answer: Answer[Any]) -> str | None:
    """Return an answer's data as canonical JSON; `None` for none.

    Raises:
        InvalidAnswer: It has no JSON form that could be read back.
    """
    if answer.data is None:
        return None
    try:
        text = encode(faithful(answer.data, "$.data"))
        from_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidAnswer(
            f"the data of the answer to {answer.id} cannot be recorded: {error}", places=(str(error),)
        ) from error
    return text


def fits_schema(schema: str | None, data: str | None) -> bool:
    """Whether recorded data fits a recorded schema; `None` for a schema takes anything."""
    return schema is None or _validator(schema).is_valid(None if data is None else json.loads(data))


def check_data(request: Request, data: JsonValue) -> None:
    """Check the data of an accepting answer.

    Raises:
        InvalidAnswer: It does not fit; lists every place.
    """
    if request.answer_schema is None:
        return
    places = [
        "$"
        + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
        + f": {error.message}"
        for error in _validator(encode(request.answer_schema)).iter_errors(data)
    ]
    if places:
        raise InvalidAnswer(
            f"the answer to {request.id} does not fit its answer_schema: {'; '.join(places)}", places=places
        )
