"""Those who wait until something is so."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ("Watch", "Watches")


class Watch:
    """Somebody who waits.

    Whether it is so is looked at after every input that is decided, so that what two inputs of one append did is not
    missed; whoever waits is woken once the append is durable.
    """

    __slots__ = ("event", "holds", "idle", "so")

    def __init__(self, holds: Callable[[], bool], idle: Callable[[], bool] | None) -> None:
        self.holds: Callable[[], bool] = holds
        self.idle: Callable[[], bool] | None = idle
        """Whether it can no longer become so: nothing is being performed."""
        self.so: bool = False
        self.event: anyio.Event = anyio.Event()

    def look(self) -> bool:
        """Whether it is so, or has been."""
        self.so = self.so or self.holds()
        return self.so

    def over(self) -> bool:
        """Whether it can no longer become so."""
        return self.idle is not None and self.idle()


class Watches:
    """All who wait on one driver."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[Watch] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, holds: Callable[[], bool], idle: Callable[[], bool] | None = None) -> Watch:
        """Begin to watch."""
        watch = Watch(holds, idle)
        self._all.append(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        """Watch no longer."""
        self._all.remove(watch)

    def note(self) -> None:
        """See what is so, without waking anybody: it is not durable yet."""
        for watch in self._all:
            watch.look()

    def wake(self, *, stopped: bool) -> None:
        """Wake those for whom it is so; with `stopped`, everybody."""
        for watch in self._all:
            if stopped or watch.look() or watch.over():
                watch.event.set()
