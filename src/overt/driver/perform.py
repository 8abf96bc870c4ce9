"""Performing what is not a tool: models, interpreters, notifications."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from overt._canonical import encode, jsonable
from overt._text import clean, told
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.budget import wall_spent
from overt.core.calls import offers_task
from overt.core.effects import AskHost, CallModel, Notify
from overt.core.tree import Node
from overt.core.views import request_view
from overt.driver.answers import check_data, text_of
from overt.driver.context import InContext, describe, let_through
from overt.driver.shown import Shown
from overt.errors import InvalidAnswer, ModelError
from overt.message import Message, ModelRequest, ModelResponse, SystemMessage, ToolCall
from overt.models.redact import denied, redact
from overt.request import Answer, Request

if TYPE_CHECKING:
    from overt.driver.crew import Member
    from overt.driver.loop import Driver

__all__ = ("answer_spec", "perform_host", "perform_model", "perform_notify", "verify")


async def perform_model(driver: Driver, effect: CallModel, before: int) -> i.Input:
    """Buy one turn."""
    node = driver.tree.nodes[effect.handle]
    member = driver.crew.members.get(node.agent)
    # A scripted model never waits; without this a run of such turns would hold the event loop and hear no cancel.
    await driver.pause()
    try:
        if member is None:
            raise ModelError(f"no agent {node.agent!r} was given", type="SpecDrift")
        model = member.model
        try:
            system = member.system()
        except BaseException as error:  # noqa: BLE001  # the agent's own function, not the model
            await let_through(error, before, driver.host)
            return i.ModelLost(effect.id, f.ErrorSpec(type(error).__name__, _message(error), "runtime"))
        request = _request(driver, member, node, effect, model.name, system)
        async with driver.gate:
            if effect.id not in driver.tree.open:
                # It was closed while this waited, or in the moment the place was handed over.
                return i.ModelLost(effect.id, f.ErrorSpec("Cancelled", "", "model"))
            response = await InContext(model.generate, request)
        return _reply(member, node, effect, response)
    except ModelError as error:
        return i.ModelLost(effect.id, _model_error(error))
    except BaseException as error:  # noqa: BLE001  # whatever a model raises is a failed call
        await let_through(error, before, driver.host)
        return i.ModelLost(effect.id, _foreign_error(error))


def _foreign_error(error: BaseException) -> f.ErrorSpec:
    """A provider library's own exception, let through by a host's model."""
    kind = type(error).__name__
    found: object = None
    with suppress(Exception):  # its attributes may be properties that raise
        found = getattr(error, "status_code", None) or getattr(
            getattr(error, "response", None), "status_code", None
        )
    status = found if type(found) is int else None
    refused = denied(kind, status)
    return f.ErrorSpec(kind, _message(error) if refused is None else refused, "model", False, status)


def _model_error(error: ModelError) -> f.ErrorSpec:
    refused = denied(error.type, error.status_code)
    if refused is not None:
        return f.ErrorSpec(error.type, refused, "model", error.retryable, error.status_code)
    detail = None if error.detail is None else redact(error.detail)
    return f.ErrorSpec(error.type, _message(error), "model", error.retryable, error.status_code, detail)


def _message(error: BaseException) -> str:
    """Return an exception's message, short and without credentials; the type where there is none."""
    text = describe(error)
    name = type(error).__name__
    return _short(redact(text.removeprefix(f"{name}: ")))


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= 500 else text[:497] + "..."


def _request(
    driver: Driver, member: Member, node: Node, effect: CallModel, name: str, system: SystemMessage | None
) -> ModelRequest:
    shown = driver.shown.get(node.id)
    if shown is None:
        shown = driver.shown[node.id] = Shown()
    messages: tuple[Message, ...] = shown.of(node)
    if system is not None:
        messages = (system, *messages)
    settings = member.settings
    cap = settings.max_output_tokens
    if effect.left is not None:
        cap = effect.left if cap is None else min(cap, effect.left)
    return ModelRequest(
        messages=messages,
        tools=member.specs_with_task if member.task is not None and offers_task(node) else member.specs,
        agent=node.agent,
        handle=node.id,
        model=name,
        settings=settings,
        output_schema=None,
        max_output_tokens=cap,
        deadline=_deadline(driver, node) if driver.tree.has_wall else None,
    )


def _deadline(driver: Driver, node: Node) -> Any:
    tree = driver.tree
    left = [
        a.caps.max_wall * 1e6 - wall_spent(tree, a, tree.now)
        for a in node.chain
        if a.caps.max_wall is not None
    ]
    return driver.clock.now() + timedelta(microseconds=max(min(left), 0)) if left else None


