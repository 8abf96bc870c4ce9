"""The machine again, with agents whose calls, prompts, answers and caps are ruled on, at random."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.budget import turn_cap
from overt.core.effects import AskLimit, CallModel, CallTool, CheckCalls, CheckText, Verify
from overt.core.plan import Plan
from tests.core.sim import Sim, call, plan
from tests.core.test_machine import Machine, calls, caps, small

delegated = st.builds(call, st.just("d"), st.sampled_from(['{"prompt":"p"}', '{"prompt":"q"}']))
words = st.sampled_from(["allow", "allow", "deny", "ask"])


def ruling(word: str, prompt: str, edit: bool = False, output: str | None = None) -> f.RulingSpec:
    if output is not None:
        return f.RulingSpec("allow", output=output)
    return f.RulingSpec(
        word,
        "because" if word == "deny" else "",
        f.Question("approval", prompt) if word == "ask" else None,
        (f.Said("g", word),),
        '{"agent":"c","prompt":"e","x":9}' if edit else None,
    )


rulings = st.builds(
    ruling,
    words,
    st.sampled_from(["may I?", "really?"]),
    st.booleans(),
    st.sampled_from([None, None, None, "given by a hook"]),
)


class PolicedMachine(Machine):
    @initialize(
        root=caps,
        a=caps,
        policy=st.sampled_from(["rewind", "continue"]),
        hosted=st.sampled_from([(), (), ("a",), ("c",)]),
        gate=st.sampled_from([None, 1, 2]),
        texts=st.sampled_from([((), ()), (("p",), ()), ((), ("o",)), (("p",), ("o",))]),
        typed=st.booleans(),
        on_limit=st.booleans(),
        delegates=st.sampled_from([{}, {"d": "c"}]),
        guarded=st.sampled_from([True, True, False]),
        closes=st.booleans(),
        resolves=st.sampled_from([(), ("u",), ("ask", "t", "u")]),
    )
    def start(
        self,
        root: f.Caps,
        a: f.Caps,
        policy: str,
        hosted: Any,
        gate: int | None,
        texts: Any,
        typed: bool,
        on_limit: bool,
        delegates: dict[str, str],
        guarded: bool,
        closes: bool,
        resolves: tuple[str, ...],
    ) -> None:
        policed = {
            "guards": ("g",) if guarded else (),
            "prompt_guards": texts[0],
            "output_guards": texts[1],
            "gate": gate,
            "typed": typed,
            "delegates": delegates,
        }
        self.declared: dict[str, Any] = {
            "caps": {"a": a},
            "root": root,
            "hosted": hosted,
            "on_limit": on_limit,
            "on_pending": True,
            "resolves": resolves,
        }
        self.policed: dict[str, Any] = policed
        self.called = {"b": "b", "c": "c"}
        self.sim = Sim(self.made(**policed), policy=policy)
        self.sim.begin(closes=closes)

    def step(self, inp: i.Input) -> None:
        seen = len(self.sim.log)
        super().step(inp)
        for _, facts in self.sim.log[seen:]:
            self.check_limits(facts)

    def check_limits(self, facts: list[f.Fact]) -> None:
        """What an answer about a cap does, what a cap on turns keeps out, and what the gate lets through."""
        for at, fact in enumerate(facts):
            match fact:
                case f.AnswerGiven(handle, request) if self.sim.tree.requests[request].about == "budget":
                    rest = [x for x in facts[at:] if getattr(x, "handle", None) == handle]
                    assert not any(isinstance(x, f.Rewound) for x in rest), (
                        "a budget was answered by a replay"
                    )
                    stopped = any(isinstance(x, f.WakeSettled) and x.status == "incomplete" for x in rest)
                    assert fact.ok or stopped, "a refused budget let the wake go on"
                case f.CallEntered(handle) | f.Delegated(handle):
                    node = self.sim.node(handle)
                    assert node.wake is not None
                    assert node.wake.turns < turn_cap(node), "a call was entered past the cap on turns"
                case f.WakeSettled(handle, "done"):
                    node = self.sim.node(handle)
                    assert node.wake is not None
                    assert node.plan is not None
                    verdicts = node.wake.verdicts
                    assert [number for _, _, number in verdicts] == [*range(1, len(verdicts) + 1)]
                    if node.plan.gate is not None:
                        assert verdicts[-1][0], "done without a pass"
                        assert not any(ok for ok, _, _ in verdicts[:-1]), "judged on past a pass"
                case _:
                    pass

    def made(self, **policed: Any) -> Plan:
        delegates = {tool: self.called[slot] for tool, slot in policed["delegates"].items()}
        declared = {k: dict(v) if k == "caps" else v for k, v in self.declared.items()}
        return plan(**declared, policed=policed | {"delegates": delegates}, called=dict(self.called))

    def planned(self, **changed: Any) -> Plan:
        return self.made(**self.policed)

    @rule(
        guards=st.sampled_from([(), ("g",), ("h",)]),
        texts=st.sampled_from([(), ("o",)]),
        gate=st.sampled_from([None, 2]),
        seldom=st.integers(0, 3),
    )
    def another_process(
        self, guards: tuple[str, ...], texts: tuple[str, ...], gate: int | None, seldom: int
    ) -> None:
        """The run is opened with other rules, parked or after a crash."""
        if seldom:
            return
        self.sim.crash()
        policed = {**self.policed, "guards": guards, "output_guards": texts, "gate": gate}
        self.step(i.Drift(self.made(**policed).dump()))
        if self.sim.tree.open:
            self.step(i.Recover())

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(
        n=small,
        calls=st.one_of(calls, st.lists(delegated, min_size=1, max_size=2)),
        said=st.lists(rulings, min_size=4, max_size=4),
    )
    def reply_ruled(self, n: int, calls: list[f.CallSpec], said: list[f.RulingSpec]) -> None:
        """What a driver does whose rules are plain functions: the rulings come with the reply."""
        effect = self.pick(CallModel, n)
        wake = self.sim.node(effect.handle).wake
        assert wake is not None
        if wake.attempt > 1 or not self.sim.node(effect.handle).checks:
            return
        ruled = tuple(
            c if c.error is not None or r == ruling("allow", "") else c._replace(ruling=r)
            for c, r in zip(calls, said, strict=False)
        )
        self.step(i.ModelDone(effect.id, "", ruled, f.Tokens(60, 40), ruled=True))

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(n=small, how=st.sampled_from(["text", "call", "hook"]))
    def reply_typed(self, n: int, how: str) -> None:
        effect = self.pick(CallModel, n)
        plan = self.sim.node(effect.handle).plan
        assert plan is not None
        error = f.ErrorSpec("Boom", "in a hook", "hook") if how == "hook" else None
        final = (f.CallSpec("final_result", '{"v":1}'),) if how == "call" else ()
        output = "1" if plan.typed and how != "hook" else None
        if final and output is None:
            return
        self.step(i.ModelDone(effect.id, "it is 1", final, f.Tokens(60, 40), output=output, error=error))

    @precondition(lambda self: self.sim.effects(CallModel))
    @rule(n=small, cut=st.integers(0, 4), unsent=st.booleans())
    def before_llm(self, n: int, cut: int, unsent: bool) -> None:
        effect = self.pick(CallModel, n)
        node = self.sim.node(effect.handle)
        if unsent:
            self.step(i.ModelUnsent(effect.id, f.ErrorSpec("Boom", "in a hook", "hook")))
            return
        # From a place where every call has its result: after a user message.
        starts = [at for at, m in enumerate(node.messages) if m.role == "user"]
        if starts:
            keep = starts[cut % len(starts)]
            parts = ['{"role":"user","text":"summary"}', *map(str, range(keep, len(node.messages)))]
            self.step(i.Override(effect.id, f"[{','.join(parts)}]", ("t",)))

    @precondition(lambda self: self.sim.effects(CheckCalls))
    @rule(n=small, said=st.lists(rulings, min_size=4, max_size=4), fails=st.integers(0, 5))
    def check_calls(self, n: int, said: list[f.RulingSpec], fails: int) -> None:
        effect = self.pick(CheckCalls, n)
        if fails == 0:
            self.step(i.ChecksRuled(effect.id, error=f.ErrorSpec("Boom", "in a hook", "hook")))
        else:
            self.step(i.ChecksRuled(effect.id, tuple(said[: len(effect.calls)])))

    @precondition(lambda self: self.sim.effects(CallTool))
    @rule(n=small)
    def after_tool_fails(self, n: int) -> None:
        error = f.ErrorSpec("Boom", "in a hook", "hook")
        self.step(i.ToolDone(self.pick(CallTool, n).id, "ran", error=error))

    @precondition(lambda self: self.sim.effects(CheckText))
    @rule(n=small, word=words, prompt=st.sampled_from(["may I?", "really?"]))
    def check_text(self, n: int, word: str, prompt: str) -> None:
        self.step(i.TextRuled(self.pick(CheckText, n).id, ruling(word, prompt)))

    @precondition(lambda self: self.sim.effects(Verify))
    @rule(n=small, ok=st.booleans(), fails=st.integers(0, 4))
    def verify(self, n: int, ok: bool, fails: int) -> None:
        error = f.ErrorSpec("Boom", "in a verifier", "completion") if fails == 0 else None
        self.step(i.VerifyDone(self.pick(Verify, n).id, ok, "not yet", error))

    @precondition(lambda self: self.sim.effects(AskLimit))
    @rule(n=small, decision=st.sampled_from(["stop", "extend", "extend", "suspend", "raise"]), by=small)
    def limit(self, n: int, decision: str, by: int) -> None:
        effect = self.pick(AskLimit, n)
        if decision == "raise":
            self.step(i.LimitRuled(effect.id, error=f.ErrorSpec("Boom", "in on_limit", "hook")))
            return
        raised = None
        if decision == "extend":
            told: dict[str, Any] = self.sim.node(effect.at).caps._asdict()
            more: dict[str, Any] = {
                k: v + by for k, v in told.items() if isinstance(v, int | float) and k != "max_depth"
            }
            raised = f.Caps(**more)
        self.step(i.LimitRuled(effect.id, decision, raised))

    def spec(self, request: str, ok: bool, outcome: str = "succeeded") -> i.AnswerSpec:
        state = self.sim.tree.requests[request]
        if not ok or state.question.kind == "in_doubt":
            return super().spec(request, ok, outcome)
        if state.about == "budget":
            return i.AnswerSpec(request, True, "500")
        if state.guard and outcome == "retry":
            return i.AnswerSpec(request, True, "{}", args='{"agent":"b","prompt":"e","x":5}')
        if state.guard and outcome == "failed":
            return i.AnswerSpec(request, True, '{"output":"by hand"}')
        return i.AnswerSpec(request, True)


# The same search every time: what a longer, random one finds is not to fail a change that has nothing to do with it.
PolicedMachine.TestCase.settings = settings(
    derandomize=True,
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPolicedMachine = PolicedMachine.TestCase
