"""What readers of a journal have to remember of its facts to tell what later ones are about.

A fold over the facts alone, and only of what an event says: `apply` costs several times as much. Nodes, wakes and the
memory of calls are the core's own classes, so that its texts about children hold here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import from_json

from overt._frozen import trusted
from overt.core import facts as f
from overt.core.origins import TASK, identify, origins_of, with_agent
from overt.core.plan import load_plan
from overt.core.render import reply_of
from overt.core.tree import Checkpoint, Memory, Node, Once, Tree, Wake
from overt.message import ToolCall

__all__ = ("Asked", "Seen", "SeenCall")

_FLOAT = re.compile(r"\d[.eE]")


class SeenCall:
    """A call of a reply, and what runs for it."""

    __slots__ = ("args", "barred", "base", "child", "edit", "id", "key", "name", "reused")

    def __init__(self, id: str, name: str, args: str) -> None:
        self.id: str = id
        self.name: str = name
        self.args: str = args
        self.edit: str | None = None
        """Arguments a hook or an answer put in place of the model's."""
        self.base: str = ""
        self.key: str = ""
        self.child: str | None = None
        self.reused: bool = False
        self.barred: bool = False
        """Whether it is given an error instead of being entered, in spite of its arguments."""

    def public(self) -> ToolCall:
        """Return the call with the arguments that run; nothing of it is shared."""
        args = self.args if self.edit is None else self.edit
        return trusted(ToolCall, id=self.id, name=self.name, arguments=from_json(args))


class Asked:
    """A request, and the call that waits for its answer."""

    __slots__ = ("call", "expires_at", "guard", "kind", "memory", "once")

    def __init__(self, question: f.Question, call: SeenCall | None, memory: Memory | None) -> None:
        self.kind: str = question.kind
        self.expires_at: int | None = question.expires_at
        self.call: SeenCall | None = call
        self.memory: Memory | None = memory
        self.once: str | None = None
        self.guard: bool = False


