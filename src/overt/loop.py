"""One handle, many prompts: the second door over the same runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar, Unpack

from overt._given import MESSAGES, model_given, prompt_given
from overt.core import inputs as i
from overt.core.desk import Refused
from overt.errors import UsageError
from overt.message import Message, Model
from overt.options import Options
from overt.policy import Budget, ResumePolicy
from overt.request import Answer
from overt.result import State, TaskResult
from overt.runtime import Runtime

if TYPE_CHECKING:
    from overt.agent import Agent
    from overt.handle import Handle
    from overt.stream import RunStream

__all__ = ("Loop",)

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
DepsT = TypeVar("DepsT", default=None)
OpenedT = TypeVar("OpenedT", default=str)


class Loop(Generic[OutputT_co]):
    """A conversation: prompt after prompt on one handle, with its transcript. Made by `Agent.loop`.

    Everything is as in `Agent.run`, which is one prompt: the result type, guardrails, gate, budgets, requests and the
    journal, so that the ledger is the bill of the whole conversation and no count goes down between prompts.
    `Budget.max_turns` is for each prompt, the other caps are for the loop's life.

    The tree stays open until `close`, whatever came of a prompt. What a prompt did before it failed is out of the
    transcript when the next one comes; `recover` goes on with it instead. What it did before it met a limit stays.
    """

    def __init__(self, agent: Agent[DepsT, OutputT_co], **options: Unpack[Options[DepsT]]) -> None:
        """Prepare a loop; nothing is stored and nothing happens before the first prompt.

        Raises:
            DefinitionError: An option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the loop says which model to use.
        """
        self._begin(Runtime(agent, **options))

    def _begin(self, runtime: Runtime[OutputT_co]) -> None:
        self._runtime = runtime
        self._prompted = False

    @classmethod
    async def open(
        cls, agent: Agent[DepsT, OpenedT], run_id: str, /, **options: Unpack[Options[DepsT]]
    ) -> Loop[OpenedT]:
        """Rebuild a stored loop in this process; see `Runtime.open`.

        Raises:
            UsageError: As `Runtime.open`.
            DefinitionError: As `Runtime.open`.
            MissingDeps: As `Runtime.open`.
            NoModel: As `Runtime.open`.
            RunNotFound: As `Runtime.open`.
            SpecDrift: As `Runtime.open`.
            JournalCorrupt: As `Runtime.open`.
            UnsupportedSchema: As `Runtime.open`.
            StoreError: As `Runtime.open`.
        """
        loop = cast("Loop[OpenedT]", cls.__new__(cls))
        loop._begin(await Runtime.open(agent, run_id, **options))
        return loop

    @property
    def runtime(self) -> Runtime[OutputT_co]:
        """The run: its handles, requests, ledger and events."""
        return self._runtime

    @property
    def status(self) -> State:
        """How the handle stands: `idle` before the first prompt and between prompts, `suspended` while it waits."""
        entry = self._runtime._driver.tree.entry
        return State.IDLE if entry is None else entry.state

    @property
    def turns(self) -> int:
        """Turns of the handle so far, those of all prompts."""
        entry = self._runtime._driver.tree.entry
        return 0 if entry is None else entry.turns

    def __repr__(self) -> str:
        return f"<Loop {self._runtime.id}>"

    async def run(self, prompt: str, *, model: Model | str | None = None) -> TaskResult[OutputT_co]:
        """Give the handle its next prompt, and return what came of it.

        Args:
            prompt: What to do.
            model: Used for this prompt in place of the handle's own, until it is settled or parked, or this process
                is at its end: what answers, `extend` and `recover` go on with uses the handle's own. Members of the
                team keep theirs. A string is resolved before anything happens.

        Raises:
            AwaitingAnswer: The handle is suspended; names the open requests. `resume` answers them.
            HandleClosed: The loop is closed.
            UsageError: It is at work on another prompt, was cut off in one, or `prompt` is no text.
            DefinitionError: `model` is none, or its provider is unknown or lacks its package or key.
            RunExists: The store has a run of this id; nothing happened.
            RunConflict: Another driver has the run.
            SpecDrift: As `Runtime.resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        return await self._run(prompt_given(prompt), model_given(model))

    async def _run(self, prompt: str, model: Model | None) -> TaskResult[OutputT_co]:
        runtime = self._runtime
        driver = runtime._driver
        at_work = f"loop {runtime.id} is at work on a prompt; await its result first"
        if self._prompted:
            raise UsageError(at_work)
        first = driver.tree.entry
        handle = f"root/{runtime._agent.name}.1"
        if first is not None and driver.crew.upgrade.agent(first.agent) == runtime._agent.name:
            # Begun under another name: ids stay.
            handle = first.id

        async def work() -> Any:
            entry = driver.tree.entry
            if entry is not None and entry.id != handle:
                raise UsageError(
                    f"the first handle of run {runtime.id} is {entry.id}, which is not this loop's"
                )
            steps: list[i.Input] = [i.Wake(handle, prompt)]
            if entry is None:
                steps.insert(0, i.Spawn("root", runtime._agent.name, None, runtime._history, True))
            before = driver.models.get(handle)
            if model is not None:
                driver.models[handle] = model
            try:
                return await driver.step(*steps, wants=True)
            except Exception as error:
                if before is not None:
                    driver.models[handle] = before
                else:
                    driver.models.pop(handle, None)
                if isinstance(error, Refused):
                    if driver.tree.root.live and driver.cut():
                        raise UsageError(
                            f"loop {runtime.id} was cut off in the middle of a prompt: recover() goes on with it, "
                            "runtime.interrupt() drops it"
                        ) from None
                    raise UsageError(at_work) from None
                raise

        self._prompted = True
        try:
            return await runtime._ended(work, handle)
        finally:
            self._prompted = False

    def stream(self, prompt: str, *, model: Model | str | None = None) -> RunStream[OutputT_co]:
        """`run`, as a stream of what happens meanwhile; see `Agent.stream`.

        Raises:
            UsageError: `prompt` is no text.
            DefinitionError: `model` is none, or its provider is unknown or lacks its package or key.
        """
        from overt.stream import RunStream

        return RunStream(self._runtime, work=partial(self._run, prompt_given(prompt), model_given(model)))

    async def resume(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]:
        """Answer open requests; as `Runtime.resume`, where it is said what an answer repeats.

        Raises:
            UnknownRequest: As `Runtime.resume`.
            AlreadyAnswered: As `Runtime.resume`.
            RequestExpired: As `Runtime.resume`.
            InvalidAnswer: As `Runtime.resume`.
            UsageError: As `Runtime.resume`.
            RunConflict: As `Runtime.resume`.
            SpecDrift: As `Runtime.resume`.
            StoreError: As `Runtime.resume`.
        """
        return await self._runtime.resume(answer, policy=policy)

    async def recover(
        self, *, policy: ResumePolicy | None = None, force: bool = False
    ) -> TaskResult[OutputT_co]:
        """Go on with a prompt that was cut off or failed; as `Runtime.recover`.

        Raises:
            UsageError: This loop is at work, or was never given a prompt.
            RunConflict: Another driver has the run.
            SpecDrift: As `Runtime.resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        return await self._runtime.recover(policy=policy, force=force)

    async def extend(self, budget: Budget, *, handle: Handle | str | None = None) -> TaskResult[OutputT_co]:
        """Raise caps and go on with the prompt they stopped; as `Runtime.extend`.

        Raises:
            UsageError: As `Runtime.extend`.
            UnknownHandle: The run has no such handle.
            HandleClosed: The loop is closed.
            RunConflict: Another driver has the run.
            SpecDrift: As `Runtime.resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        return await self._runtime.extend(budget, handle=handle)

    def result(self) -> TaskResult[OutputT_co]:
        """Return the result of the latest prompt, also while it runs and after `open`.

        Raises:
            UsageError: There was none.
            SpecDrift: As `Runtime.result`.
        """
        return self._runtime.result()

    def transcript(self) -> tuple[Message, ...]:
        """Return the committed transcript, before the first prompt the `history` given. Copies; change them at will."""
        runtime = self._runtime
        entry = runtime._driver.tree.entry
        if entry is not None:
            return runtime.transcript(entry.id)
        return () if runtime._history is None else tuple(MESSAGES.validate_json(runtime._history))

    async def close(self, *, force: bool = False, reason: str | None = None) -> None:
        """Close the handle and everything below it; it stays readable, and takes no prompt any more.

        A loop that was never given a prompt has nothing to close.

        Args:
            force: Do not give a prompt that still runs `shutdown` seconds to settle.
            reason: Kept with the handle, and in the result of a prompt that was ended by this.

        Raises:
            RunConflict: Another driver has the run.
            SpecDrift: As `Runtime.resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        await self._runtime.close(force=force, reason=reason)
