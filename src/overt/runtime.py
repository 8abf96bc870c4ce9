"""One run in this process: its doors, and with them the host's verbs and everything that can be read of it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
from typing_extensions import TypeVar, Unpack

from overt._given import answers_given, history_given, policy_given, prompt_given
from overt._planning import crew_of, declared, plan_of
from overt._text import clean
from overt._verbs import Verbs
from overt.agent import Agent, in_event_loop
from overt.clock import Clock, SystemClock
from overt.core import inputs as i
from overt.core.tree import Tree
from overt.driver.caps import caps_of
from overt.driver.delivery import checked
from overt.driver.drift import fit
from overt.driver.loop import Driver
from overt.errors import RunConflict, UsageError
from overt.handle import Handle
from overt.journal.loading import Log, load
from overt.journal.memory import MemoryStore
from overt.journal.store import Store
from overt.options import Options, check_run, check_store
from overt.policy import Budget, ResumePolicy
from overt.request import Answer
from overt.result import State, TaskResult

if TYPE_CHECKING:
    from overt.stream import RunStream

__all__ = ("Runtime",)

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
DepsT = TypeVar("DepsT", default=None)
OpenedT = TypeVar("OpenedT", default=str)


class Runtime(Verbs[OutputT_co]):
    """One run: its tree of handles, its journal, and the verbs of its host.

    `await agent.run(prompt)` makes one and runs it. Make it yourself to read a run that was cancelled, or to use the
    verbs: inside `async with runtime`, `wake` returns at once and the work goes on in the background; outside, a verb
    returns when the work it set going is through.

    Whatever a verb reports is durable in the store when it returns. A runtime is used from one event loop at a time.
    """

    def __init__(self, agent: Agent[DepsT, OutputT_co], **options: Unpack[Options[DepsT]]) -> None:
        """Prepare a run; nothing is stored and nothing happens before the first verb.

        Raises:
            DefinitionError: An option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the run says which model to use.
        """
        self._prepare(cast("Agent[Any, Any]", agent), cast("dict[str, Any]", options), None, [])

    def _prepare(self, agent: Agent[Any, Any], options: dict[str, Any], tree: Tree | None, log: Log) -> None:
        check_run(agent, declared(agent).agents, options)
        store: Store | None = options.get("store")
        clock: Clock = options.get("clock") or SystemClock()
        policy = ResumePolicy(options.get("resume_policy", ResumePolicy.REWIND))
        self._agent = agent
        _, plan_text = plan_of(agent, options)
        crew = crew_of(agent, options)
        self._history = history_given(options.get("history", ()), redaction=crew.redaction)
        first = None
        if tree is None:
            tree, log = Tree(), []
            first = i.Open(
                clean(options.get("run_id") or secrets.token_hex(16)), agent.name, policy.value, plan_text
            )
        self._driver = Driver(
            crew,
            MemoryStore() if store is None else store,
            clock,
            private=store is None,
            first=first,
            tree=tree,
            log=log,
        )
        self._first = first
        self._driver.fits = partial(
            fit,
            crew=self._driver.crew,
            plan=plan_text,
            entry=agent.name,
            given=frozenset(options),
            upgrade=self._driver.crew.upgrade,
            accept=options.get("on_drift") == "accept",
        )
        if first is None:
            self._driver.drift = self._driver.fits(tree)

    @classmethod
    async def open(
        cls, agent: Agent[DepsT, OpenedT], run_id: str, /, **options: Unpack[Options[DepsT]]
    ) -> Runtime[OpenedT]:
        """Rebuild a stored run in this process, to read it or to go on with it.

        Nothing is repeated and nothing runs: `resume` answers it, `recover` goes on with what was cut off. `deps` and
        every function are given again; policy, budgets spent and answers come from the journal. Requests whose time is
        over are answered `ok=False, reason="expired"` now; what follows from that runs with the next `resume` or
        `recover`.

        Code that has changed since is told of by `upgrade`, and where it does not fit the run is refused, or gone on
        with by `on_drift="accept"`. Opening writes nothing of that: the first verb that takes the run records it,
        before anything else happens.

        ```python
        import anyio

        from overt import Agent, Runtime
        from overt.stores import SQLiteStore
        from overt.testing import MockModel

        agent = Agent("agent", does="Answers.", model=MockModel(["Done."]))

        async def main() -> None:
            await agent.run("Go.", run_id="r-1", store=SQLiteStore("runs.db"))
            # another process, another day
            runtime = await Runtime.open(agent, "r-1", store=SQLiteStore("runs.db"))
            print(runtime.result().text, runtime.result().total_tokens)
            #> Done. 100

        anyio.run(main)
        ```

        Args:
            agent: The entry agent, as declared in this process.
            run_id: The run.
            **options: See `Options`; `store` is needed, `run_id`, `resume_policy` and `history` have no effect, and
                `budget` has none on the handles there are: `extend` raises their caps.

        Raises:
            UsageError: `store` is missing.
            DefinitionError: `store` is none, another option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the run says which model to use.
            RunNotFound: The store has no such run; names the file.
            SpecDrift: The agent no longer fits the stored run; `drifts` has every place. Guardrails of the run that
                are not given again are among them: an empty list goes on without them.
            JournalCorrupt: The journal is damaged; names run and position.
            UnsupportedSchema: A newer release wrote it.
            StoreError: The store cannot be read.
        """
        given = cast("dict[str, Any]", options)
        store: Store | None = given.get("store")
        if store is None:
            raise UsageError("Runtime.open needs the store the run is in: store=SQLiteStore(path)")
        check_store(store)
        tree, log = await load(store, run_id)
        # Named once, they stay unrecorded: whoever goes on with the run need not know of them.
        given.setdefault("redact", tree.plan.redact)
        runtime = cast("Runtime[OpenedT]", cls.__new__(cls))
        runtime._prepare(cast("Agent[Any, Any]", agent), given, tree, log)
        await runtime._expire()
        return runtime

    async def _expire(self) -> None:
        """Record what has expired, unless another driver is at work and will."""
        tree = self._driver.tree
        now = max(self._driver.now(), tree.now)
        due = [
            r
            for r in tree.requests.values()
            if r.status == "open" and r.question.expires_at is not None and r.question.expires_at <= now
        ]
        if not due:
            return
        driver = self._driver
        try:
            await driver.decided(partial(driver.step, i.Expire(drive=False)))
        except RunConflict:
            return
        await driver.release()

    # ------------------------------------------------------------ working

    async def __aenter__(self) -> Self:
        """Begin to work in the background.

        Raises:
            UsageError: The runtime is at work already.
        """
        await self._driver.enter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop; wakes that still run are cut off, and `recover` goes on with them. Nothing is closed.

        Raises:
            StoreError: The store failed meanwhile; raised where nothing else is.
        """
        await self._driver.leave(*exc)

    # ------------------------------------------------------------ the three doors

    async def run(self, prompt: str) -> TaskResult[OutputT_co]:
        """Give the entry agent its prompt, and return what came of it.

        The tree is closed when the entry handle is done or interrupted. A pending, incomplete or failed run stays
        open: `resume`, `extend` and `recover` go on with it.

        Raises:
            UsageError: This runtime has run already: answer it, or make another. Or `prompt` is no text.
            RunExists: The store has a run of this id; nothing happened.
            RunConflict: Another driver has taken the run by force meanwhile.
            StoreError: The store failed; what was appended before stays valid.
        """
        driver = self._driver
        if driver.tree.entry is not None:
            raise UsageError(
                f"run {self.id} has been started; resume, recover or extend it, or make another Runtime"
            )
        entry = f"root/{self._agent.name}.1"

        async def work() -> Any:
            spawn = i.Spawn("root", self._agent.name, None, self._history, True)
            return await driver.step(spawn, i.Wake(entry, prompt_given(prompt), True), wants=True)

        return cast("TaskResult[OutputT_co]", await self._ended(work, entry))

    async def resume(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]:
        """Answer open requests, and return what the host would have got from `run` had the stop never happened.

        Under `ResumePolicy.REWIND`, the default, an answer to a parked run replays the suspended wake from its
        checkpoint: every finished `rerun` tool of that wake runs again and every model call is bought again, in the
        handle that asked and in each ancestor that waits for it. Every tool reachable in a wake that may be suspended
        must be idempotent: `@tool(on_replay="reuse")`, `ctx.once` and `ctx.idempotency_key` are the ways to be so.
        `Request.replays` says beforehand, and `TaskResult.replay` afterwards, what is repeated. Under `CONTINUE` the
        work is carried, and only calls that asked are entered again. Finished `task` calls are found again under
        both.

        The answers are durable before anything is acted on. A list applies whole or not at all.

        ```python
        import anyio

        from overt import Agent, Answer, ResumePolicy, ToolContext, tool
        from overt.testing import MockModel, call, say

        @tool(description="Pay; a person is asked first.")
        async def pay(ctx: ToolContext) -> str:
            return "paid" if (await ctx.ask("Pay 40?", kind="approval")).ok else "not paid"

        clerk = Agent("clerk", does="Pays.", tools=[pay], model=MockModel([call("pay"), say("Settled.")]))

        async def main() -> None:
            result, runtime = await clerk.run("Pay.", resume_policy=ResumePolicy.CONTINUE)
            print(result.status, result.pendings[0].prompt)
            #> pending Pay 40?
            result = await runtime.resume(Answer(id=result.pendings[0].id, ok=True, by="ada"))
            print(result.status, result.text, result.total_tokens)
            #> done Settled. 200

        anyio.run(main)
        ```

        Args:
            answer: One answer, or several for requests that are open at once.
            policy: The policy for these answers; `None` takes the run's.

        Returns:
            The entry handle's result: `pending` with what is still open, else how it ended.

        Raises:
            UnknownRequest: No such request; lists what is open.
            AlreadyAnswered: It has its answer; carries it, and whether this one is the same.
            RequestExpired: It expired; `recover` goes on with that.
            InvalidAnswer: The data does not fit `answer_schema`, or `verify_answer` refused or raised.
            UsageError: The run was never started, or this is no answer or no policy.
            RunConflict: Another driver has the run.
            SpecDrift: Another process has moved the run on, to where the agents of this one do not fit.
            StoreError: The store failed; what was appended before stays valid.
        """
        driver = self._driver
        answers, chosen = answers_given(answer), policy_given(policy)
        self._entry()

        async def work() -> Any:
            specs = await checked(driver, answers)
            steps: list[i.Input] = [i.Expire(drive=False), i.Deliver(specs, chosen)]
            if driver.cut():
                steps.insert(0, i.Recover(None, failed=False, verb="resume"))
            return await driver.step(*steps, wants=True)

        return cast("TaskResult[OutputT_co]", await self._ended(work, self._entry().id))

    def resume_sync(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]:
        """`resume` for code without an event loop: starts one, and ends it.

        Raises:
            UsageError: An event loop is running in this thread: await `resume` instead; or as `resume`.
            UnknownRequest: As `resume`.
            AlreadyAnswered: As `resume`.
            RequestExpired: As `resume`.
            InvalidAnswer: As `resume`.
            RunConflict: As `resume`.
            SpecDrift: As `resume`.
            StoreError: As `resume`.
        """
        if in_event_loop():
            raise UsageError(
                "resume_sync starts an event loop and cannot do so inside a running one: await resume(…)"
            )
        return anyio.run(partial(self.resume, answer, policy=policy))

    async def recover(
        self, *, policy: ResumePolicy | None = None, force: bool = False
    ) -> TaskResult[OutputT_co]:
        """Go on with what was cut off by a crash or a cancellation, and with what failed.

        Wakes whose own call was cut off go on where they were, whatever the run's policy: a model call is bought again,
        a `rerun` tool is entered again under the same idempotency key, a `reuse` tool or a `ctx.once` block that has no
        outcome becomes a request of kind `in_doubt`. A failed wake issues the failed call again. On a parked run it
        changes nothing and returns the pending result; a request that has expired is answered, and what it answered
        goes on as by `resume`, under the run's policy.

        Args:
            policy: `REWIND` replays the cut-off wakes from their checkpoints instead.
            force: Take the run although another driver's claim has not run out; that driver is fenced.

        Returns:
            The entry handle's result.

        Raises:
            UsageError: This runtime is at work on it, or the run was never started.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        driver = self._driver
        entry = self._entry()
        if driver.live and driver.tree.root.live:
            raise UsageError(f"run {self.id} is at work in this runtime; there is nothing to recover")

        async def work() -> Any:
            await driver.acquire(force=force)
            if driver.tree.root.state is State.CLOSED:
                return None
            steps = (i.Expire(drive=False), i.Recover(policy_given(policy)))
            return await driver.step(*steps, wants=True)

        return cast("TaskResult[OutputT_co]", await self._ended(work, entry.id, force=force))

    async def extend(self, budget: Budget, *, handle: Handle | str | None = None) -> TaskResult[OutputT_co]:
        """Raise caps and go on with the wake they stopped, entering exactly the calls that were left open.

        What was finished is carried; a model call that `max_wall` cut off is made again. A completion gate that gave up
        has no cap: there `Budget()` does, and buys one more round.

        ```python
        import anyio

        from overt import Agent, Budget
        from overt.testing import MockModel, call, say

        model = MockModel([call("task", agent="finder", prompt="Find."), say("Found.")])
        finder = Agent("finder", does="Finds.", model=MockModel(["It is here."]))
        lead = Agent("lead", does="Leads.", team=[finder], model=model)

        async def main() -> None:
            result, runtime = await lead.run("Go.", budget=Budget(max_model_calls=2))
            print(result.status, result.limit, result.limit_at)
            #> incomplete maxModelCalls root
            result = await runtime.extend(Budget(max_model_calls=3))
            print(result.status, result.text, result.usage.model_calls)
            #> done Found. 3

        anyio.run(main)
        ```

        Args:
            budget: New totals; only fields that are set count, none below the present cap.
            handle: Whose caps; `None`: those of `result.limit_at`.

        Returns:
            The entry handle's result.

        Raises:
            UsageError: Nothing stopped there, a cap would be lowered, or one stopped it and the budget sets none.
            UnknownHandle: The run has no such handle.
            HandleClosed: The handle is closed.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        driver = self._driver
        entry = self._entry()
        target = None if handle is None else self._node(handle).id

        async def work() -> Any:
            return await driver.step(i.Extend(caps_of(budget), target), wants=True)

        return cast("TaskResult[OutputT_co]", await self._ended(work, entry.id))

    # ------------------------------------------------------------ as a stream

    def stream(
        self,
        prompt: str | None = None,
        *,
        answer: Answer[Any] | Sequence[Answer[Any]] | None = None,
        policy: ResumePolicy | None = None,
        after: int | None = None,
    ) -> RunStream[OutputT_co]:
        """`run`, `resume` or `recover`, as a stream of what happens meanwhile. See `RunStream`.

        Leaving it early cuts the run off: readers that come and go, such as browsers, `follow` a run that another task
        drives.

        Args:
            prompt: What to do: the stream is that of `run`.
            answer: Answers to open requests: the stream is that of `resume`. With neither it is that of `recover`.
            policy: As in `resume` and `recover`.
            after: A position: the recorded events past it come first. `None`: those there are do not come.

        Raises:
            UsageError: Both a prompt and an answer, a policy for a prompt, or an argument of another type.
        """
        from overt.stream import RunStream

        policy_given(policy)
        if prompt is not None:
            if answer is not None or policy is not None:
                raise UsageError("stream takes a prompt, or answers and a policy for them, not both")
            return RunStream(self, work=partial(self.run, prompt_given(prompt)), after=after)
        if answer is not None:
            return RunStream(
                self, work=partial(self.resume, answers_given(answer), policy=policy), after=after
            )
        return RunStream(self, work=partial(self.recover, policy=policy), after=after)

    def follow(self, *, after: int = 0) -> RunStream[OutputT_co]:
        """What happens in this run while others drive it in this runtime, as a stream that drives nothing itself.

        The recorded events past `after` come first, then what happens; the stream ends with the result when the run
        comes to rest, at once where it is at rest. Of a run that has not begun it waits for the beginning. What another
        process does is seen with `overt.operations.follow`.

        Args:
            after: A position, such as that of the last event that was read.

        Raises:
            UsageError: `after` is no position.
        """
        from overt.stream import RunStream

        async def work() -> TaskResult[OutputT_co]:
            await self._driver.at_rest()
            return self.result()

        return RunStream(self, work=work, after=after)