class Seen:
    """The fold. One method for each kind of fact that later ones refer to."""

    __slots__ = ("_calls", "_checks", "_edits", "_entered", "_last", "asked", "tree")

    def __init__(self) -> None:
        self.tree: Tree = Tree()
        """Holds the nodes; nothing else of it is kept up."""
        self.tree.nodes["root"] = self.tree.root
        self.asked: dict[str, Asked] = {}
        """Requests by id."""
        self._calls: dict[str, dict[str, SeenCall]] = {}
        """Calls of each handle's present wake, by id."""
        self._last: dict[str, list[SeenCall]] = {}
        """Those of its last reply."""
        self._entered: dict[int, Memory] = {}
        """What is known of the calls that are inside a `reuse` tool, by effect."""
        self._checks: dict[int, tuple[str, ...]] = {}
        """Calls the checks are being asked about, by effect."""
        self._edits: dict[str, dict[str, str | None]] = {}
        """Edits of the calls that were open at a handle's last limit stop: what a rewind goes back to."""

    def call(self, handle: str, id: str) -> SeenCall:
        """Return a call of a handle's present wake."""
        return self._calls[handle][id]

    def wake(self, handle: str) -> tuple[Node, Wake]:
        """Return a handle and its wake, which has to be there."""
        node = self.tree.nodes[handle]
        assert node.wake is not None
        return node, node.wake

    # ----------------------------------------------------------- the run and its handles

    def planned(self, plan: str) -> None:
        """The run has a plan, or another one."""
        tree = self.tree
        tree.plan = load_plan(plan)
        for node in tree.nodes.values():
            node.plan = tree.plan.agents.get(node.agent, node.plan)

    def spawned(self, fact: f.HandleSpawned) -> None:
        """There is a handle more."""
        tree = self.tree
        plan = tree.plan.agents[fact.agent]
        caps = fact.caps or plan.caps
        tree.nodes[fact.handle] = Node(fact.handle, tree.nodes[fact.parent], fact.agent, caps, plan)

    def seeded(self, fact: f.HistorySeeded) -> None:
        """A transcript brings ids of calls along, which are not given out again."""
        node = self.tree.nodes[fact.handle]
        for message in from_json(fact.messages):
            for id in (message.get("call_id"), *(call["id"] for call in message.get("tool_calls") or ())):
                if id and id[:1] == "c" and id[1:].isdecimal() and len(id) < 12:
                    node.call_seq = max(node.call_seq, int(id[1:]))

    def closed(self, fact: f.HandleClosed) -> None:
        """A handle is closed."""
        node = self.tree.nodes[fact.handle]
        node.closed_reason = fact.reason
        node.next_wake = None

    # ----------------------------------------------------------- code that has changed

    def agent_renamed(self, fact: f.AgentRenamed) -> None:
        """Handles of an agent go by another name."""
        for node in self.tree.nodes.values():
            if node.agent == fact.old:
                node.agent = fact.new
                node.plan = self.tree.plan.agents.get(fact.new, node.plan)
            if node.wake is None:
                continue
            origins_of(node.wake).rename_agent(fact.old, fact.new)
            for call in self._calls[node.id].values():
                if call.name == TASK and call.key:
                    call.args = _redirected(call.args, fact)
                    call.edit = None if call.edit is None else _redirected(call.edit, fact)

    def tool_renamed(self, fact: f.ToolRenamed) -> None:
        """Calls of a wake to a tool are calls to one of another name."""
        _, wake = self.wake(fact.handle)
        origins_of(wake).rename_tool(fact.old, fact.new)
        for call in self._calls[fact.handle].values():
            call.name = fact.new if call.name == fact.old else call.name
        for memory in wake.memory.values():
            memory.tool = fact.new if memory.tool == fact.old else memory.tool

    def arguments_upgraded(self, fact: f.ArgumentsUpgraded) -> None:
        """Arguments of a wake's calls have another form."""
        _, wake = self.wake(fact.handle)
        before, after = fact.before, fact.after
        known = any(m.tool == fact.tool and m.args == after for m in wake.memory.values())
        origins_of(wake).upgrade(fact.tool, before, after, known=known)
        for call in self._calls[fact.handle].values():
            if call.name == fact.tool:
                call.args = after if call.args == before else call.args
                call.edit = after if call.edit == before else call.edit
        for memory in wake.memory.values():
            if memory.tool == fact.tool and memory.edit == before:
                memory.edit = after

    def accepted(self, fact: f.DriftAccepted) -> None:
        """Calls that do not fit are given an error."""
        for call in self._last.get(fact.handle, ()):
            if fact.drift in ("tool", "arguments") and (call.name == fact.tool or call.id == fact.call):
                call.barred = call.child is None

    # ----------------------------------------------------------- wakes

    def queued(self, fact: f.WakeQueued) -> None:
        """A wake waits for a slot."""
        self.tree.nodes[fact.handle].next_wake = (fact.prompt, fact.closes)

    def began(self, handle: str, prompt: str, *, closes: bool) -> Wake:
        """A handle has its next wake."""
        node = self.tree.nodes[handle]
        node.next_wake = None
        node.wakes += 1
        wake = node.wake = Wake(node.wakes, prompt, closes)
        self._calls[handle] = {}
        self._last[handle] = []
        self._edits[handle] = {}
        return wake

    def dropped(self, fact: f.WakeDropped) -> bool:
        """A wake will not start; say whether it had not begun before."""
        queued = self.tree.nodes[fact.handle].next_wake
        if queued is None:
            return False
        self.began(fact.handle, queued[0], closes=queued[1]).status = fact.status
        return True

    def settled(self, fact: f.WakeSettled) -> None:
        """A wake ended."""
        node, wake = self.wake(fact.handle)
        node.next_wake = None
        wake.status = fact.status
        wake.limit, wake.limit_at, wake.limit_cap = fact.limit, fact.at, fact.cap
        wake.error, wake.reason, wake.drop = fact.error, fact.reason, fact.drop
        if fact.status == "incomplete":
            wake.checkpoint = Checkpoint(0, dict(wake.occurrences), text=wake.text, output=wake.output)
            self._edits[fact.handle] = {call.id: call.edit for call in self._last[fact.handle]}

    def reopened(self, handle: str) -> None:
        """A stopped wake goes on."""
        _, wake = self.wake(handle)
        if wake.drop:
            for call in self._last[handle]:
                if call.key:
                    wake.occurrences[call.base] -= 1
            self._last[handle] = []
        wake.retries = 0
        wake.status = wake.limit = wake.limit_at = wake.limit_cap = wake.error = None
        wake.drop = False

    def rewound(self, handle: str) -> Wake:
        """A wake begins another attempt."""
        _, wake = self.wake(handle)
        wake.attempt += 1
        wake.turns = wake.retries = 0
        wake.occurrences = dict(wake.checkpoint.occurrences)
        wake.text, wake.output = wake.checkpoint.text, wake.checkpoint.output
        wake.verdicts = []
        self._last[handle] = []
        for id, edit in self._edits[handle].items():
            call = self._calls[handle][id]
            memory = wake.memory.get(call.key)
            call.edit = edit if memory is None or memory.edit is None else memory.edit
        return wake

    # ----------------------------------------------------------- turns and calls

    def failed(self, fact: f.ModelFailed) -> None:
        """A model call failed; what was charged for it counts."""
        tokens = fact.tokens
        if tokens is not None:
            for a in self.wake(fact.handle)[0].chain:
                a.total.tokens += tokens.total or tokens.input + tokens.output

    def retried(self, handle: str) -> int:
        """A failed call is to be made again; return which retry it is."""
        wake = self.wake(handle)[1]
        wake.retries += 1
        return wake.retries

    def replied(self, fact: f.ModelReplied, total: int) -> tuple[Wake, tuple[ToolCall, ...]]:
        """A model has replied, at a price of so many tokens; return its calls as the transcript has them."""
        handle = fact.handle
        node, wake = self.wake(handle)
        node.turns += 1
        wake.turns += 1
        wake.retries = 0
        wake.text = fact.text
        wake.output = fact.output
        if total:
            for a in node.chain:
                a.total.tokens += total
        last = self._last[handle] = []
        public: list[ToolCall] = []
        for spec in fact.calls:
            node.call_seq += 1
            call = SeenCall(f"c{node.call_seq}", spec.name, spec.raw)
            public.append(call.public())
            self._calls[handle][call.id] = call
            last.append(call)
            if spec.error is None:
                if spec.args is not None:
                    call.args = spec.args
                if fact.output is None:
                    _identify(node, wake, call)
                    if fact.ruled and spec.ruling is not None:
                        call.edit = spec.ruling.edit
        return wake, tuple(public)

    def checking(self, fact: f.ChecksAsked) -> None:
        """The checks are asked about calls."""
        self._checks[fact.effect] = fact.calls

    def checked(self, fact: f.ChecksDone) -> None:
        """The checks have been asked."""
        for id, ruling in zip(self._checks.pop(fact.effect), fact.rulings, strict=True):
            if ruling.edit is not None:
                self.call(fact.handle, id).edit = ruling.edit

    def judged(self, fact: f.Judged) -> None:
        """The gate has judged."""
        _, wake = self.wake(fact.handle)
        wake.verdicts.append((fact.ok, fact.reason, fact.number))
        if not fact.ok:
            wake.output = None

    def entered(self, fact: f.CallEntered, call: SeenCall) -> None:
        """A tool is about to be entered."""
        node, wake = self.wake(fact.handle)
        if node.plan is not None and node.plan.tools.get(call.name) == "reuse":
            memory = self._entered[fact.effect] = wake.memory[call.key]
            memory.unsettled = True

    def lost(self, fact: f.EffectLost) -> None:
        """An effect ended without an outcome."""
        self._checks.pop(fact.effect, None)
        memory = self._entered.pop(fact.effect, None)
        if memory is not None and fact.asked:
            memory.unsettled = False

    def returned(self, fact: f.CallReturned, call: SeenCall) -> str:
        """A call has its result; return its output."""
        self._entered.pop(fact.effect, None)
        memory = self.memory(fact.handle, call)
        output = fact.output
        if fact.given and memory is not None and memory.reply is not None:
            output = memory.reply
        if memory is not None and not call.barred:
            _remember(memory, output, is_error=fact.is_error, metadata=fact.metadata)
        return output

    def memory(self, handle: str, call: SeenCall) -> Memory | None:
        """Return what is known of a call over all attempts; `None` of one that cannot be entered."""
        return self.wake(handle)[1].memory.get(call.key)

    def block(self, handle: str, call: str, label: str, *, done: bool) -> None:
        """A `once` block is about to run, or has its outcome."""
        memory = self.memory(handle, self.call(handle, call))
        assert memory is not None
        if memory.once is None:
            memory.once = {}
        once = memory.once[label] = Once()
        once.done = done

    # ----------------------------------------------------------- requests

    def call_asked(self, fact: f.CallAsked) -> None:
        """A call asks."""
        call = self.call(fact.handle, fact.call)
        memory = self.memory(fact.handle, call)
        self._entered.pop(fact.effect, None)
        asked = self.asked[fact.request] = Asked(fact.question, call, memory)
        asked.once, asked.guard = fact.once, fact.guard
        if memory is None:
            return
        if fact.guard:
            memory.edit = memory.reply = None
        elif asked.kind != "in_doubt":
            memory.unsettled = False

    def wake_asked(self, fact: f.WakeAsked) -> None:
        """A wake asks, not a call of it."""
        self.asked[fact.request] = Asked(fact.question, None, None)

    def answered(self, fact: f.AnswerGiven, data: JsonValue) -> Asked:
        """A request has its answer, with this data; return the request."""
        asked = self.asked[fact.request]
        if asked.kind == "in_doubt" and fact.ok and asked.memory is not None and isinstance(data, dict):
            _resolve(asked.memory, asked.once, data)
        if fact.ok and fact.args is not None and asked.call is not None and asked.memory is not None:
            call = asked.call
            if fact.args != (call.args if call.edit is None else call.edit):
                asked.memory.edit = call.edit = fact.args
        elif fact.ok and asked.guard and asked.memory is not None:
            asked.memory.reply = reply_of(data)
        return asked


