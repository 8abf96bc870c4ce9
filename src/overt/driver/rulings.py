"""What hook and guardrails say of calls, prompts and final answers, as the core takes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json

from overt._canonical import encode
from overt._frozen import trusted
from overt._schema import schema_of
from overt._text import clean, told
from overt._times import micros
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CheckCalls, CheckText
from overt.core.tree import Node
from overt.driver.asking import Failed, Rule, ask_rules, call_hook, result_of
from overt.driver.context import let_through
from overt.guardrail import Allow, Ask, Deny, GuardrailEvent, OutputEvent, PromptEvent, Ruling, name_of
from overt.hooks import BeforeTool, ToolOverride
from overt.message import ToolCall

if TYPE_CHECKING:
    from overt.driver.crew import Member
    from overt.driver.loop import Driver

__all__ = ("ToCheck", "perform_checks", "perform_text", "rule_calls")

REPLACES: dict[str, JsonValue] = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "properties": {"arguments": {"type": "object", "description": "run with these instead"}},
            "required": ["arguments"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"output": {"description": "the result; the tool is not entered"}},
            "required": ["output"],
            "additionalProperties": False,
        },
    ]
}
"""What an answer about a call may carry."""
REPLACES_TEXT = encode(REPLACES)
NOTHING = encode({"type": "null"})
"""Data that an answer about a prompt or a final answer carries: what it would mean is not said anywhere."""


class ToCheck(NamedTuple):
    """A call that is to be ruled on."""

    id: str
    name: str
    args: str
    """Canonical arguments: the model's, or those put in their place already."""
    hook: bool
    """Whether `before_tool` is to see it."""


async def rule_calls(
    driver: Driver, member: Member, node: Node, turn: int, calls: Sequence[ToCheck], before: int
) -> list[f.RulingSpec | None]:
    """Ask hook and guardrails about calls; `None` is a call everything allows.

    Raises:
        Failed: The hook failed.
    """
    found: list[f.RulingSpec | None] = []
    asked: list[tuple[Rule, object]] = []
    guards = member.guards
    run_id, handle, agent, deps = driver.tree.run_id, node.id, node.agent, driver.crew.deps
    hooked = member.hooks is not None and member.hooks.before_tool is not None
    for call in calls:
        ruling = None
        args = call.args
        if hooked and call.hook:
            ruling = await _hooked(driver, member, node, turn, call, before)
            if ruling is not None and ruling.edit is not None:
                args = ruling.edit
        found.append(ruling)
        if ruling is not None and ruling.output is not None:
            continue
        for rule in guards:
            # An event each: what one rule does to the arguments it was shown, no other sees.
            shown = trusted(ToolCall, id=call.id, name=call.name, arguments=from_json(args))
            asked.append(
                (rule, GuardrailEvent(run_id=run_id, handle=handle, agent=agent, call=shown, deps=deps))
            )
    if not asked:
        return found
    all_said = await ask_rules(driver, asked, before)
    if all(isinstance(one, Allow) for one in all_said):
        return found
    rulings = iter(all_said)
    for index, call in enumerate(calls):
        ruling = found[index]
        if ruling is not None and ruling.output is not None:
            continue
        said = [next(rulings) for _ in guards]
        if all(isinstance(one, Allow) for one in said):
            continue
        args = call.args if ruling is None or ruling.edit is None else ruling.edit
        data = {"call": {"tool": call.name, "arguments": from_json(args)}}
        spec = _combined(driver, guards, said, data, call_schema=True)
        found[index] = spec if ruling is None else spec._replace(edit=ruling.edit)
    return found


async def _hooked(
    driver: Driver, member: Member, node: Node, turn: int, call: ToCheck, before: int
) -> f.RulingSpec | None:
    assert member.hooks is not None
    assert member.hooks.before_tool is not None
    shown = trusted(ToolCall, id=call.id, name=call.name, arguments=from_json(call.args))
    event = BeforeTool(handle=node.id, turn=turn, call=shown)
    override: ToolOverride | None = await call_hook(
        driver, member.hooks.before_tool, event, (ToolOverride,), before
    )
    if override is None:
        return None
    result = result_of("before_tool", override)
    if result is not None:
        redact = driver.crew.redact
        metadata = redact(encode({**result.metadata, "overridden": "before_tool"}))
        return f.RulingSpec(
            "allow", output=redact(result.output), is_error=result.is_error, metadata=metadata
        )
    if override.arguments is None:
        return None
    tool = member.tool(call.name)
    try:
        args = call.args if tool is None else tool.canonical(dict(override.arguments))
    except (ValueError, TypeError) as error:
        raise Failed(
            f.ErrorSpec("ArgumentsInvalid", f"before_tool changed {call.name}: {told(error)}", "hook")
        ) from error
    return None if args == call.args else f.RulingSpec("allow", edit=args)


