"""Asking guardrails and hooks: each is called once, and one that fails is told as such."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

import anyio

from overt._text import clean
from overt.core import facts as f
from overt.driver.context import InContext, describe, let_through
from overt.guardrail import Allow, Ask, Deny, Ruling, name_of
from overt.hooks import ToolOverride
from overt.models.redact import redact
from overt.tool import ToolResult, question_of

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("Failed", "Rule", "ask_rules", "call_hook", "message_of", "result_of", "short")

Rule = Callable[[Any], Ruling | Awaitable[Ruling]]


class Failed(Exception):
    """User code failed where that ends the wake; carries the error."""

    def __init__(self, error: f.ErrorSpec) -> None:
        super().__init__(error.message)
        self.error = error


def message_of(driver: Driver, error: BaseException) -> str:
    """Return an exception's message, short and without credentials and fields; the type where there is none."""
    return short(redact(driver.crew.redact(describe(error).removeprefix(f"{type(error).__name__}: "))))


def short(text: str) -> str:
    """Return text that fits a message."""
    text = clean(text)
    return text if len(text) <= 500 else text[:497] + "..."


async def call_hook(
    driver: Driver, fn: Callable[[Any], Any], event: object, kinds: tuple[type, ...], before: int
) -> Any:
    """Call a hook and return what it changes, `None` for nothing.

    Raises:
        Failed: It raised, or returned something else; source `hook`.
    """
    try:
        # What a plain function sets in a context variable stays with it too.
        value = copy_context().run(fn, event)
        if inspect.isawaitable(value):
            value = await InContext(_awaited, value)
    except BaseException as error:  # whatever a hook raises is its failure
        await let_through(error, before, driver.host)
        raise Failed(f.ErrorSpec(type(error).__name__, message_of(driver, error), "hook")) from error
    if value is not None and not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds) or "nothing"
        raise Failed(
            f.ErrorSpec(
                "TypeError", f"hook {name_of(fn)!r} returned {type(value).__name__}, not {wanted}", "hook"
            )
        )
    return value


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def result_of(name: str, override: ToolOverride) -> ToolResult | None:
    """Return the result a hook gives, `None` if it gives none.

    Raises:
        Failed: It is no result, or one that asks.
    """
    result = cast("object", override.result)
    if result is None:
        return None
    if not isinstance(result, ToolResult):
        wrong = f"{name} gave a result of type {type(result).__name__}, not a ToolResult"
        raise Failed(f.ErrorSpec("TypeError", wrong, "hook"))
    if question_of(result) is not None:
        raise Failed(f.ErrorSpec("UsageError", f"{name} gave a result that asks: only a tool can", "hook"))
    return result


async def ask_rules(driver: Driver, asked: Sequence[tuple[Rule, object]], before: int) -> list[Ruling]:
    """Ask every guardrail, those that wait for something side by side, and return their rulings in order.

    One that raises, returns anything else or takes too long denies.
    """
    rulings: list[Ruling | None] = []
    waiting: list[tuple[int, Awaitable[Any]]] = []
    for index, (rule, event) in enumerate(asked):
        try:
            value: object = copy_context().run(rule, event)
        except BaseException as error:  # noqa: BLE001  # a rule that fails denies
            try:
                await let_through(error, before, driver.host)
            except BaseException:
                _give_up(waiting)
                raise
            rulings.append(_failed(driver, rule, error))
            continue
        if not isinstance(value, (Allow, Deny, Ask)) and inspect.isawaitable(value):
            waiting.append((index, value))
            rulings.append(None)
        else:
            rulings.append(_said(driver, rule, value))
    if not waiting:
        return cast("list[Ruling]", rulings)
    await _wait_for(driver, asked, rulings, waiting, before)
    seconds = driver.crew.guardrail_timeout
    return [
        Deny(f"guardrail {name_of(asked[index][0])!r} did not say within {seconds:g} s")
        if ruling is None
        else ruling
        for index, ruling in enumerate(rulings)
    ]


def _give_up(waiting: Sequence[tuple[int, Awaitable[Any]]]) -> None:
    """Close what will not be awaited."""
    for _, awaitable in waiting:
        if inspect.iscoroutine(awaitable):
            awaitable.close()


def _failed(driver: Driver, rule: Rule, error: BaseException) -> Deny:
    return Deny(short(f"guardrail {name_of(rule)!r} raised {redact(driver.crew.redact(describe(error)))}"))


def _said(driver: Driver, rule: Rule, value: object) -> Ruling:
    """Return a ruling as it can be relied on: of its own class, and whole."""
    try:
        match value:
            case Allow():
                return value
            case Deny():
                return Deny(value.reason)
            case Ask():
                kind, type_, at = value.kind, value.answer_type, value.expires_at
                return Ask(value.prompt, kind=kind, answer_type=type_, expires_at=at)
            case _:
                pass
    except Exception as error:  # noqa: BLE001  # a class of the host's own that is not made as its base is
        return _failed(driver, rule, error)
    return Deny(
        f"guardrail {name_of(rule)!r} returned {type(value).__name__}, not Allow, Deny or Ask: denied to be safe"
    )


async def _wait_for(
    driver: Driver,
    asked: Sequence[tuple[Rule, object]],
    rulings: list[Ruling | None],
    waiting: Sequence[tuple[int, Awaitable[Any]]],
    before: int,
) -> None:
    left = len(waiting)
    late = False
    fatal: list[BaseException] = []

    async def one(index: int, awaitable: Awaitable[Any], group: anyio.abc.TaskGroup) -> None:
        nonlocal left
        rule = asked[index][0]
        try:
            ruling = _said(driver, rule, await awaitable)
        except BaseException as error:  # noqa: BLE001  # a rule that fails denies
            try:
                await let_through(error, before, driver.host)
            except (KeyboardInterrupt, SystemExit) as end:
                # Of a task of its own asyncio lets neither out but through the event loop, past everybody.
                fatal.append(end)
                group.cancel_scope.cancel()
                return
            ruling = _failed(driver, rule, error)
        if late:
            # Told to stop, it said something all the same.
            return
        rulings[index] = ruling
        left -= 1
        if not left:
            group.cancel_scope.cancel()

    async def timer(group: anyio.abc.TaskGroup) -> None:
        nonlocal late
        await driver.clock.sleep(driver.crew.guardrail_timeout)
        late = True
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, awaitable in waiting:
            group.start_soon(one, index, awaitable, group)
        group.start_soon(timer, group)
    if fatal:
        raise fatal[0]
