"""Asking the completion gate, and `on_limit`."""

from __future__ import annotations

import inspect
from contextvars import copy_context
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json

from overt._frozen import trusted
from overt._text import clean
from overt.completion import Attempt
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import AskLimit, Verify
from overt.core.tree import Wake
from overt.driver.asking import message_of
from overt.driver.caps import caps_of
from overt.driver.context import InContext, let_through, run_user_code
from overt.guardrail import name_of
from overt.message import ToolCall
from overt.policy import Extend, LimitInfo, Stop, Suspend
from overt.result import Limit
from overt.tool import ToolResult

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("perform_limit", "perform_verify")


def _work(wake: Wake) -> list[tuple[ToolCall, ToolResult]]:
    """Every call of the attempt that came to a result of its own, in the order they were made.

    What a limit stop has kept of an earlier attempt is work of this one too: the transcript has it.
    """
    kept = wake.kept()
    mine = [
        m
        for m in wake.memory.values()
        if m.finished and m.key in wake.claimed and (m.finished_in == wake.attempt or m.key in kept)
    ]
    mine.sort(key=lambda m: int(m.call.removeprefix("c")))
    done: list[tuple[ToolCall, ToolResult]] = []
    for memory in mine:
        arguments = from_json(memory.args if memory.ran is None else memory.ran)
        call = trusted(ToolCall, id=memory.call, name=memory.tool, arguments=arguments)
        metadata: dict[str, object] = {} if memory.metadata is None else from_json(memory.metadata)
        done.append((call, ToolResult(memory.output, is_error=memory.is_error, metadata=metadata)))
    return done


async def perform_verify(driver: Driver, effect: Verify, before: int) -> i.Input:
    """Have the completion gate judge the work of the attempt."""
    node = driver.tree.nodes[effect.handle]
    wake = node.wake
    assert wake is not None
    member = driver.crew.members.get(node.agent)
    gate = None if member is None else member.completion
    if member is None or gate is None:
        # The declaration has none any more; the plan is recorded again at the next claim.
        return i.VerifyDone(effect.id, True, "there is no gate any more")
    verify = gate.verify
    try:
        attempt: Attempt[Any] = Attempt(
            text=wake.text if wake.output is None else wake.output,
            output=member.load(wake.output, wake.text),
            tool_calls=tuple(_work(wake)),
            number=effect.number,
            run_id=driver.tree.run_id,
            handle=node.id,
            deps=driver.crew.deps,
        )
        is_async = inspect.iscoroutinefunction(verify) or inspect.iscoroutinefunction(
            getattr(verify, "__call__", None)  # noqa: B004  # the method itself is looked at, not whether it is there
        )
        value: object = await run_user_code(verify, (attempt,), {}, is_async=is_async)
        verdict = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
        ok, reason = verdict if len(verdict) == 2 else (None, None)
        if not isinstance(ok, bool) or not isinstance(reason, str):
            raise TypeError(
                f"verifier {name_of(verify)!r} returned {value!r:.80}, not a tuple of whether it will do and why not"
            )
    except BaseException as error:  # noqa: BLE001  # whatever a verifier raises is no verdict
        await let_through(error, before, driver.host)
        return i.VerifyDone(
            effect.id, error=f.ErrorSpec(type(error).__name__, message_of(driver, error), "completion")
        )
    return i.VerifyDone(effect.id, ok, driver.crew.redact(clean(reason)))


async def perform_limit(driver: Driver, effect: AskLimit, before: int) -> i.Input:
    """Ask `on_limit` about a cap that is spent."""
    ask = driver.crew.on_limit
    if ask is None:
        return i.LimitRuled(effect.id)
    try:
        info = LimitInfo(
            limit=Limit(effect.limit),
            at=effect.at,
            cap=Decimal(effect.cap),
            spent=Decimal(effect.spent),
            handle=effect.handle,
        )
        value: object = copy_context().run(ask, info)
        if inspect.isawaitable(value):
            value = await InContext(_awaited, value)
        match value:
            case Stop():
                return i.LimitRuled(effect.id)
            case Extend():
                return i.LimitRuled(effect.id, "extend", caps_of(value.budget))
            case Suspend():
                prompt = None if value.prompt is None else clean(value.prompt)
                return i.LimitRuled(effect.id, "suspend", None, prompt)
            case _:
                raise TypeError(f"on_limit returned {type(value).__name__}, not Stop, Extend or Suspend")
    except BaseException as error:  # noqa: BLE001  # whatever it raises is its failure
        await let_through(error, before, driver.host)
        return i.LimitRuled(
            effect.id, error=f.ErrorSpec(type(error).__name__, message_of(driver, error), "hook")
        )


async def _awaited(value: Any) -> object:
    return await value
