"""What type checkers see of operations. Checked, never run: each mistake carries the code it must be reported with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import assert_never, assert_type

from overt import Agent, Event, Request, Store
from overt.errors import StoreError
from overt.operations import Stranded, check, follow
from overt.stores import Damage, Interruption, Owner, PendingRequest, RunInfo


def told(run_id: str, error: StoreError) -> None: ...


async def operations(store: Store, now: datetime) -> None:
    assert_type(await store.pendings(kind="approval", on_error=told), tuple[PendingRequest, ...])
    assert_type(await store.expire_due(now), tuple[str, ...])
    assert_type(await store.interrupt("run", reason=None), Interruption)
    assert_type(await store.abandoned(now), tuple[RunInfo, ...])
    assert_type(await store.prune(now, status="error"), tuple[str, ...])
    assert_type(await store.prune(now, status=("done", "error")), tuple[str, ...])
    assert_type(await store.export_run("run"), str)
    assert_type(await store.import_run(["one", "two"]), str)
    assert_type(await store.verify("run", repair_lists=True), tuple[Damage, ...])


def values(pending: PendingRequest, damage: Damage, info: RunInfo) -> None:
    assert_type(pending.request, Request)
    assert_type(damage.run_id, str | None)
    assert_type(damage.position, int | None)
    assert_type(info.holder, Owner | None)


def what_became_of_it(said: Interruption) -> str:
    match said.outcome:
        case "interrupted" | "at_rest":
            return said.status
        case "asked":
            return str(assert_type(said.owner, str | None))
        case _:
            assert_never(said.outcome)


async def from_outside(agent: Agent[int, bool], store: Store) -> None:
    assert_type(await check(agent, store, guardrails=[], deps=7), tuple[Stranded, ...])
    events = follow(store, "run", after=3)
    assert_type(events, AsyncIterator[Event])
    async for event in events:
        assert_type(event, Event)


async def wrong(store: Store, agent: Agent[int, bool], now: datetime) -> None:
    await store.expire_due()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await store.pendings("approval")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await store.prune(now, ("done",))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await store.import_run("lines", run_id="other")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await check(agent, store, deps="seven")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    await check(agent, store, colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    follow(store, "run", 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