def _combined(
    driver: Driver, rules: Sequence[Rule], said: Sequence[Ruling], data: dict[str, Any], *, call_schema: bool
) -> f.RulingSpec:
    """Deny beats Ask beats Allow; several Asks are one question."""
    said = [Deny(driver.crew.redact(one.reason)) if isinstance(one, Deny) else one for one in said]
    each = tuple(_said(rule, ruling) for rule, ruling in zip(rules, said, strict=True))
    denials = [one for one in said if isinstance(one, Deny)]
    if denials:
        return f.RulingSpec("deny", clean("; ".join(one.reason for one in denials)), None, each)
    asks = [one for one in said if isinstance(one, Ask)]
    prompts = dict.fromkeys(clean(one.prompt) for one in asks)
    times = [one.expires_at for one in asks if one.expires_at is not None]
    types = [one.answer_type for one in asks if one.answer_type is not None]
    question = f.Question(
        clean(asks[0].kind),
        "\n".join(prompts),
        None,
        encode(data),
        _schema(types, call_schema=call_schema),
        micros(min(times)) if times else None,
    )
    return f.RulingSpec("ask", "", question, each)


def _said(rule: Rule, ruling: Ruling) -> f.Said:
    match ruling:
        case Deny(reason):
            return f.Said(name_of(rule), "deny", clean(reason))
        case Ask():
            return f.Said(name_of(rule), "ask", clean(ruling.prompt))
        case _:
            return f.Said(name_of(rule), "allow")


def _schema(types: Sequence[object], *, call_schema: bool) -> str | None:
    """Return what the data of an accepting answer has to fit."""
    if not types:
        return REPLACES_TEXT if call_schema else NOTHING
    # Several types would be several answers; the first rule's is the one that is filled in.
    wanted = schema_of(types[0])
    if not call_schema:
        return encode(wanted)
    shared = wanted.pop("$defs", None)
    replaces = REPLACES["anyOf"]
    assert isinstance(replaces, list)
    either: dict[str, JsonValue] = {"anyOf": [wanted, *replaces[1:]]}
    if shared is not None:
        either["$defs"] = shared
    return encode(either)


async def perform_checks(driver: Driver, effect: CheckCalls, before: int) -> i.Input:
    """Ask hook and guardrails about calls of the batch."""
    node = driver.tree.nodes[effect.handle]
    wake = node.wake
    assert wake is not None
    member = driver.crew.members.get(node.agent)
    allow = f.RulingSpec("allow")
    if member is None:
        return i.ChecksRuled(effect.id, tuple(_nobody(node) for _ in effect.calls))
    calls = [ToCheck(c.id, c.name, c.run_args, not c.seen) for c in (wake.by_id[id] for id in effect.calls)]
    try:
        rulings = await rule_calls(driver, member, node, wake.turns, calls, before)
    except Failed as failed:
        return i.ChecksRuled(effect.id, error=failed.error)
    return i.ChecksRuled(effect.id, tuple(allow if ruling is None else ruling for ruling in rulings))


def _nobody(node: Node) -> f.RulingSpec:
    return f.RulingSpec("deny", f"no agent {node.agent!r} was given, and so none of its rules")


async def perform_text(driver: Driver, effect: CheckText, before: int) -> i.Input:
    """Ask guardrails about the prompt of a wake or its final answer."""
    node = driver.tree.nodes[effect.handle]
    wake = node.wake
    assert wake is not None
    member = driver.crew.members.get(node.agent)
    if member is None:
        return i.TextRuled(effect.id, _nobody(node))
    rules = member.prompt_guards if effect.what == "prompt" else member.output_guards
    asked: list[tuple[Rule, object]] = []
    run_id, deps = driver.tree.run_id, driver.crew.deps
    text = (
        (wake.text if wake.output is None else wake.output)
        if effect.what == "output"
        else ("" if wake.user is None else wake.user.text)
    )
    try:
        for rule in rules:
            event: object
            if effect.what == "prompt":
                event = PromptEvent(run_id=run_id, handle=node.id, agent=node.agent, prompt=text, deps=deps)
            else:
                try:
                    output = member.load(wake.output, wake.text)
                except (ValueError, TypeError) as error:
                    unread = f"it cannot be read as the output type any more: {told(error)}"
                    return i.TextRuled(effect.id, f.RulingSpec("deny", unread))
                event = OutputEvent(
                    run_id=run_id, handle=node.id, agent=node.agent, text=text, output=output, deps=deps
                )
            asked.append((rule, event))
        said = await ask_rules(driver, asked, before)
    except BaseException as error:
        await let_through(error, before, driver.host)
        raise
    if all(isinstance(one, Allow) for one in said):
        return i.TextRuled(effect.id, f.RulingSpec("allow"))
    data: dict[str, Any] = {
        effect.what: json.loads(text) if wake.output is not None and effect.what == "output" else text
    }
    return i.TextRuled(effect.id, _combined(driver, rules, said, data, call_schema=False))