def _reply(member: Member, node: Node, effect: CallModel, response: ModelResponse) -> i.Input:
    if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's own model
        raise TypeError(f"the model returned {type(response).__name__}, not a ModelResponse")
    message = response.message
    if not isinstance(message.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise TypeError(f"the model returned a text of type {type(message.text).__name__}")
    calls: tuple[f.CallSpec, ...] = ()
    if message.tool_calls:
        task = offers_task(node)
        calls = tuple(
            _call(member, call, response.invalid_arguments.get(index), task)
            for index, call in enumerate(message.tool_calls)
        )
    usage = response.usage
    tokens = None
    if usage is not None:
        sent, received, total = usage.input_tokens, usage.output_tokens, usage.total_tokens
        for count in (sent, received, total, usage.cached_tokens, usage.reasoning_tokens):
            if type(count) is not int or not 0 <= count < 2**53:
                raise TypeError(f"the model reported {count!r:.40} tokens")
        tokens = f.Tokens(
            sent,
            received,
            usage.cached_tokens,
            usage.reasoning_tokens,
            0 if total == sent + received else total,
        )
    return i.ModelDone(
        effect.id,
        clean(message.text),
        calls,
        tokens,
        None,
        clean(response.finish_reason),
        clean(response.model),
        None if message.reasoning is None else clean(message.reasoning),
        None if message.opaque is None else encode(jsonable(message.opaque)),
    )


def _call(member: Member, call: ToolCall, invalid: str | None, task: bool) -> f.CallSpec:
    name = clean(call.name)
    tool = member.tools.get(name)
    if tool is None and name == "task" and task:
        tool = member.task
    raw = "{}"
    if invalid is None:
        if not isinstance(cast("object", call.arguments), Mapping):
            return f.CallSpec(name, raw, None, "invalid arguments: not a JSON object")
        try:
            raw = _text(call.arguments)
        except (TypeError, ValueError, RecursionError) as error:
            return f.CallSpec(name, raw, None, f"invalid arguments: {error}")
    try:
        from_json(raw)
    except ValueError as error:
        # What the journal could not read back is not written into it: nested too deeply, a number with 5,000 digits.
        return f.CallSpec(name, "{}", None, f"invalid arguments: {error}")
    if tool is None:
        return f.CallSpec(name, raw, None, _unknown(member, name, task))
    try:
        # Text that is no JSON object may still do: none at all, for a tool without arguments.
        args = tool.canonical(call.arguments if invalid is None else invalid)
    except (ValueError, TypeError) as error:
        return f.CallSpec(name, raw, None, told(error))
    return f.CallSpec(name, raw, None if args == raw else args)


def _text(arguments: dict[str, JsonValue]) -> str:
    try:
        text = to_json(arguments).decode()
    except ValueError:
        # Half a surrogate pair, or no JSON: the slow way cleans the one and names the other.
        return encode(jsonable(arguments))
    return encode(jsonable(arguments)) if "NaN" in text or "Infinity" in text else text


def _unknown(member: Member, name: str, task: bool) -> str:
    names = [*member.tools, *(("task",) if task else ())]
    listed = ", ".join(names) or "none"
    return (
        f"unknown tool: {name!r}. The tools: {listed}."
        if name
        else f"a call without a name. The tools: {listed}."
    )


def answer_spec(request: Request, answer: Answer[Any]) -> i.AnswerSpec:
    """Return an answer as the core takes it, its data checked against the request's schema.

    Raises:
        InvalidAnswer: It does not fit.
    """
    if answer.id != request.id:
        raise InvalidAnswer(
            f"the answer is for {answer.id!r}, not {request.id}", places=("$.id: another request",)
        )
    text = text_of(answer)
    if answer.ok:
        check_data(request, None if text is None else from_json(text))
    return i.AnswerSpec(
        request.id,
        answer.ok,
        text,
        None if answer.reason is None else clean(answer.reason),
        None if answer.by is None else clean(answer.by),
    )


def _is_answer(value: object) -> TypeGuard[Answer[Any]]:
    return isinstance(value, Answer)


async def _answer_of(wait_for: Callable[[Request], object], request: Request) -> object:
    """Ask an interpreter; a plain function, which type checkers refuse, is taken too rather than ignored."""
    answer = wait_for(request)
    return await answer if inspect.isawaitable(answer) else answer


async def verify(driver: Driver, request: Request, answer: Answer[Any]) -> None:
    """Ask the host's `verify_answer`, if there is one.

    Raises:
        InvalidAnswer: It refused, or raised.
    """
    ask = driver.crew.verify_answer
    if ask is None:
        return
    try:
        verdict = ask(request, answer)
        if inspect.isawaitable(verdict):
            verdict = await verdict
    except InvalidAnswer:
        raise
    except Exception as error:
        why = f"verify_answer raised {describe(error)}"
        raise InvalidAnswer(f"{why}; the answer to {request.id} is refused", places=(f"$: {why}",)) from error
    if not verdict:
        raise InvalidAnswer(f"verify_answer refused the answer to {request.id}", places=("$: refused",))


async def perform_host(driver: Driver, effect: AskHost, before: int) -> i.Input:
    """Ask a `wait_for`."""
    tree = driver.tree
    if effect.by == "root":
        wait_for = driver.crew.wait_for
    else:
        member = driver.crew.members.get(tree.nodes[effect.by].agent)
        wait_for = None if member is None else member.wait_for
    if wait_for is None:
        return i.HostDone(effect.id)
    request = request_view(tree, tree.requests[effect.request])
    try:
        await driver.pause()
        answer: object = await InContext(_answer_of, wait_for, request)
        if answer is None:
            return i.HostDone(effect.id)
        if not _is_answer(answer):
            raise TypeError(f"wait_for returned {type(answer).__name__}, not an Answer or None")
        spec = answer_spec(request, answer)
        await verify(driver, request, answer)
        return i.HostDone(effect.id, spec)
    except BaseException as error:  # noqa: BLE001  # an interpreter that raises parks the run
        await let_through(error, before, driver.host)
        return i.HostDone(effect.id, None, _short(describe(error)))


async def perform_notify(driver: Driver, effect: Notify, before: int) -> i.Input:
    """Tell `on_pending`."""
    tree = driver.tree
    tell = driver.crew.on_pending
    if tell is None:
        return i.NotifyDone(effect.id)
    try:
        await InContext(tell, request_view(tree, tree.requests[effect.request], parked=True))
    except BaseException as error:  # noqa: BLE001  # the host's own failure; the request stays open
        await let_through(error, before, driver.host)
        return i.NotifyDone(effect.id, _short(describe(error)))
    return i.NotifyDone(effect.id)
