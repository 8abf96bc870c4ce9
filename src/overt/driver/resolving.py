"""Asking a tool itself what became of a call of it that was left in doubt."""

from __future__ import annotations

import inspect
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_core import from_json

from overt._canonical import encode, jsonable
from overt._redaction import Redaction
from overt.core import inputs as i
from overt.core.effects import RESOLVER, AskHost
from overt.core.tree import RequestState
from overt.doubt import Doubt, Failed, Resolver, Retry, Succeeded
from overt.driver.asking import short
from overt.driver.context import describe, let_through, run_user_code
from overt.driver.timing import in_time
from overt.models.redact import redact
from overt.tool import ToolResult, question_of

if TYPE_CHECKING:
    from overt.driver.crew import RunnableTool
    from overt.driver.loop import Driver

__all__ = ("perform_resolve",)


async def perform_resolve(driver: Driver, effect: AskHost, before: int) -> i.Input:
    """Ask the `resolve` of the tool whose call is in doubt."""
    tree = driver.tree
    node = tree.nodes[effect.handle]
    assert node.wake is not None
    request = tree.requests[effect.request]
    member = driver.crew.members.get(node.agent)
    tool = None if member is None else member.tools.get(node.wake.memory[request.key].tool)
    # What the plan says of another process need not hold of this one.
    if tool is None or tool.resolve is None:
        return i.HostDone(effect.id)
    data = json.loads(request.question.data)
    doubt: Doubt[Any] = Doubt(
        deps=driver.crew.deps,
        run_id=tree.run_id,
        handle=node.id,
        tool=tool.name,
        arguments=data["call"]["arguments"],
        idempotency_key=request.key,
        once=request.once,
        attempt=node.wake.attempt,
    )
    if tool.timeout is None:
        return await _ask(driver, effect, request, tool, tool.resolve, doubt, before)
    work = partial(_ask, driver, effect, request, tool, tool.resolve, doubt, 0)
    done = await in_time(driver, work, tool.timeout)
    if done is not None:
        return done
    late = f"resolve of {tool.name!r} did not say within {tool.timeout:g} s"
    return i.HostDone(effect.id, None, f"TimeoutError: {late}")


async def _ask(
    driver: Driver,
    effect: AskHost,
    request: RequestState,
    tool: RunnableTool,
    resolve: Resolver[Any],
    doubt: Doubt[Any],
    before: int,
) -> i.Input:
    try:
        await driver.pause()
        said = await run_user_code(resolve, (doubt,), {}, is_async=_is_async(resolve))
        if said is None:
            return i.HostDone(effect.id)
        outcome = _outcome(tool, request.once, said)
        if request.once is None and driver.crew.redaction is not None:
            # A call's result, as if the tool had returned it; a block's value is needed to go on.
            outcome = _redacted(driver.crew.redaction, outcome)
        text = encode(outcome)
        from_json(text)
    except BaseException as error:  # noqa: BLE001  # a lookup that raises leaves it to others
        await let_through(error, before, driver.host)
        return i.HostDone(effect.id, None, short(redact(driver.crew.redact(describe(error)))))
    return i.HostDone(effect.id, i.AnswerSpec(request.id, True, text, None, RESOLVER))


def _is_async(fn: object) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  # the method itself is looked at


def _outcome(tool: RunnableTool, once: str | None, said: object) -> dict[str, JsonValue]:
    """Return what was said as the data of an answer.

    Raises:
        TypeError: It is no outcome, or the output has no JSON form.
    """
    match said:
        case Retry():
            return {"outcome": "retry"}
        case Succeeded() if once is not None:
            return {"outcome": "succeeded", "output": jsonable(said.output, f"the value of {once!r}")}
        case Succeeded() | Failed():
            result = _result(tool, said.output)
            failed = isinstance(said, Failed) or result.is_error
            data: dict[str, JsonValue] = {
                "outcome": "failed" if failed else "succeeded",
                "output": result.output,
            }
            # A block that failed raises its text; only a call has a result to keep anything with.
            return {**data, "metadata": dict(result.metadata)} if result.metadata and once is None else data
        case _:
            raise TypeError(
                f"resolve of {tool.name!r} returned {type(said).__name__}, not Succeeded, Failed, Retry or None"
            )


def _redacted(redaction: Redaction, outcome: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kept = dict(outcome)
    if isinstance(output := kept.get("output"), str):
        kept["output"] = redaction.text(output)
    if "metadata" in kept:
        kept["metadata"] = redaction.value(kept["metadata"])
    return kept


def _result(tool: RunnableTool, output: object) -> ToolResult:
    result = tool.as_result(output)
    if question_of(result) is not None:
        raise TypeError(f"resolve of {tool.name!r} gave a result that asks: only a tool can")
    return result
