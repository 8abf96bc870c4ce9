"""The core without a driver: inputs in, facts out, and the invariants that hold after every one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.apply import apply_all
from overt.core.budget import slots
from overt.core.decide import decide
from overt.core.effects import RESOLVER, AskHost, CallModel, CallTool, Notify
from overt.core.ledger import ZERO
from overt.core.plan import AgentPlan, Plan
from overt.core.render import committed
from overt.core.tree import Call, CallState, Node, Tree
from overt.core.views import result_of
from overt.journal.codec import decode, record
from overt.message import AssistantMessage, ToolMessage
from overt.result import State, TaskResult

TOOLS = {"t": "rerun", "u": "reuse", "ask": "rerun"}


def plan(**options: Any) -> Plan:
    """Three agents, cyclic enough to nest; every tool kind."""
    caps = options.pop("caps", {})
    wait_for = options.pop("hosted", ())
    policed = options.pop("policed", {})
    resolves = options.pop("resolves", ())
    called = options.pop("called", {})
    tools = options.pop("tools", TOOLS)
    teams = {"a": ("b", "c"), "b": ("c",), "c": ()}
    agents = {
        called.get(name, name): AgentPlan(
            called.get(name, name),
            tuple(sorted(called.get(one, one) for one in team)),
            dict(tools),
            caps.get(name, f.Caps()),
            name in wait_for,
            resolves=resolves,
            **policed,
        )
        for name, team in teams.items()
    }
    return Plan(agents, **options)


class Sim:
    """A run whose effects are performed by the test."""

    def __init__(self, plan: Plan, *, policy: str = "rewind", agent: str = "a", checked: bool = True) -> None:
        self.tree = Tree()
        self.log: list[tuple[int, list[f.Fact]]] = []
        self.now = 1_000_000
        self.checked = checked
        self.shadow = Tree()
        self.unsettled: set[tuple[str, str]] = set()
        self.freed: set[str] = set()
        self.looked_at = 0
        self.looked_up: set[str] = set()
        self.high: dict[str, tuple[int, int, int]] = {}
        self.policed_to = 0
        self.cleared: set[tuple[str, str]] = set()
        self.declined: set[str] = set()
        self.unanswered: set[str] = set()
        self.agreed_texts: set[tuple[str, str]] = set()
        self.asked_about: dict[int, tuple[str, ...]] = {}
        self.call_seq: dict[str, int] = {}
        self.step(i.Open("run", agent, policy, plan.dump()))

    def step(self, inp: i.Input) -> list[f.Fact]:
        self.now += 1_000
        facts = decide(self.tree, inp, self.now)
        if facts:
            self.log.append((self.now, facts))
            through = decode("run", record_text(self.tree.seq - len(facts) + 1, self.now, facts))
            assert through == (self.now, facts), "a fact does not survive its encoding"
            apply_all(self.shadow, through[1], through[0])
        if self.checked:
            check(self)
        return facts

    def begin(self, prompt: str = "go", *, agent: str = "a", closes: bool = True) -> None:
        self.step(i.Spawn("root", agent))
        self.step(i.Wake(f"root/{agent}.1", prompt, closes))

    # ---------------------------------------------------------- performing

    def effects(self, kind: type, handle: str | None = None) -> list[Any]:
        return [e for e in self.tree.open.values() if isinstance(e, kind) and handle in (None, e.handle)]

    def reply(
        self, text: str = "", *calls: f.CallSpec, handle: str | None = None, **options: Any
    ) -> list[f.Fact]:
        effect = self.effects(CallModel, handle)[0]
        options.setdefault("tokens", f.Tokens(50, 50))
        return self.step(i.ModelDone(effect.id, text, calls, **options))

    def tool(self, name: str, handle: str | None = None) -> CallTool:
        effects: list[CallTool] = self.effects(CallTool, handle)
        for effect in effects:
            if self.call_of(effect).name == name:
                return effect
        raise AssertionError(f"no open {name}: {list(self.tree.open.values())}")

    def call_of(self, effect: CallTool) -> Call:
        wake = self.tree.nodes[effect.handle].wake
        assert wake is not None
        return next(c for c in wake.batch or () if c.id == effect.call)

    def answered(self, effect: CallTool) -> int:
        """The questions of a call that have their answers, which is what a tool that asks on gets first."""
        wake = self.tree.nodes[effect.handle].wake
        assert wake is not None
        slots = wake.memory[self.call_of(effect).key].slots
        return next(
            (n for n, r in enumerate(slots) if self.tree.requests[r].status != "answered"), len(slots)
        )

    def ret(self, name: str, output: str = "ok", handle: str | None = None) -> list[f.Fact]:
        return self.step(i.ToolDone(self.tool(name, handle).id, output))

    def ask(
        self, name: str = "ask", prompt: str = "ok?", handle: str | None = None, **fields: Any
    ) -> list[f.Fact]:
        effect = self.tool(name, handle)
        wake = self.tree.nodes[effect.handle].wake
        assert wake is not None
        slot = self.answered(effect)
        return self.step(i.ToolAsked(effect.id, f.Question("approval", prompt, **fields), slot))

    def answer(
        self, request: str | None = None, ok: bool = True, data: str | None = None, policy: str | None = None
    ) -> list[f.Fact]:
        if request is None:
            request = self.open_requests()[0]
        return self.step(i.Deliver((i.AnswerSpec(request, ok, data),), policy))

    def open_requests(self) -> list[str]:
        return [r.id for r in self.tree.requests.values() if r.status == "open"]

    def crash(self) -> None:
        """Lose the process: what is left is the journal."""
        self.tree = fold(self.log)

    def node(self, handle: str) -> Node:
        return self.tree.nodes[handle]

    def result(self, handle: str | None = None, *, live: bool = True) -> TaskResult[Any]:
        node = self.tree.entry if handle is None else self.tree.nodes[handle]
        assert node is not None
        return result_of(self.tree, node, live=live)

    def names(self, facts: Sequence[f.Fact]) -> list[str]:
        return [type(x).__name__ for x in facts]


def record_text(position: int, at: int, facts: list[f.Fact]) -> Any:
    from overt.journal.record import Record

    return Record(position, len(facts), text=record(position, at, facts).text)


def fold(log: Sequence[tuple[int, list[f.Fact]]]) -> Tree:
    tree = Tree()
    for at, facts in log:
        apply_all(tree, facts, at)
    return tree


def call(name: str, args: str = "{}", error: str | None = None) -> f.CallSpec:
    return f.CallSpec(name, args, error=error)


def task(agent: str, prompt: str) -> f.CallSpec:
    return f.CallSpec("task", f'{{"agent":"{agent}","prompt":"{prompt}"}}')


# --------------------------------------------------------------- invariants


def snapshot(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """Everything a tree holds, comparable."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Node) and seen:
        return f"<{value.id}>"
    if isinstance(value, dict):
        return {k: snapshot(v, seen) for k, v in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [snapshot(v, seen) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "__slots__"):
        inner = (*seen, id(value))
        return {name: snapshot(getattr(value, name), inner) for name in value.__slots__}
    return repr(value)


def tree_snapshot(tree: Tree) -> Any:
    whole = {
        name: snapshot(getattr(tree, name), (1,)) for name in tree.__slots__ if name not in ("nodes", "root")
    }
    whole["nodes"] = {
        k: {n: snapshot(getattr(v, n), (1,)) for n in v.__slots__} for k, v in tree.nodes.items()
    }
    return whole


def check(sim: Sim) -> None:
    tree = sim.tree
    assert not tree.nodes or tree_snapshot(tree) == tree_snapshot(sim.shadow), "fold(facts) != live tree"
    if not tree.nodes:
        return
    nodes = list(tree.root.below())
    for node in nodes:
        kids = node.children
        for name in (
            "input",
            "output",
            "tokens",
            "turns",
            "model_calls",
            "tool_calls",
            "unreported",
            "unpriced",
            "cost",
            "priced",
            "written",
        ):
            want = getattr(node.own, name) + sum(getattr(k.total, name) for k in kids)
            assert getattr(node.total, name) == want, f"ledger law: {node.id} {name}"
        reserved = sum(
            e.reserve
            for e in tree.open.values()
            if isinstance(e, CallModel) and node in tree.nodes[e.handle].chain
        )
        assert node.reserved == reserved >= 0, f"reservations of {node.id}: {node.reserved} != {reserved}"
        money = sum(
            (
                e.money or ZERO
                for e in tree.open.values()
                if isinstance(e, CallModel) and node in tree.nodes[e.handle].chain
            ),
            ZERO,
        )
        assert node.money_reserved == money >= 0, f"money reserved by {node.id}"
        assert node.money >= node.total.cost, f"{node.id} spent less of its pool than it cost"
        own = sum((node.unpriced or {}).values())
        assert own == node.own.unpriced, f"calls of {node.id} without a price"
        assert node.bytes_since >= 0, node.id
        caps = node.caps
        if caps.max_tool_calls is not None:
            assert node.total.tool_calls <= caps.max_tool_calls
        if caps.max_cost is not None:
            assert node.money_reserved <= Decimal(caps.max_cost), node.id
        if caps.max_model_calls is not None:
            assert node.total.model_calls <= caps.max_model_calls
        below = list(node.below())
        assert node.active == sum(n.state is State.RUNNING for n in below)
        hosts = sum(isinstance(e, AskHost) and tree.nodes[e.handle] in below for e in tree.open.values())
        assert node.live == node.active + sum(n.queued is not None for n in below) + hosts, node.id
        ids = {n.id for n in below}
        assert node.open_requests == sum(
            r.status == "open" and r.handle in ids for r in tree.requests.values()
        ), node.id
        assert node.running == sum(k.state is State.RUNNING for k in kids) <= slots(node)
        assert list(node.queue) == [k for k in node.queue if k.queued is not None]
        cut = any(n.wake is not None and n.wake.cut for n in nodes)
        assert not (node.queue and node.running < slots(node)) or node.state is State.CLOSED or cut, (
            f"a free slot and a queue under {node.id}"
        )
        _check_wake(sim, node)
        now = (node.total.tokens, node.own.tokens, node.turns)
        before = sim.high.get(node.id, (0, 0, 0))
        assert all(x >= y for x, y in zip(now, before, strict=True)), "a number went down"
        sim.high[node.id] = now
    assert set(tree.expiring) == {
        r.id for r in tree.requests.values() if r.status == "open" and r.question.expires_at is not None
    }
    assert {n.id for n in tree.walled} == {n.id for n in nodes if n.caps.max_wall is not None}
    _check_closed(sim)
    _check_doubt(sim)
    _check_policed(sim)


def _check_doubt(sim: Sim) -> None:
    """A `reuse` call that was entered and left without an outcome is not entered again unasked."""
    for _, facts in sim.log[sim.looked_at :]:
        for fact in facts:
            _check_entry(sim, fact)
            _check_lookup(sim, fact)
    sim.looked_at = len(sim.log)
    sim.unsettled = {
        (n.id, c.id)
        for n in sim.tree.nodes.values()
        if n.wake is not None
        for c in n.wake.batch or ()
        if c.key and n.wake.memory[c.key].unsettled and c.key not in sim.freed
    }


def _check_entry(sim: Sim, fact: f.Fact) -> None:
    if isinstance(fact, f.AnswerGiven):
        request = sim.tree.requests[fact.request]
        sim.unsettled.discard((fact.handle, request.call))
        if request.once is not None:
            # It is entered again for the rest of it: perhaps not at once, perhaps in the next attempt.
            sim.freed.add(request.key)
    elif isinstance(fact, f.CallAsked):
        sim.freed.discard(sim.tree.requests[fact.request].key)
    elif isinstance(fact, f.CallEntered):
        assert (fact.handle, fact.call) not in sim.unsettled, fact
        sim.freed.discard(_key_of(sim, fact) or "")


def _check_lookup(sim: Sim, fact: f.Fact) -> None:
    """A tool that can is asked about its doubt before any host, and once by each process."""
    if isinstance(fact, f.ResumeBegun) and fact.dead:
        sim.looked_up = set()
    elif isinstance(fact, f.HostAsked):
        node, request = sim.node(fact.handle), sim.tree.requests[fact.request]
        assert node.plan is not None
        assert node.wake is not None
        doubt = request.question.kind == "in_doubt"
        can = doubt and node.wake.memory[request.key].tool in node.plan.resolves
        if fact.by == RESOLVER:
            assert can, f"asked about what it cannot know: {fact}"
            assert fact.request not in sim.looked_up, f"asked twice: {fact}"
            sim.looked_up.add(fact.request)
        else:
            assert not can or fact.request in sim.looked_up, f"a host was asked first: {fact}"


def _check_policed(sim: Sim) -> None:
    """A call of a guarded agent is entered only right after a ruling that lets it, and never once it was declined.

    Told from the facts alone, so that it does not depend on what the rules note for themselves.
    """
    tree = sim.tree
    for _, facts in sim.log[sim.policed_to :]:
        for fact in facts:
            if isinstance(fact, f.ChecksAsked):
                sim.asked_about = {**sim.asked_about, fact.effect: fact.calls}
            elif isinstance(fact, f.ChecksDone):
                for call, ruling in zip(sim.asked_about[fact.effect], fact.rulings, strict=True):
                    _rule(sim, fact.handle, call, ruling)
            elif isinstance(fact, f.ModelReplied):
                calls = last_calls(sim, fact)
                sim.call_seq[fact.handle] = sim.call_seq.get(fact.handle, 0) + len(calls)
                if fact.ruled:
                    for call, spec in zip(calls, fact.calls, strict=True):
                        _rule(sim, fact.handle, call, spec.ruling or f.RulingSpec("allow"))
            elif isinstance(fact, f.CallAsked) and fact.guard:
                sim.unanswered.add(tree.requests[fact.request].key)
            elif isinstance(fact, (f.CallEntered, f.Delegated)):
                if tree.nodes[fact.handle].checks:
                    assert (fact.handle, fact.call) in sim.cleared, f"entered without a ruling: {fact}"
                sim.cleared.discard((fact.handle, fact.call))
                key = _key_of(sim, fact)
                assert key not in sim.unanswered, f"entered unanswered: {fact}"
            elif isinstance(fact, f.AnswerGiven):
                request = tree.requests[fact.request]
                sim.cleared.discard((fact.handle, request.call))
                if request.guard:
                    sim.unanswered.discard(request.key)
                    if not fact.ok:
                        sim.declined.add(request.key)
            elif isinstance(fact, f.CallDenied):
                sim.cleared.discard((fact.handle, fact.call))
            _check_judged(sim, fact)
    for node in tree.nodes.values():
        for c in (node.wake.batch or ()) if node.wake is not None else ():
            assert not (c.key in sim.declined and c.state == CallState.ENTERED), (
                f"entered although declined: {c.id}"
            )
    sim.policed_to = len(sim.log)


def _key_of(sim: Sim, fact: f.CallEntered | f.Delegated) -> str | None:
    wake = sim.tree.nodes[fact.handle].wake
    call = None if wake is None else wake.by_id.get(fact.call)
    return None if call is None else call.key


def _check_judged(sim: Sim, fact: f.Fact) -> None:
    """A final answer is a result only once whoever judges it has let this very one pass."""
    if isinstance(fact, (f.ModelReplied, f.Rewound)):
        sim.agreed_texts -= {(fact.handle, "output"), (fact.handle, "gate")}
    elif isinstance(fact, f.TextChecked):
        if fact.ruling.ruling in ("allow", "approved"):
            sim.agreed_texts.add((fact.handle, fact.what))
        else:
            sim.agreed_texts.discard((fact.handle, fact.what))
    elif isinstance(fact, f.Judged) and fact.ok:
        sim.agreed_texts.add((fact.handle, "gate"))
    elif isinstance(fact, f.WakeSettled) and fact.status == "done":
        plan = sim.tree.nodes[fact.handle].plan
        assert plan is not None
        for what, judges in (("output", bool(plan.output_guards)), ("gate", plan.gate is not None)):
            assert not judges or (fact.handle, what) in sim.agreed_texts, f"done unjudged by {what}: {fact}"


def last_calls(sim: Sim, fact: f.ModelReplied) -> list[str]:
    """Ids of the calls of a reply: counted up over the life of the handle."""
    first = sim.call_seq.get(fact.handle, 0) + 1
    return [f"c{first + n}" for n in range(len(fact.calls))]


def _rule(sim: Sim, handle: str, call: str, ruling: f.RulingSpec) -> None:
    if ruling.ruling in ("allow", "approved") and ruling.output is None:
        sim.cleared.add((handle, call))
    else:
        sim.cleared.discard((handle, call))


def _moves(child: Node) -> bool:
    return child.state is not State.SUSPENDED or child.live > 0


def _check_wake(sim: Sim, node: Node) -> None:
    tree = sim.tree
    wake = node.wake
    if node.state is State.RUNNING:
        assert wake is not None
        assert wake.status is None
        busy = (
            wake.model
            or wake.waiting
            or wake.check
            or any(
                c.state in (CallState.ENTERED, CallState.CHECKING)
                or (c.state == CallState.WAITING and _moves(tree.nodes[str(c.child)]))
                for c in wake.batch or ()
            )
        )
        assert busy, f"{node.id} runs and nothing is under way"
        assert all(c.state != CallState.CUT for c in wake.batch or ()), f"{node.id} runs past a call in doubt"
        assert (node.id in tree.ready) is False
    assert (node.id in tree.cut) == (wake is not None and wake.cut and node.state is not State.CLOSED), (
        node.id
    )
    if node.state is State.SUSPENDED:
        assert wake is not None
        assert wake.status is None
        can_go = all(
            c.state in (CallState.NEW, CallState.DONE, CallState.REFUSED, CallState.FINAL)
            for c in wake.batch or ()
        )
        cut = any(n.wake is not None and n.wake.cut for n in node.below())
        assert node.open_requests or node.live or can_go or cut, f"{node.id} is suspended without a way out"
    if wake is not None and wake.status is not None:
        # Of a doubt about a wake that was cut off `on_pending` is told at once.
        left = [e for e in tree.open.values() if e.handle == node.id and e.id in wake.effects]
        assert all(wake.cut and isinstance(e, Notify) for e in left), "effects of a settled wake"
    keys = [c.key for c in (wake.batch or ()) if c.key] if wake is not None else []
    assert len(set(keys)) == len(keys), f"two calls of {node.id} have one key"
    _check_balanced(committed(tree, node, wake), node.id)


def _check_balanced(messages: Sequence[Any], where: str) -> None:
    open_ids: list[str] = []
    for m in messages:
        if isinstance(m, ToolMessage):
            assert open_ids, f"orphan result in {where}"
            assert open_ids.pop(0) == m.call_id, "results out of call order"
        else:
            assert not open_ids, f"orphan call in {where}"
            if isinstance(m, AssistantMessage):
                open_ids = [c.id for c in m.tool_calls]
    assert not open_ids, f"orphan call in {where}"


def _check_closed(sim: Sim) -> None:
    if not sim.log:
        return
    closed: set[str] = set()
    for _, facts in sim.log[-3:]:
        for fact in facts:
            handle = getattr(fact, "handle", None)
            if isinstance(fact, f.HandleClosed):
                assert handle not in closed
                closed.add(fact.handle)
            elif handle is not None:
                assert handle not in closed, f"{fact} after close"
