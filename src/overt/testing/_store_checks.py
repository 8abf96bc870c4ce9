"""What the conformance checks of stores are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, final

import anyio

from overt.errors import StoreError
from overt.journal.record import Record
from overt.journal.store import Change, OpenRequest, Owner, Store

__all__ = (
    "ALICE",
    "BOB",
    "NOW",
    "UNTIL",
    "StoreCheck",
    "at_once",
    "create_run",
    "expect",
    "expect_error",
    "make_records",
    "now_is",
    "read_texts",
)

E = TypeVar("E", bound=BaseException)

NOW = datetime(2024, 2, 29, 23, 59, 59, 123457, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
ALICE = Owner(id="alice")
BOB = Owner(id="bob")

_Body = Callable[[Store, Callable[[], Store]], Awaitable[None]]


@final
class StoreCheck:
    """One thing asked of a store. `str` of it is its name; calling it checks one fresh store.

    Attributes:
        name: What is asked, as an identifier.
        needs_reopen: Whether it opens the same journals a second time.
    """

    __slots__ = ("_body", "name", "needs_reopen")

    def __init__(self, body: _Body, *, needs_reopen: bool) -> None:
        self.name: Final[str] = body.__name__.strip("_") if hasattr(body, "__name__") else repr(body)
        self.needs_reopen: Final[bool] = needs_reopen
        self._body: Final = body

    def __repr__(self) -> str:
        return self.name

    async def __call__(
        self, make_store: Callable[[], Store], *, reopen: Callable[[], Store] | None = None
    ) -> None:
        """Check a store and close it.

        Args:
            make_store: Makes a store without runs; called once.
            reopen: Makes another store over the same journals, as another process would, while the first is open or
                after it was closed. Needed by `STORE_REOPEN_CHECKS` only.

        Raises:
            AssertionError: The store does not do what is asked.
            TypeError: The check needs `reopen`, and none was given.
        """
        opened: list[Store] = []

        def again() -> Store:
            if reopen is None:
                raise TypeError(f"the check {self.name!r} needs reopen=")
            opened.append(reopen())
            return opened[-1]

        if self.needs_reopen and reopen is None:
            raise TypeError(f"the check {self.name!r} needs reopen=")
        store = make_store()
        opened.append(store)
        try:
            await self._body(store, again)
        except AssertionError as error:
            raise AssertionError(f"{self.name}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{self.name}: the store raised {error!r}") from error
        finally:
            with anyio.CancelScope(shield=True):
                for one in reversed(opened):
                    await one.close()


def expect(actual: object, expected: object, what: str) -> None:
    """Fail unless `actual == expected`; `what` says what was compared."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {actual!r}")


async def expect_error(kind: type[E], what: str, call: Awaitable[object]) -> E:
    """Await `call` and return its error; fail unless it is a `kind`."""
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{what}: expected {kind.__name__}, but it was done")


def now_is(
    status: str, *, at: datetime = NOW, asked: tuple[OpenRequest, ...] = (), settled: tuple[str, ...] = ()
) -> Change:
    """What an append changes in the lists: the status, at `NOW`."""
    return Change(status=status, at=at, asked=asked, settled=settled)


def make_records(first: int, *texts: str) -> list[Record]:
    """Records of one fact each, the first at position `first`."""
    return [Record(first + place, 1, text=text) for place, text in enumerate(texts)]


async def create_run(store: Store, run_id: str, *texts: str, owner: Owner = ALICE) -> int:
    """Create a run that `owner` holds until `UNTIL`; return its epoch."""
    records = make_records(1, *texts)
    claim = await store.create(run_id, records, agent="agent", owner=owner, now=NOW, until=UNTIL)
    return claim.epoch


async def read_texts(store: Store, run_id: str, *, after: int = 0) -> list[str]:
    """The texts of the records after a position."""
    return [record.text for record in await store.read(run_id, after=after)]


async def at_once(calls: Sequence[Callable[[], Awaitable[object]]]) -> list[StoreError]:
    """Await all calls at once and return the errors of the refused ones."""
    refused: list[StoreError] = []
    failed: list[AssertionError] = []

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except StoreError as error:
            refused.append(error)
        except AssertionError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
    for error in failed:
        raise error
    return refused
