"""What hosts hand in, checked where it comes in: type checkers see these mistakes, people in a notebook do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter

from overt._agent_checks import shown
from overt._canonical import encode, jsonable
from overt._redaction import Redaction
from overt._text import clean
from overt.errors import DefinitionError, UsageError
from overt.message import Message, Model
from overt.models import resolve
from overt.policy import ResumePolicy
from overt.request import Answer

__all__ = ("MESSAGES", "answers_given", "history_given", "model_given", "policy_given", "prompt_given")

MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message], config=ConfigDict(defer_build=True))


def answers_given(answer: object) -> list[Answer[Any]]:
    """Return the answers of `resume` as a list.

    Raises:
        UsageError: It is neither an `Answer` nor a list of them.
    """
    if isinstance(answer, Answer):
        return [answer]
    if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes)):
        raise UsageError(
            f"resume takes an Answer or a list of them, not {type(answer).__name__}: Answer(id=…, ok=…)"
        )
    given = list(cast("Sequence[object]", answer))
    for item in given:
        if not isinstance(item, Answer):
            raise UsageError(
                f"resume takes Answers, and the list has a {type(item).__name__}: Answer(id=…, ok=…)"
            )
    return cast("list[Answer[Any]]", given)


def history_given(history: Sequence[Message], *, redaction: Redaction | None = None) -> str | None:
    """Return a history as it is stored; `None` for none.

    Raises:
        DefinitionError: It cannot be recorded; names the message.
    """
    if not history:
        return None
    texts: list[str] = []
    for index, message in enumerate(history):
        try:
            data = message.model_dump(mode="json", warnings="error")
            if redaction is not None:
                data = redaction.message(data)
            texts.append(encode(jsonable(data, f"$.history[{index}]")))
            MESSAGES.validate_json(f"[{texts[-1]}]")
        except (TypeError, ValueError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise DefinitionError(f"option 'history' cannot be recorded: item {index}: {why}") from error
    return f"[{','.join(texts)}]"


def model_given(model: object) -> Model | None:
    """Return a model, made of its name where that was given; `None` for the handle's own.

    Raises:
        DefinitionError: It is neither, or its provider is unknown or lacks its package or key.
    """
    if model is None:
        return None
    if isinstance(model, str):
        return resolve(model)
    if isinstance(model, type) or not (hasattr(model, "generate") and hasattr(model, "name")):
        raise DefinitionError(f"model has to be a Model or a str, not {shown(model)}")
    return cast("Model", model)


def policy_given(policy: object) -> str | None:
    """Return a policy as the rules keep it; `None` for the run's.

    Raises:
        UsageError: There is no such policy.
    """
    if policy is None:
        return None
    try:
        return ResumePolicy(policy).value  # type: ignore[arg-type]  # a wrong one is what is looked for
    except ValueError:
        raise UsageError(f"policy is 'rewind' or 'continue', not {policy!r}") from None


def prompt_given(prompt: object) -> str:
    """Return a prompt as it is stored.

    Raises:
        UsageError: It is no text.
    """
    if not isinstance(prompt, str):
        raise UsageError(f"a prompt is a str, not {type(prompt).__name__}")
    return clean(prompt)
