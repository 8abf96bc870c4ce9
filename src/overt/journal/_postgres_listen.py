"""The second connection of a PostgreSQL store: it hears which runs have moved on, and wakes the tasks that wait."""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import threading
import time
import weakref
from contextlib import suppress
from typing import Final, cast

import psycopg

from overt.errors import StoreError
from overt.journal._checks import used_after_close
from overt.journal._postgres_db import connect
from overt.journal._postgres_schema import Statements, channel, tag
from overt.journal._postgres_session import Row
from overt.journal._postgres_words import NotConnected, explain, is_final, is_lost
from overt.journal._waiting import Waiter

__all__ = ("Listener", "Waiting")

_LOOK = 1.0
"""Seconds after which whoever waits is compared with the tables: a notification may be lost, and a pool passes none."""


class Waiting(Waiter):
    """A task that waits until a run is past a position."""

    __slots__ = ("after", "error", "run_id")

    def __init__(self, run_id: str, after: int) -> None:
        super().__init__()
        self.run_id: Final = run_id
        self.after: Final = after
        self.error: StoreError | None = None
        """What it is to raise."""


class Listener:
    """A thread with a connection of its own. Holds no reference to its store; belongs to the process that made it.

    Args:
        conninfo: What to connect with, with every secret.
        name: The server and the schema, for messages.
        schema: The schema of the tables.
        store: What the store is called in messages.
        patience: Seconds to wait for a server to come back that was there before.
    """

    def __init__(self, conninfo: str, name: str, *, schema: str, store: str, patience: float) -> None:
        self.pid: Final = os.getpid()
        self._conninfo: Final = conninfo
        self._name: Final = name
        self._schema: Final = schema
        self._store: Final = store
        self._patience: Final = patience
        self._known = False
        self._statements: Final = Statements(schema)
        # Collecting garbage may call `stop` at any allocation, also while this thread holds it.
        self._lock: Final = threading.RLock()
        self._waiting: Final[dict[str, set[Waiting]]] = {}
        """By the tags of their runs."""
        self._stopping = False
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._thread: Final = threading.Thread(
            target=self._serve, name=f"overt listening to {name}", daemon=True
        )
        self._thread.start()
        _listeners.add(self)

    def add(self, run_id: str, after: int) -> Waiting:
        """Return a waiter that is woken when the run is past `after`, or gone, or the server cannot be heard.

        Raises:
            StoreError: The store is closed.
        """
        waiter = Waiting(run_id, after)
        with self._lock:
            if self._stopping:
                raise used_after_close(self._store)
            alone = not self._waiting
            self._waiting.setdefault(tag(run_id), set()).add(waiter)
            if alone:
                # The thread sleeps without end while nobody waits.
                self._ring()
        return waiter

    def remove(self, waiter: Waiting) -> None:
        """Forget one that waits no more."""
        with self._lock:
            run = tag(waiter.run_id)
            waiters = self._waiting.get(run, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(run, None)

    def stop(self) -> None:
        """Let the thread end; whoever waits is told that the store is closed."""
        if self.pid != os.getpid():
            return
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._ring()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds."""
        if self.pid == os.getpid():
            self._thread.join(timeout)

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            self._bell.send(b"\0")

    def _serve(self) -> None:
        with self._bell, self._ear, selectors.DefaultSelector() as bell:
            bell.register(self._ear, selectors.EVENT_READ)
            try:
                while not self._stopping:
                    if not self._waiting:
                        self._ear.recv(4096)
                        continue
                    try:
                        with self._connect(bell) as connection:
                            self._listen(connection)
                    except Exception as error:  # noqa: BLE001 - the tasks that wait raise it
                        # One that was lost is made again; if that fails, so do those who wait.
                        if self._stopping or not (is_lost(error) and self._known):
                            self._fail(error)
            finally:
                self._fail(used_after_close(self._store))

    def _connect(self, bell: selectors.BaseSelector) -> psycopg.Connection[Row]:
        deadline = time.monotonic() + (self._patience if self._known else 0)
        while True:
            try:
                connection = connect(self._conninfo)
            except NotConnected as error:
                if is_final(error) or time.monotonic() >= deadline or self._stopping:
                    self._known = False
                    raise
                if bell.select(0.1):
                    self._ear.recv(4096)
                continue
            self._known = True
            # A standby takes no listeners; looking has to do there.
            with suppress(psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.FeatureNotSupported):
                connection.execute(f'LISTEN "{channel(self._schema)}"'.encode())
            return connection

    def _listen(self, connection: psycopg.Connection[Row]) -> None:
        """Wake whoever is concerned, until the store is closed or the connection is lost."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._ear, selectors.EVENT_READ)
            look_at = 0.0
            while not self._stopping:
                now = time.monotonic()
                if now >= look_at and self._waiting:
                    self._look(connection)
                    look_at = now + _LOOK
                timeout = max(0.0, look_at - now) if self._waiting else None
                for key, _ in selector.select(timeout):
                    if key.fileobj is self._ear:
                        self._ear.recv(4096)
                for notice in connection.notifies(timeout=0):
                    run, _, position = notice.payload.partition(" ")
                    self._heard(run, int(position) if position.isdecimal() else None)

    def _look(self, connection: psycopg.Connection[Row]) -> None:
        with self._lock:
            runs = {waiter.run_id for waiters in self._waiting.values() for waiter in waiters}
        rows = connection.execute(self._statements.positions, (list(runs),)).fetchall()
        found = dict(cast("list[tuple[str, int]]", rows))
        for run_id in runs:
            self._heard(tag(run_id), found.get(run_id))

    def _heard(self, run: str, position: int | None) -> None:
        """Wake those who wait for less than `position`; with `None`, where the run is gone, all."""
        with self._lock:
            for waiter in [*self._waiting.get(run, ())]:
                if position is None or position > waiter.after:
                    waiter.wake()
                    self.remove(waiter)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            waiters = [waiter for waiters in self._waiting.values() for waiter in waiters]
            self._waiting.clear()
        for waiter in waiters:
            # Each task gets an exception, and a traceback, of its own.
            told = explain(error, self._name, run_id=waiter.run_id, committing=False)
            waiter.error = told if told is not error else used_after_close(self._store)
            waiter.wake()


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def _stop_all() -> None:
    """Close every connection before the interpreter goes."""
    listeners = list(_listeners)
    for listener in listeners:
        listener.stop()
    for listener in listeners:
        listener.join(timeout=5.0)


atexit.register(_stop_all)
