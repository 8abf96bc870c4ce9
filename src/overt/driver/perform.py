"""Performing what is not a tool: models, interpreters, notifications."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from pydantic import JsonValue
from pydantic_core import from_json

from overt._text import clean, told
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.budget import wall_left
from overt.core.delegation import offers_delegates
from overt.core.effects import RESOLVER, AskHost, CallModel, Notify
from overt.core.tree import Node
from overt.core.views import request_view
from overt.driver.answers import check_data, text_of
from overt.driver.asking import Failed, call_hook, message_of, short
from overt.driver.buying import charge_of, cost_of, retries, wait_before
from overt.driver.context import InContext, describe, let_through
from overt.driver.metering import measure
from overt.driver.reply import read_reply, tokens_of
from overt.driver.rulings import ToCheck, rule_calls
from overt.driver.shown import shown_to
from overt.driver.streaming import generate
from overt.errors import DefinitionError, InvalidAnswer, ModelError, StoreError
from overt.hooks import AfterLLM
from overt.message import Message, Model, ModelRequest, ModelResponse, SystemMessage, ToolSpec, Usage
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
    model: Model | None = None
    # A scripted model never waits; without this a run of such turns would hold the event loop and hear no cancel.
    await driver.pause()
    try:
        if member is None:
            raise ModelError(f"no agent {node.agent!r} was given", type="SpecDrift")
        model = driver.models.get(node.id) or member.model
        try:
            system = member.system()
        except BaseException as error:  # noqa: BLE001  # the agent's own function, not the model
            await let_through(error, before, driver.host)
            return i.ModelUnsent(
                effect.id, f.ErrorSpec(type(error).__name__, message_of(driver, error), "runtime")
            )
        hooks = member.hooks
        if hooks is not None and hooks.before_llm is not None:
            from overt.driver.rewriting import rewrite  # loaded by the first run that has such a hook

            await rewrite(driver, member, node, effect, model.name, before)
            if effect.id not in driver.tree.open:
                return i.ModelLost(effect.id, f.ErrorSpec("Cancelled", "", "model"))
        request = _request(driver, member, node, effect, model, system)
        async with driver.gate:
            if effect.id not in driver.tree.open:
                # It was closed while this waited, or in the moment the place was handed over.
                return i.ModelLost(effect.id, f.ErrorSpec("Cancelled", "", "model"))
            # Waiting for a place among the calls at once is no time of the model's.
            since = driver.clock.monotonic() if member.on_metric is not None else 0.0
            try:
                if driver.audience:
                    response = await InContext(generate, driver, node.id, model, request, before)
                else:
                    response = await InContext(model.generate, request)
            except BaseException:
                if member.on_metric is not None:
                    measure(driver, member, node, "llm", model.name, "error", since)
                raise
        if member.on_metric is not None:
            usage = getattr(response, "usage", None)
            measure(driver, member, node, "llm", model.name, "ok", since, usage=usage)
        native = request.output_schema is not None
        done = read_reply(member, node, effect, response, native=native, checks=_checks(member, node))
        if not done.model:
            done = done._replace(model=clean(str(model.name)))
        if driver.crew.prices is not None:
            cost = cost_of(driver, model, response.usage, done.model)
            done = done._replace(cost=cost, charge=charge_of(driver, model, effect, cost))
    except Failed as failed:
        return i.ModelUnsent(effect.id, failed.error)
    except ModelError as error:
        try:
            return _lost(driver, node, effect, model, _model_error(driver, error), error.usage)
        except (TypeError, AttributeError) as wrong:  # a host's model that fills in what is none
            return _lost(driver, node, effect, model, _foreign_error(driver, wrong), None)
    except DefinitionError as error:
        # What cannot be sent is no call: nobody has charged for it.
        return i.ModelUnsent(effect.id, f.ErrorSpec(type(error).__name__, message_of(driver, error), "model"))
    except StoreError:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever a model raises is a failed call
        await let_through(error, before, driver.host)
        return _lost(driver, node, effect, model, _foreign_error(driver, error), None)
    if hooks is not None or member.guards:
        return await _look_at(driver, member, node, done, response, model.name, before)
    return done


def _lost(
    driver: Driver,
    node: Node,
    effect: CallModel,
    model: Model | None,
    error: f.ErrorSpec,
    usage: Usage | None,
) -> i.ModelLost:
    """Return what the rules are told of a failed call: what it cost, and when to make it again."""
    if model is None:
        return i.ModelLost(effect.id, error)
    cost = cost_of(driver, model, usage, "")
    return i.ModelLost(
        effect.id,
        error,
        wait_before(driver, node, error),
        tokens_of(usage),
        cost,
        clean(str(model.name)),
        charge_of(driver, model, effect, cost),
    )


def _checks(member: Member, node: Node) -> bool:
    """Whether hook and guardrails need not wait, so that they are asked before the reply is recorded."""
    # What an earlier attempt was told is known only once the calls have their keys.
    return member.at_once and node.checks and node.wake is not None and node.wake.attempt == 1


async def _look_at(
    driver: Driver,
    member: Member,
    node: Node,
    done: i.ModelDone,
    response: ModelResponse,
    model: str,
    before: int,
) -> i.ModelDone:
    """Let hooks and guardrails that need not wait see a reply before it is recorded."""
    wake = node.wake
    assert wake is not None
    hooks = member.hooks
    turn = wake.turns + 1
    try:
        if hooks is not None and hooks.after_llm is not None:
            event = AfterLLM(handle=node.id, turn=turn, model=model, response=response)
            await call_hook(driver, hooks.after_llm, event, (), before)
        if not done.ruled:
            return done
        to_check: list[ToCheck] = []
        places: list[int] = []
        for at, call in enumerate(done.calls):
            if call.error is None:
                args = call.raw if call.args is None else call.args
                to_check.append(ToCheck(f"c{node.call_seq + 1 + at}", call.name, args, True))
                places.append(at)
        rulings = await rule_calls(driver, member, node, turn, to_check, before)
    except Failed as failed:
        return done._replace(error=failed.error, ruled=False)
    if not any(rulings):
        return done
    ruled = dict(zip(places, rulings, strict=True))
    calls = tuple(
        call if (ruling := ruled.get(at)) is None else call._replace(ruling=ruling)
        for at, call in enumerate(done.calls)
    )
    return done._replace(calls=calls)


def _foreign_error(driver: Driver, error: BaseException) -> f.ErrorSpec:
    """A provider library's own exception, let through by a host's model."""
    kind = type(error).__name__
    found: object = None
    with suppress(Exception):  # its attributes may be properties that raise
        found = getattr(error, "status_code", None) or getattr(
            getattr(error, "response", None), "status_code", None
        )
    status = found if type(found) is int else None
    refused = denied(kind, status)
    told_of = message_of(driver, error) if refused is None else refused
    return f.ErrorSpec(kind, told_of, "model", retries(status, error), status)


def _model_error(driver: Driver, error: ModelError) -> f.ErrorSpec:
    kind, status = redact(driver.crew.redact(error.type)), error.status_code
    request_id = None if error.request_id is None else redact(driver.crew.redact(error.request_id))
    refused = denied(kind, status)
    if refused is not None:
        return f.ErrorSpec(kind, refused, "model", error.retryable, status, request_id=request_id)
    detail = None if error.detail is None else redact(driver.crew.redact(error.detail))
    wait = error.retry_after
    if wait is not None and not (isfinite(wait) and wait >= 0):
        wait = None
    return f.ErrorSpec(
        kind, message_of(driver, error), "model", error.retryable, status, detail, wait, request_id
    )


def _request(
    driver: Driver, member: Member, node: Node, effect: CallModel, model: Model, system: SystemMessage | None
) -> ModelRequest:
    messages: tuple[Message, ...] = shown_to(driver, node)
    if system is not None:
        messages = (system, *messages)
    settings = member.settings
    cap = settings.max_output_tokens
    if effect.left is not None:
        cap = effect.left if cap is None else min(cap, effect.left)
    schema = None
    tools = _tools(member, node)
    if member.output is not None:
        if getattr(model, "structured_output", False):
            schema = member.output.schema
        else:
            tools = member.with_output(tools, member.output.spec)
    return ModelRequest(
        messages=messages,
        tools=tools,
        agent=node.agent,
        handle=node.id,
        model=model.name,
        settings=settings,
        output_schema=schema,
        max_output_tokens=cap,
        deadline=_deadline(driver, node) if driver.tree.has_wall else None,
    )


def _tools(member: Member, node: Node) -> tuple[ToolSpec, ...]:
    """What is offered: all the agent has while there is room below, and only what a hook left of it."""
    specs = member.specs
    if (member.task is not None or member.delegates) and offers_delegates(node):
        specs = member.specs_with_task
    offers = None if node.wake is None else node.wake.offers
    return specs if offers is None else tuple(spec for spec in specs if spec.name in offers)


def _deadline(driver: Driver, node: Node) -> datetime | None:
    left = wall_left(driver.tree, node)
    return None if left is None else driver.clock.now() + timedelta(microseconds=max(left, 0))


def answer_spec(driver: Driver, request: Request, answer: Answer[Any]) -> i.AnswerSpec:
    """Return an answer as the core takes it, its data checked against the request's schema.

    Arguments in place of those a guardrail asked about are validated here.

    Raises:
        InvalidAnswer: It does not fit.
    """
    if answer.id != request.id:
        raise InvalidAnswer(
            f"the answer is for {answer.id!r}, not {request.id}", places=("$.id: another request",)
        )
    text = text_of(answer)
    args = None
    if answer.ok:
        data: JsonValue = None if text is None else from_json(text)
        _check(driver, request, data)
        if type(data) is dict and len(data) == 1 and "arguments" in data:
            args = _changed(driver, request, data["arguments"])
    return i.AnswerSpec(
        request.id,
        answer.ok,
        text,
        None if answer.reason is None else clean(answer.reason),
        None if answer.by is None else clean(answer.by),
        args,
    )


def _check(driver: Driver, request: Request, data: JsonValue) -> None:
    try:
        check_data(request, data)
    except InvalidAnswer as error:
        state = driver.tree.requests[request.id]
        if state.guard:
            forms = '{"arguments": {…}} runs the call with others, {"output": …} replies in its place'
            raise InvalidAnswer(
                f"{error}. No data approves it as shown; {forms}", places=error.places
            ) from None
        if state.about in ("prompt", "output"):
            raise InvalidAnswer(
                f"the answer to {request.id} carries data, and approving a {state.about} takes none",
                places=error.places,
            ) from None
        raise


def _changed(driver: Driver, request: Request, arguments: object) -> str | None:
    """Validate the arguments an answer puts in place of those that were shown; `None` where no guardrail asked."""
    tree = driver.tree
    state = tree.requests[request.id]
    if not state.guard or not isinstance(arguments, dict):
        return None
    node = tree.nodes[state.handle]
    name = str(cast("dict[str, object]", request.data["call"])["tool"])
    member = driver.crew.members.get(node.agent)
    tool = None if member is None else member.tool(name)
    if tool is None:
        raise InvalidAnswer(
            f"the answer to {request.id} changes the arguments of {name}, which this process does not have",
            places=("$.arguments: no such tool",),
        )
    try:
        return tool.canonical(cast("dict[str, object]", arguments))
    except (ValueError, TypeError) as error:
        raise InvalidAnswer(
            f"the arguments in the answer to {request.id} do not fit {name}: {told(error)}",
            places=(f"$.arguments: {told(error)}",),
        ) from error


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
    """Ask a `wait_for`, or the tool in doubt."""
    tree = driver.tree
    if effect.by == RESOLVER:
        from overt.driver.resolving import perform_resolve  # loaded with the first call in doubt that has one

        return await perform_resolve(driver, effect, before)
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
        spec = answer_spec(driver, request, answer)
        await verify(driver, request, answer)
        return i.HostDone(effect.id, spec)
    except BaseException as error:  # noqa: BLE001  # an interpreter that raises parks the run
        await let_through(error, before, driver.host)
        return i.HostDone(effect.id, None, short(redact(driver.crew.redact(describe(error)))))


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
        return i.NotifyDone(effect.id, short(redact(driver.crew.redact(describe(error)))))
    return i.NotifyDone(effect.id)