def _identify(node: Node, wake: Wake, call: SeenCall) -> None:
    """Find what earlier attempts left of a call: that of the same tool, arguments and occurrence."""
    delegates = node.plan is not None and bool(node.plan.team)
    call.base, call.key = identify(wake, call.name, call.args, _key, delegates=delegates)
    memory = wake.memory.get(call.key)
    if memory is None:
        wake.memory[call.key] = Memory(call.key, call.name, call.args)
    else:
        call.edit = memory.edit


def _key(name: str, args: str, occurrence: int) -> str:
    """Return what a call's key stands for here; the digest of it would say no more."""
    return f"{name}\0{_whole(args) if _FLOAT.search(args) else args}\0{occurrence}"


def _redirected(args: str, fact: f.AgentRenamed) -> str:
    return with_agent(args, fact.new) if json.loads(args).get("agent") == fact.old else args


def _whole(args: str) -> str:
    """Return canonical arguments with `1.0` written as `1`: to a call's key they are one number."""
    value: object = json.loads(args, parse_float=lambda digits: _number(float(digits)))
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value


def _remember(memory: Memory, output: str, *, is_error: bool, metadata: str | None) -> None:
    memory.unsettled = False
    memory.output, memory.is_error, memory.metadata = output, is_error, metadata


def _resolve(memory: Memory, label: str | None, data: Mapping[str, JsonValue]) -> None:
    """Somebody has said what became of a call, or a `once` block of it, that was left without an outcome."""
    outcome, output = data["outcome"], data.get("output")
    if label is not None:
        assert memory.once is not None
        if outcome == "retry":
            del memory.once[label]
        else:
            memory.once[label].done = True
        return
    memory.unsettled = False
    if outcome != "retry":
        text = "" if output is None else output
        if not isinstance(text, str):
            text = json.dumps(text, separators=(",", ":"), ensure_ascii=False)
        metadata = data.get("metadata")
        _remember(
            memory,
            text,
            is_error=outcome == "failed",
            metadata=None
            if metadata is None
            else json.dumps(metadata, separators=(",", ":"), ensure_ascii=False),
        )
