"""The trees that are tortured, told apart by name, and what is asked of them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tests.durability import crew, policed_crew
from tests.durability.crew import Outcome, World, facts_of
from tests.durability.deaths import Life

from overt import ResumePolicy
from overt.clock import Clock
from overt.core import facts as f
from overt.stores import MemoryStore, Store
from overt.testing import CrashingStore, VirtualClock

Tree = Literal["crew", "policed"]
Host = crew.Host | policed_crew.Host


@dataclass(frozen=True, kw_only=True)
class Calm:
    """The run nobody disturbs."""

    facts: list[f.Fact]
    appends: int
    places: list[tuple[str, int]]
    """Each place it came to, and for how many times by then."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A tree, and how its questions are answered."""

    tree: Tree = "crew"
    mode: policed_crew.Mode = "rewind"
    run_id: str = "run"

    def __str__(self) -> str:
        return f"{self.tree}-{self.mode}"

    def host(
        self,
        world: World,
        store: Store,
        *,
        outcome: Outcome = "retry",
        clock: Clock | None = None,
        yes: str = "yes",
        force: bool = False,
    ) -> Host:
        """A process that drives it."""
        clock = VirtualClock() if clock is None else clock
        if self.tree == "policed":
            return policed_crew.Host(
                world, store, self.mode, outcome=outcome, run_id=self.run_id, clock=clock, force=force
            )
        policy = ResumePolicy(self.mode)
        return crew.Host(
            world, store, policy, outcome=outcome, run_id=self.run_id, clock=clock, yes=yes, force=force
        )

    async def calm(self) -> Calm:
        """Run it undisturbed."""
        world, store = World(), CrashingStore(MemoryStore())
        life = Life(world, store)
        await self.host(world, store).run()
        facts = await facts_of(store, self.run_id)
        return Calm(facts=facts, appends=store.appends, places=life.occurrences())

    async def check(self, world: World, store: Store, calm: Calm, *, replayed: bool = False) -> list[f.Fact]:
        """Check a run that has come to its end, and return its journal.

        Raises:
            AssertionError: Something was lost, or happened twice.
        """
        facts = await facts_of(store, self.run_id)
        runtime: Any = await self.host(world, store).open()
        if self.tree == "crew":
            crew.check(world, runtime.result(), facts, calm.facts)
        else:
            policed_crew.check(world, runtime.result(), runtime, facts, calm.facts, replayed=replayed)
            await policed_crew.again(runtime, world)
        return facts
