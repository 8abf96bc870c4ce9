"""What stores raise: each promise of `Store` on the store in memory and, where that can break, on a file."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.contract.kit import NOW, OTHER, UNTIL, clerk, parked, promise

from overt.operations import check, follow
from overt.stores import Change, EncryptedStore, MemoryStore, PostgresStore, Record, SQLiteStore, Store

NAIVE = datetime(2026, 1, 1)  # what is refused
CHANGE = Change(status="running", at=NOW)
KEY = EncryptedStore.generate_key()


def record(position: int = 1, text: str = "{}") -> Record:
    return Record(position, 1, text=text)


async def create(store: Store, *records: Record) -> object:
    return await store.create("r", records, agent="clerk", owner=OTHER, now=NOW, until=UNTIL)


async def append(store: Store, *records: Record, after: int = 1, epoch: int = 1) -> object:
    return await store.append("r", records, after=after, epoch=epoch, change=CHANGE)


async def append_now(store: MemoryStore, *, epoch: int = 1) -> object:
    return store.append_now("r", [record(2)], after=1, epoch=epoch, change=CHANGE)


async def claim(store: Store) -> object:
    return await store.claim("r", owner=type(OTHER)(id="me"), now=NOW, until=UNTIL)


# What every store is asked of, with the arguments that fit.
FITTING: dict[str, Callable[[Any], Awaitable[object]]] = {
    "abandoned": lambda store: store.abandoned(NOW),
    "append": lambda store: append(store, record(2)),
    "ask_interrupt": lambda store: store.ask_interrupt("r"),
    "claim": claim,
    "create": lambda store: create(store, record()),
    "delete": lambda store: store.delete("r", now=NOW),
    "expire_due": lambda store: store.expire_due(NOW),
    "export_run": lambda store: store.export_run("r"),
    "info": lambda store: store.info("r"),
    "interrupt": lambda store: store.interrupt("r", now=NOW),
    "open_requests": lambda store: store.open_requests(),
    "pendings": lambda store: store.pendings(),
    "prune": lambda store: store.prune(NOW, now=NOW),
    "read": lambda store: store.read("r"),
    "release": lambda store: store.release("r", epoch=1),
    "renew": lambda store: store.renew("r", epoch=1, until=UNTIL),
    "runs": lambda store: store.runs(),
    "verify": lambda store: store.verify("r"),
    "wait": lambda store: store.wait("r", after=0),
}


def empty(then: Callable[[Any], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    return lambda: then(MemoryStore())


def begun(then: Callable[[Any], Awaitable[object]], text: str = "{}") -> Callable[[], Awaitable[object]]:
    """On a store with a run of one record, which a driver holds."""

    async def provoke() -> object:
        store = MemoryStore()
        await create(store, record(text=text))
        return await then(store)

    return provoke


def closed(then: Callable[[Any], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        store = MemoryStore()
        await store.close()
        return await then(store)

    return provoke


def asking(then: Callable[[Any], Awaitable[object]], text: str) -> Callable[[], Awaitable[object]]:
    """On a store that lists a question of a run whose journal cannot be read."""

    async def provoke() -> object:
        store = MemoryStore()
        await parked(store)
        (listed,) = await store.open_requests()
        await store.delete("r", now=NOW)
        await create(store, record(text=text))
        due = type(listed)(run_id="r", request="q", kind="input", agent="clerk", asked_at=NOW, expires_at=NOW)
        change = Change(status="pending", at=NOW, asked=(due,))
        await store.append("r", [], after=1, epoch=2, change=change, release=True)
        return await then(store)

    return provoke


NEWER = '{"v":99,"facts":[]}'
NAMING = FITTING.keys() - {
    "abandoned",
    "create",
    "expire_due",
    "open_requests",
    "pendings",
    "prune",
    "release",
    "runs",
}
for name in NAMING:
    promise(f"overt.Store.{name} RunNotFound")(empty(FITTING[name]))
for name, fitting in FITTING.items():
    promise(f"overt.Store.{name} StoreError")(closed(fitting))
promise("overt.Store.create RunExists")(begun(FITTING["create"]))
promise("overt.Store.append RunConflict")(begun(lambda store: append(store, record(3), after=2)))
promise("overt.Store.claim RunConflict")(begun(claim))
promise("overt.Store.delete RunConflict")(begun(FITTING["delete"]))
promise("overt.Store.renew RunConflict")(begun(lambda store: store.renew("r", epoch=2, until=UNTIL)))
promise("overt.Store.runs UsageError")(empty(lambda store: store.runs(limit=-1)))
promise("overt.Store.open_requests UsageError")(empty(lambda store: store.open_requests(limit=-1)))
promise("overt.Store.pendings UsageError")(empty(lambda store: store.pendings(limit=-1)))
promise("overt.Store.expire_due UsageError")(empty(lambda store: store.expire_due(NAIVE)))
promise("overt.Store.interrupt UsageError")(begun(lambda store: store.interrupt("r", now=NAIVE)))
promise("overt.Store.abandoned UsageError")(empty(lambda store: store.abandoned(NAIVE)))
promise("overt.Store.prune UsageError")(empty(lambda store: store.prune(NAIVE)))
promise("overt.Store.verify UsageError")(empty(lambda store: store.verify(now=NAIVE)))
promise("overt.Store.import_run UsageError")(empty(lambda store: store.import_run("no run")))
promise("overt.Store.export_run JournalCorrupt")(begun(FITTING["export_run"]))
promise("overt.Store.export_run UnsupportedSchema")(begun(FITTING["export_run"], NEWER))
for name in ("expire_due", "interrupt", "pendings"):
    promise(f"overt.Store.{name} JournalCorrupt")(asking(FITTING[name], "{}"))
    promise(f"overt.Store.{name} UnsupportedSchema")(asking(FITTING[name], NEWER))
promise("overt.stores.ImmediateStore.append_now RunNotFound")(empty(append_now))
promise("overt.stores.ImmediateStore.append_now StoreError")(closed(append_now))
promise("overt.stores.ImmediateStore.append_now RunConflict")(begun(lambda store: append_now(store, epoch=2)))


async def exported() -> list[str]:
    store = MemoryStore()
    await parked(store)
    return (await store.export_run("r")).splitlines()


@promise("overt.Store.import_run RunExists")
async def imported_twice() -> None:
    store = MemoryStore()
    lines = await exported()
    await store.import_run(lines)
    await store.import_run(lines)


@promise("overt.Store.import_run JournalCorrupt")
async def imported_in_part() -> object:
    return await MemoryStore().import_run((await exported())[:-1])


@promise("overt.Store.import_run StoreError")
async def imported_into_a_closed_store() -> object:
    store = MemoryStore()
    await store.close()
    return await store.import_run(await exported())


@promise("overt.Store.import_run UnsupportedSchema")
async def imported_from_a_newer_release() -> object:
    head, *lines = await exported()
    said = json.loads(head)
    return await MemoryStore().import_run([json.dumps({**said, "format": 99}), *lines])


# ------------------------------------------------------------------ on a file


async def damaged(sql: str, then: Callable[[Store], Awaitable[object]]) -> object:
    """On a file with a run of one record, in which something has been changed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        store = SQLiteStore(path)
        await create(store, record())
        await store.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(sql)
        store = SQLiteStore(path)
        try:
            return await then(store)
        finally:
            await store.close()


