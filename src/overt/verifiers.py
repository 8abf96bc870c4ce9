"""Ready-made verifiers for a completion gate, and the tool one of them reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict, TypeForm

from overt._output import OutputInvalid, OutputSpec
from overt.completion import Attempt
from overt.errors import DefinitionError
from overt.tool import tool

__all__ = ("TodoItem", "all_todos_done", "output_is", "todo")


class _OutputIs:
    """What `output_is` returns; a class, so that the journal can say which type it asks for."""

    __slots__ = ("_spec", "_told")

    def __init__(self, output_type: object) -> None:
        self._spec = OutputSpec(output_type, where="output_is")
        self._told = output_type.__name__ if isinstance(output_type, type) else str(output_type)

    @property
    def __name__(self) -> str:
        return f"output_is({self._told})"

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __call__(self, attempt: Attempt[Any]) -> tuple[bool, str]:
        output = cast("object", attempt.output)
        try:
            self._spec.check(output)
        except OutputInvalid as error:
            if not isinstance(output, str):
                return False, "\n".join((f"the output has to be {self._told}:", *error.shown))
            try:
                self._spec.fits(output)
            except OutputInvalid as wrong:
                return False, "\n".join((f"the answer has to be {self._told} as JSON:", *wrong.shown))
        return True, f"the output is {self._told}"


def output_is(output_type: TypeForm[object], /) -> Callable[[Attempt[Any]], tuple[bool, str]]:
    """Return a verifier that wants an output of a type.

    An output that is one will do, and so will text that is JSON of one, whether or not a code fence is around it. The
    reason of a failed verdict names every place that does not fit.

    Example:
        >>> from overt import Completion, output_is
        >>> Completion(output_is(list[int]), max_attempts=3)
        Completion(output_is(list[int]), max_attempts=3)

    Args:
        output_type: Any type pydantic has a JSON schema for, unions among them.

    Raises:
        DefinitionError: It has none.
    """
    return _OutputIs(output_type)


# ------------------------------------------------------------------ the list of what is to be done


class TodoItem(TypedDict):
    """One thing to do."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    status: Literal["open", "doing", "done"]


_MARKS = {"open": "[ ]", "doing": "[~]", "done": "[x]"}


@tool
async def todo(items: Annotated[list[TodoItem], Field(min_length=1)]) -> str:
    """Write down what there is to do and how far it is.

    Give the whole list every time, finished items too: it replaces the one before. Write it before you begin, and again
    whenever an item is begun or done.

    Args:
        items: Everything there is to do, in order.
    """
    done = sum(item["status"] == "done" for item in items)
    return "\n".join([*map(_line, items), f"{done} of {len(items)} done"])


def all_todos_done(attempt: Attempt[Any]) -> tuple[bool, str]:
    """Verifier that wants everything on the agent's list to be done; the agent needs the tool `todo`.

    Only the last call of `todo` counts, and an attempt without one fails. There is no list anywhere else: a replay and
    another process judge the same.

    Example:
        >>> from overt import Completion, all_todos_done
        >>> gate = Completion(all_todos_done, max_attempts=3)

    Raises:
        DefinitionError: The agent has another tool named `todo`.
    """
    items = _last_list(attempt)
    if items is None:
        return (
            False,
            "there is no list of what is to be done: write one with the tool todo, then work through it",
        )
    left = [item for item in items if item["status"] != "done"]
    if left:
        told = "\n".join(map(_line, left))
        return False, (
            f"{len(left)} of {len(items)} items on your list are not done:\n{told}\n"
            "Do them, then give the whole list again with the tool todo."
        )
    return True, f"{len(items)} of {len(items)} done"


# Read where an agent is declared: a gate that no call could ever satisfy is refused there.
vars(all_todos_done)["needs_tool"] = todo.name


def _last_list(attempt: Attempt[Any]) -> list[TodoItem] | None:
    for call, result in reversed(attempt.tool_calls):
        if call.name == todo.name and not result.is_error:
            try:
                _, arguments = todo.bind(todo.canonical(call.arguments))
            except ValueError as error:
                raise DefinitionError(
                    f"all_todos_done reads the tool overt.todo, and this agent has another of that name: {error}"
                ) from error
            return cast("list[TodoItem]", arguments["items"])
    return None


def _line(item: TodoItem) -> str:
    return f"{_MARKS[item['status']]} {item['text']}"
