"""Random inputs, completion orders and answer orders; the invariants hold after every fact."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.desk import Refused
from overt.core.effects import AskHost, CallModel, CallTool, Notify, Sleep
from overt.core.plan import Plan
from overt.core.tree import Node
from overt.errors import UsageError
from overt.result import State
from tests.core.sim import Sim, call, check, plan, task, tree_snapshot

small = st.integers(0, 12)
caps = st.builds(
    f.Caps,
    max_turns=st.sampled_from([None, 1, 3, 8]),
    max_tokens=st.sampled_from([None, None, 300, 2000]),
    max_tool_calls=st.sampled_from([None, None, 2, 5]),
    max_model_calls=st.sampled_from([None, None, 4, 9]),
    max_wall=st.sampled_from([None, None, 0.03, 1.0]),
    max_children=st.sampled_from([None, None, 2]),
    max_concurrent=st.sampled_from([None, 1, 2]),
    max_depth=st.sampled_from([None, 2, 4]),
    max_cost=st.sampled_from([None, None, "0.05", "1"]),
)
MORE = {"t": "rerun", "u": "reuse", "ask": "rerun", "t2": "rerun"}
args = st.sampled_from(["{}", '{"x":1}', '{"x":2}'])
calls = st.lists(
    st.one_of(
        st.builds(call, st.sampled_from(["t", "u", "ask"]), args),
        st.builds(call, st.just("nope"), args, st.just("unknown tool")),
        st.builds(task, st.sampled_from(["b", "b", "c", "c", "d", "zz"]), st.sampled_from(["p", "q"])),
    ),
    min_size=1,
    max_size=4,
)


class Machine(RuleBasedStateMachine):
    sim: Sim

    @initialize(
        root=caps,
        a=caps,
        b=caps,
        policy=st.sampled_from(["rewind", "continue"]),
        hosted=st.sampled_from([(), (), ("a",), ("c",)]),
        closes=st.booleans(),
        on_pending=st.booleans(),
        resolves=st.sampled_from([(), ("u",), ("ask", "t", "u")]),
    )
    def start(
        self,
        root: f.Caps,
        a: f.Caps,
        b: f.Caps,
        policy: str,
        hosted: Any,
        closes: bool,
        on_pending: bool,
        resolves: tuple[str, ...],
    ) -> None:
        self.given: dict[str, Any] = {
            "caps": {"a": a, "b": b},
            "root": root,
            "hosted": hosted,
            "inbox_cap": 2,
            "on_pending": on_pending,
            "resolves": resolves,
        }
        self.called = {"b": "b", "c": "c"}
        self.sim = Sim(self.planned(), policy=policy)
        self.sim.begin(closes=closes)

    called: dict[str, str]
    """What the agents are called by now."""

    def planned(self, **changed: Any) -> Plan:
        return plan(**{**self.given, "caps": dict(self.given["caps"])}, **changed)

    def step(self, inp: i.Input) -> None:
        before = tree_snapshot(self.sim.tree)
        try:
            facts = self.sim.step(inp)
        except (UsageError, Refused):
            facts = []
        if not facts:
            assert tree_snapshot(self.sim.tree) == before, "a refused input left a trace"

    def pick(self, kind: type, n: int) -> Any:
        found = self.sim.effects(kind)
        return found[n % len(found)]

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(
        n=small,
        calls=calls,
        finish=st.sampled_from(["tool_calls"] * 6 + ["length"]),
        cost=st.sampled_from([None, "0.01", "0.01"]),
    )
    def reply_calls(self, n: int, calls: list[f.CallSpec], finish: str, cost: str | None) -> None:
        tokens = f.Tokens(60, 40)
        self.step(i.ModelDone(self.pick(CallModel, n).id, "", tuple(calls), tokens, cost, finish=finish))

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(
        n=small,
        text=st.sampled_from(["done", "done", "  "]),
        tokens=st.sampled_from([f.Tokens(60, 40), None]),
        cost=st.sampled_from([None, "0.02", "0.3"]),
    )
    def reply_text(self, n: int, text: str, tokens: f.Tokens | None, cost: str | None) -> None:
        cost = None if tokens is None else cost
        self.step(i.ModelDone(self.pick(CallModel, n).id, text, (), tokens, cost))

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(
        n=small,
        wait=st.sampled_from([None, 0, 30_000, 10**9]),
        tokens=st.sampled_from([None, f.Tokens(60, 0)]),
        cost=st.sampled_from([None, "0.01"]),
    )
    def model_fails(self, n: int, wait: int | None, tokens: f.Tokens | None, cost: str | None) -> None:
        effect, error = self.pick(CallModel, n), f.ErrorSpec("Boom", "no", "model", True)
        cost = None if tokens is None else cost
        self.step(i.ModelLost(effect.id, error, wait, tokens, cost, "m"))

    @precondition(lambda self: self.sim.effects(Sleep))
    @rule(n=small)
    def waited(self, n: int) -> None:
        self.step(i.Slept(self.pick(Sleep, n).id))

    @precondition(lambda self: self.sim.effects(CallTool))
    @rule(
        n=small,
        how=st.sampled_from(["ok", "ok", "error", "ask", "ask", "timeout", "once", "once_half", "reask"]),
        prompt=st.sampled_from(["p?", "q?"]),
    )
    def tool_ends(self, n: int, how: str, prompt: str) -> None:
        effect = self.pick(CallTool, n)
        wake = self.sim.node(effect.handle).wake
        assert wake is not None
        slots = self.sim.answered(effect)
        match how:
            case "ok" | "error":
                self.step(i.ToolDone(effect.id, how, how == "error"))
            case "ask":
                question = f.Question("approval", prompt, expires_at=self.sim.now + 20_000)
                self.step(i.ToolAsked(effect.id, question, slots))
            case "reask":
                self.step(i.ToolAsked(effect.id, f.Question("input", prompt), 0))
            case "timeout":
                self.step(i.ToolLost(effect.id, "timed out", True, "timed out"))
            case "once":
                self.step(i.OnceBegin(effect.id, "l"))
                self.step(i.OnceEnd(effect.id, "l", "1"))
            case _:
                self.step(i.OnceBegin(effect.id, "l"))

    @precondition(lambda self: self.sim.effects(AskHost))
    @rule(
        n=small,
        ok=st.sampled_from([None, True, False]),
        outcome=st.sampled_from(["succeeded", "failed", "retry"]),
    )
    def host(self, n: int, ok: bool | None, outcome: str) -> None:
        effect = self.pick(AskHost, n)
        answer = None if ok is None else self.spec(effect.request, ok, outcome)
        self.step(i.HostDone(effect.id, answer, None if ok is not None or outcome != "failed" else "E: no"))

    @precondition(lambda self: self.sim.effects(Notify))
    @rule(n=small)
    def notified(self, n: int) -> None:
        self.step(i.NotifyDone(self.pick(Notify, n).id))

    def spec(self, request: str, ok: bool, outcome: str = "succeeded") -> i.AnswerSpec:
        doubt = self.sim.tree.requests[request].question.kind == "in_doubt"
        return i.AnswerSpec(request, ok, f'{{"outcome":"{outcome}","output":"o"}}' if doubt and ok else None)

    @precondition(lambda self: self.sim.open_requests())
    @rule(
        n=small,
        ok=st.sampled_from([True, True, False]),
        policy=st.sampled_from([None, None, "continue", "rewind"]),
        outcome=st.sampled_from(["succeeded", "failed", "retry"]),
        several=st.booleans(),
    )
    def answer(self, n: int, ok: bool, policy: str | None, outcome: str, several: bool) -> None:
        ids = self.sim.open_requests()
        chosen = ids if several else [ids[n % len(ids)]]
        self.step(i.Deliver(tuple(self.spec(r, ok, outcome) for r in chosen), policy))

    @rule()
    def answer_unknown(self) -> None:
        self.step(i.Deliver((i.AnswerSpec("req_x", True),)))

    def handles(self) -> list[str]:
        return list(self.sim.tree.nodes)

    @rule(n=small, seldom=st.integers(0, 3))
    def interrupt(self, n: int, seldom: int) -> None:
        if seldom == 0:
            self.step(i.Interrupt(self.handles()[n % len(self.handles())], "told to"))

    @rule(n=small, seldom=st.integers(0, 5))
    def close(self, n: int, seldom: int) -> None:
        if seldom == 0:
            self.step(i.Close(self.handles()[n % len(self.handles())], "told to"))

    @rule(n=small)
    def post(self, n: int) -> None:
        self.step(i.Post(self.handles()[n % len(self.handles())], "external", "timer", "tick"))

    @rule(n=small, closes=st.booleans())
    def wake(self, n: int, closes: bool) -> None:
        self.step(i.Wake(self.handles()[n % len(self.handles())], "again", closes))

    @rule(n=small, agent=st.sampled_from(["b", "c"]))
    def spawn(self, n: int, agent: str) -> None:
        self.step(i.Spawn(self.handles()[n % len(self.handles())], agent))

    @rule(drive=st.booleans(), wait=st.sampled_from([0, 30_000]))
    def expire(self, drive: bool, wait: int) -> None:
        self.sim.now += wait
        self.step(i.Expire(drive))

    @rule(wait=st.sampled_from([0, 50_000]))
    def tick(self, wait: int) -> None:
        self.sim.now += wait
        self.step(i.Tick())

    @rule(seldom=st.integers(0, 3), policy=st.sampled_from([None, "rewind"]), recover=st.booleans())
    def cancelled(self, seldom: int, policy: str | None, recover: bool) -> None:
        if seldom == 0:
            self.step(i.Cancel("the host was cancelled"))
            if recover:
                self.step(i.Recover(policy))

    @rule(policy=st.sampled_from([None, None, "rewind"]), failed=st.booleans())
    def crashed(self, policy: str | None, failed: bool) -> None:
        self.sim.crash()
        check(self.sim)
        self.step(i.Recover(policy, failed))

    def remembering(self) -> list[Node]:
        """The handles whose wake may go on, and has made calls."""
        return [
            node
            for node in self.sim.tree.nodes.values()
            if node.wake is not None
            and node.wake.memory
            and node.state is not State.CLOSED
            and (node.wake.cut or node.wake.status in (None, "error", "incomplete"))
        ]

    @precondition(lambda self: self.remembering())
    @rule(
        n=small,
        m=small,
        tool=st.sampled_from([None, "t", "u", "ask", "t2"]),
        after=st.sampled_from([None, "{}", '{"x":1}', '{"x":3}']),
        agent=st.sampled_from([None, ("b", "d"), ("c", "d"), ("c", "b"), ("b", "b"), ("b", "c")]),
        accept=st.sampled_from([None, None, "tool", "arguments", "agent", "outputType"]),
        recover=st.booleans(),
    )
    def another_release(
        self,
        n: int,
        m: int,
        tool: str | None,
        after: str | None,
        agent: tuple[str, str] | None,
        accept: str | None,
        recover: bool,
    ) -> None:
        """The process dies; one whose code has changed takes the run, and goes on with what does not fit."""
        self.sim.crash()
        nodes = self.remembering()
        node = nodes[n % len(nodes)]
        assert node.wake is not None
        memories = list(node.wake.memory.values())
        memory = memories[m % len(memories)]
        name = memory.tool
        used = {one.tool for one in memories}
        renamed: list[f.AgentRenamed | f.ToolRenamed] = []
        upgraded: list[f.ArgumentsUpgraded] = []
        accepted: list[f.DriftAccepted] = []
        if agent is not None and agent[1] not in self.called.values():
            slot, new = agent
            renamed.append(f.AgentRenamed(self.called[slot], new))
            self.called[slot] = new
        if tool is not None and tool not in used and name not in ("task", "d"):
            renamed.append(f.ToolRenamed(node.id, name, tool))
            name = tool
        origins = node.wake.origins
        known = {} if origins is None else origins.arguments
        now = next((args for (_, args), firsts in known.items() if memory.args in firsts), memory.args)
        if after is not None and after != now and name not in ("task", "d"):
            upgraded.append(f.ArgumentsUpgraded(node.id, name, now, after))
        if accept is not None:
            subject = (name if accept == "tool" else None, memory.call if accept == "arguments" else None)
            accepted.append(f.DriftAccepted(node.id, "no more", accept, *subject))
        plan = self.planned(called=dict(self.called), tools=MORE)
        self.step(i.Drift(plan.dump(), tuple(renamed), tuple(upgraded), tuple(accepted)))
        if recover or self.sim.tree.open:
            self.step(i.Recover())

    @rule(by=st.sampled_from([50, 5000]))
    def extend(self, by: int) -> None:
        entry = self.sim.tree.entry
        assert entry is not None
        if entry.wake is not None and entry.wake.limit_at is not None:
            caps = self.sim.node(entry.wake.limit_at).caps
            told: dict[str, Any] = caps._asdict()
            more: dict[str, Any] = {
                n: v + by for n, v in told.items() if isinstance(v, int | float) and n != "max_depth"
            }
            self.step(i.Extend(f.Caps(**more)))


Machine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = Machine.TestCase