promise("overt.Store.read JournalCorrupt")(lambda: damaged("UPDATE journal SET count = 9", FITTING["read"]))
promise("overt.Store.append JournalCorrupt")(
    lambda: damaged("INSERT INTO journal SELECT run_id, 2, count, text FROM journal", FITTING["append"])
)


# ------------------------------------------------------------------ the stores themselves


@promise("overt.stores.EncryptedStore.read UnsupportedSchema")
async def encrypted_by_a_newer_release() -> object:
    inner = MemoryStore()
    await create(inner, record(text="overt-later-9:abc:def"))
    return await EncryptedStore(inner, KEY).read("r")


promise("overt.stores.EncryptedStore DefinitionError")(lambda: EncryptedStore(MemoryStore(), "short"))
promise("overt.stores.PostgresStore DefinitionError")(lambda: PostgresStore("host=h", schema="no name"))
promise("overt.stores.Record ValueError")(lambda: Record(1, 1))
promise("overt.stores.SQLiteStore DefinitionError")(lambda: SQLiteStore(":memory:"))


@promise("overt.stores.PostgresStore.has_tables StoreError")
async def no_server() -> object:
    store = PostgresStore("host=127.0.0.1 port=1 dbname=x user=x", reconnect_timeout=0)
    try:
        return await store.has_tables()
    finally:
        await store.close()


# ------------------------------------------------------------------ operations


@promise("overt.operations.check DefinitionError")
async def checked_with_a_wrong_option() -> object:
    return await check(clerk, MemoryStore(), inbox_cap=-1)


@promise("overt.operations.check UsageError")
async def checked_with_two_stores() -> object:
    return await check(clerk, MemoryStore(), store=MemoryStore())


promise("overt.operations.check StoreError")(closed(lambda store: check(clerk, store)))


def followed(
    then: Callable[..., Callable[[], Awaitable[object]]], *text: str
) -> Callable[[], Awaitable[object]]:
    async def read(store: Store) -> None:
        async for _ in follow(store, "r"):
            pass

    return then(read, *text)


promise("overt.operations.follow UsageError")(lambda: follow(MemoryStore(), "r", after=-1))
promise("overt.operations.follow RunNotFound")(followed(empty))
promise("overt.operations.follow StoreError")(followed(closed))
promise("overt.operations.follow JournalCorrupt")(followed(begun))
promise("overt.operations.follow UnsupportedSchema")(followed(begun, NEWER))
