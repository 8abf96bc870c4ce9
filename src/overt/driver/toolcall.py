"""One entry of one tool: its context, its questions, its `once` blocks, and how it may end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import from_json

from overt._canonical import NotJson, dump_exact, encode, load_exact
from overt._frozen import trusted
from overt._question import Question
from overt._redaction import Redaction
from overt._text import clean, told
from overt._times import micros
from overt.context import ToolContext
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallTool
from overt.core.moves import call_of
from overt.core.replay import fits
from overt.core.suspension import public_answer
from overt.core.tree import Call, Memory, Node, RequestState
from overt.core.views import answers_of
from overt.driver.asking import Failed, call_hook, result_of, short
from overt.driver.context import describe, let_through, run_user_code
from overt.driver.metering import measure
from overt.driver.timing import in_time
from overt.driver.upgrading import UpgradeFailed, question_now
from overt.errors import ToolError, UsageError
from overt.hooks import AfterTool, ToolOverride
from overt.message import ToolCall
from overt.request import Answer
from overt.tool import ToolResult, question_of

if TYPE_CHECKING:
    from overt.driver.crew import Member, RunnableTool
    from overt.driver.loop import Driver

__all__ = ("perform_tool",)

T = TypeVar("T")


class Asking(BaseException):
    """Leaves a tool that asks. Derives from BaseException so that a handler for errors does not take it for one."""


def core_question(question: Question, call: Call, redaction: Redaction | None) -> f.Question:
    """Return a question as the core keeps it, with the call it is bound to."""
    given: JsonValue = question.data if redaction is None else redaction.value(question.data)
    data: dict[str, JsonValue] = {
        **cast("dict[str, JsonValue]", given),
        "call": {"tool": call.name, "arguments": json.loads(call.run_args)},
    }
    at = question.expires_at
    text = encode(data)
    try:
        from_json(text)
    except ValueError as error:
        raise UsageError(f"data of the question cannot be recorded: {error}") from error
    return f.Question(
        question.kind,
        question.prompt,
        question.url,
        text,
        None if question.answer_schema is None else encode(question.answer_schema),
        None if at is None else micros(at),
    )


class Entry:
    """The channel between a running tool and the run."""

    def __init__(self, driver: Driver, effect: CallTool, node: Node, call: Call) -> None:
        assert node.wake is not None
        self.driver = driver
        self.effect = effect
        self.call = call
        self.memory: Memory = node.wake.memory[call.key]
        self.recorded: list[tuple[RequestState, Answer[object]]] = (
            answers_of(driver.tree, node, call.key) if self.memory.slots else []
        )
        self.asked: int = 0
        self.left: tuple[f.Question, int] | None = None
        self.failed: f.ErrorSpec | None = None
        """Why nobody can tell whether a question has its answer."""
        self.inside: set[str] = set()
        self.over: bool = False
        """Whether the tool has been left: what it left running may ask nothing any more."""

    async def ask(self, question: Question, /) -> Answer[JsonValue]:
        """Return the recorded answer to the next question, or leave the tool."""
        if self.over:
            raise UsageError(
                "ctx.ask after the tool has returned: its result is recorded, nobody would use an answer"
            )
        if self.inside:
            raise UsageError(
                f"ask inside once({min(self.inside)!r}): the block would run again; ask before it"
            )
        slot, self.asked = self.asked, self.asked + 1
        wanted = core_question(question, self.call, self.driver.crew.redaction)
        if slot < len(self.recorded) and self.left is None:
            request, _ = self.recorded[slot]
            if fits(request.question, wanted) or await self._fits_now(request, wanted):
                return cast("Answer[JsonValue]", public_answer(request))
        # The first question that has no answer is the one that is asked: tasks of one group may all come here.
        if self.left is None:
            self.left = (wanted, slot)
        raise Asking

    async def _fits_now(self, request: RequestState, wanted: f.Question) -> bool:
        """Whether the host says that what is asked now is what was answered."""
        upgrade = self.driver.crew.upgrade
        if upgrade.questions is None:
            return False
        try:
            question = question_now(self.driver.tree, request, wanted, upgrade)
        except UpgradeFailed as failed:
            self.failed = f.ErrorSpec("UpgradeFailed", short(str(failed)), "hook")
            return False
        if question is None:
            return False
        await self.driver.step(i.QuestionFits(self.effect.id, request.id, question))
        return True

    async def once(self, label: str, fn: Callable[[], Awaitable[T]], annotation: object, /) -> T:
        """Run `fn`, or return what it returned before."""
        label = clean(label)
        if label in self.inside:
            raise UsageError(f"once({label!r}) is under way already in this call")
        done = None if self.memory.once is None else self.memory.once.get(label)
        if done is not None and not done.done:
            raise UsageError(f"once({label!r}) was left without an outcome; whether it has happened is asked")
        if done is not None:
            if done.error is not None:
                raise ToolError(done.error)
            assert done.value is not None
            return cast("T", load_exact(done.value, annotation))
        self.inside.add(label)
        try:
            await self.driver.step(i.OnceBegin(self.effect.id, label))
            if self.effect.id not in self.driver.tree.open:
                raise UsageError(f"once({label!r}): this call was given up; nothing was run")
            await self.driver.check_claim()
            try:
                value = await fn()
                text = self._kept(label, value, annotation)
            except Exception as error:
                why = self.driver.crew.redact(failure(error))
                await self.driver.step(i.OnceEnd(self.effect.id, label, None, why))
                raise
            await self.driver.step(i.OnceEnd(self.effect.id, label, text))
        finally:
            self.inside.discard(label)
        return value

    def _kept(self, label: str, value: object, annotation: object) -> str:
        try:
            return dump_exact(value, annotation)
        except NotJson as error:
            raise NotJson(
                f"once({label!r}) of tool {self.call.name!r} returned what cannot be kept: {error}"
            ) from error


def failure(error: BaseException) -> str:
    """Return what the model is told of an exception: type and message, no traceback."""
    if isinstance(error, ToolError):
        return told(error)
    return describe(error)


async def perform_tool(driver: Driver, effect: CallTool, before: int) -> i.Input:
    """Enter a tool once, and return what came of it."""
    node = driver.tree.nodes[effect.handle]
    assert node.wake is not None
    call = call_of(node.wake, effect.call)
    member = driver.crew.members.get(node.agent)
    tool = None if member is None else member.tools.get(call.name)
    if tool is None:
        return i.ToolDone(effect.id, f"the tool {call.name!r} is gone", True)
    entry = Entry(driver, effect, node, call)
    if not driver.tenure.private:
        await driver.check_claim()
        if effect.id not in driver.tree.open:
            return i.ToolLost(effect.id, "given up before it was entered")
    since = driver.clock.monotonic() if member is not None and member.on_metric is not None else 0.0
    try:
        if tool.timeout is None:
            done = await _enter(driver, effect, entry, node, call, tool, before)
        else:
            done = await _enter_timed(driver, effect, entry, node, call, tool, tool.timeout)
    except BaseException:
        # It was cut off, which is no result, but an entry that has ended.
        if member is not None and member.on_metric is not None:
            measure(driver, member, node, "tool", call.name, "error", since)
        raise
    done = _redacted(driver, done)
    if member is not None and (member.hooks is not None or member.on_metric is not None):
        # What a hook has of its own goes the same way.
        return _redacted(driver, await _seen(driver, member, node, call, done, since, before))
    return done


def _redacted(driver: Driver, done: i.Input) -> i.Input:
    """Return what came of a tool as it may be recorded, and as everybody sees it from here on."""
    if driver.crew.redaction is None or not isinstance(done, i.ToolDone):
        return done
    redact = driver.crew.redact
    metadata = None if done.metadata is None else redact(done.metadata)
    return done._replace(output=redact(done.output), metadata=metadata)


async def _seen(
    driver: Driver, member: Member, node: Node, call: Call, done: i.Input, since: float, before: int
) -> i.Input:
    """Let hook and metric see how an entry ended. A tool that asks has not ended."""
    if member.on_metric is not None:
        asks = isinstance(done, i.ToolAsked)
        failed = isinstance(done, i.ToolLost) or (isinstance(done, i.ToolDone) and done.is_error)
        status = "pending" if asks else "error" if failed else "ok"
        measure(driver, member, node, "tool", call.name, status, since, pending=asks)
    hook = None if member.hooks is None else member.hooks.after_tool
    if hook is None or not isinstance(done, i.ToolDone):
        return done
    assert node.wake is not None
    event = AfterTool(
        handle=node.id,
        turn=node.wake.turns,
        call=trusted(ToolCall, id=call.id, name=call.name, arguments=json.loads(call.run_args)),
        result=ToolResult(
            done.output,
            is_error=done.is_error,
            metadata=None if done.metadata is None else json.loads(done.metadata),
        ),
    )
    try:
        override: ToolOverride | None = await call_hook(driver, hook, event, (ToolOverride,), before)
        result = None if override is None else result_of("after_tool", override)
        if result is None:
            return done
        metadata = encode({**result.metadata, "overridden": "after_tool"})
        return i.ToolDone(done.effect, result.output, result.is_error, metadata)
    except Failed as failed:
        # What the tool did is recorded all the same.
        return done._replace(error=failed.error)


async def _enter(
    driver: Driver,
    effect: CallTool,
    entry: Entry,
    node: Node,
    call: Call,
    tool: RunnableTool,
    before: int,
) -> i.Input:
    try:
        args, kwargs = tool.bind(call.run_args)
        if tool.takes_context:
            args = (_context(driver, entry, node, call), *args)
        value = await run_user_code(tool.__wrapped__, args, kwargs, is_async=tool.is_async)
        if entry.left is not None:
            return _swallowed(effect, tool)
        return _returned(effect, entry, call, tool.as_result(value))
    except Asking:
        return _asked(effect, entry)
    except BaseException as error:  # noqa: BLE001  # what a tool raises is a result
        # A task group inside the tool wraps what leaves it.
        if entry.left is not None and _only_asks(error):
            return _asked(effect, entry)
        await let_through(error, before, driver.host)
        if entry.left is not None:
            return _swallowed(effect, tool, f"; it raised {failure(error)}")
        return i.ToolDone(effect.id, failure(error), True)
    finally:
        entry.over = True


def _only_asks(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return all(_only_asks(inner) for inner in members)
    return isinstance(error, Asking)


def _swallowed(effect: CallTool, tool: RunnableTool, then: str = "") -> i.Input:
    return i.ToolDone(
        effect.id,
        f"tool {tool.name!r} swallowed the suspension of ctx.ask: let BaseException through{then}",
        True,
    )


def _context(driver: Driver, entry: Entry, node: Node, call: Call) -> ToolContext[object]:
    assert node.wake is not None
    return ToolContext(
        deps=driver.crew.deps,
        run_id=driver.tree.run_id,
        handle=node.id,
        agent=node.agent,
        call=trusted(ToolCall, id=call.id, name=call.name, arguments=json.loads(call.run_args)),
        idempotency_key=call.key,
        attempt=node.wake.attempt,
        answers=tuple(answer for _, answer in entry.recorded),
        _channel=entry,
    )


def _asked(effect: CallTool, entry: Entry) -> i.Input:
    assert entry.left is not None
    question, slot = entry.left
    return i.ToolAsked(effect.id, question, slot, entry.failed)


def _returned(effect: CallTool, entry: Entry, call: Call, result: ToolResult) -> i.Input:
    question = question_of(result)
    if question is not None:
        return i.ToolAsked(
            effect.id, core_question(question, call, entry.driver.crew.redaction), len(entry.recorded)
        )
    metadata = None
    if result.metadata:
        metadata = encode(dict(result.metadata))
        try:
            from_json(metadata)
        except ValueError as error:
            raise TypeError(f"metadata of tool {call.name!r} cannot be recorded: {error}") from error
    return i.ToolDone(effect.id, result.output, result.is_error, metadata)


async def _enter_timed(
    driver: Driver, effect: CallTool, entry: Entry, node: Node, call: Call, tool: RunnableTool, timeout: float
) -> i.Input:
    done = await in_time(driver, partial(_enter, driver, effect, entry, node, call, tool, 0), timeout)
    if done is not None:
        return done
    return i.ToolLost(effect.id, "timed out", True, f"{tool.name} timed out after {timeout:g} s")
