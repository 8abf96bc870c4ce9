"""A run as a stream of what happens in it, while it happens."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, cast

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from typing_extensions import TypeVar

from overt._frozen import trusted
from overt.core import facts as f
from overt.core.suspension import when
from overt.driver.audience import Bell
from overt.driver.events import EventFold
from overt.errors import UsageError
from overt.events import Event, ReasoningDelta, ResultReady, TextDelta
from overt.result import TaskResult

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from overt.driver.loop import Driver
    from overt.runtime import Runtime

__all__ = ("RunStream",)

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)

BREATH = 100
"""Events after which a reader that never has to wait lets others run."""


class RunStream(Generic[OutputT_co]):
    """What happens in a run, event by event; the last one is `ResultReady` with the result.

    Made by `Agent.stream`, `Loop.stream`, `Runtime.stream` and `Runtime.follow`, and read inside `async with`:

    ```python
    import anyio

    from overt import Agent
    from overt.testing import MockModel

    planner = Agent("planner", does="Plans.", model=MockModel(["By train, then on foot."], chunk=15))

    async def main() -> None:
        async with planner.stream("Plan a trip.") as stream:
            async for event in stream:
                match event.kind:
                    case "text":
                        print(event.text, end="")
                    case "settled":
                        print(" |", event.handle)
                    case _:
                        pass
        result = await stream.result()
        print(result.status, result.total_tokens)
        #> By train, then on foot. | root/planner.1
        #> done 100

    anyio.run(main)
    ```

    Nothing runs before the first event is asked for: a stream that is not read calls no model. Events are of the whole
    tree and in the order of the journal, one for each fact that is stored, with `handle` and `position`; between them
    comes what models say, as `TextDelta` and `ReasoningDelta`, where a model can stream. That is said, not decided:
    guardrails on the final answer, and the completion gate, judge a reply when it is whole.

    Leaving early, by `break`, an exception, a timeout or a cancellation, cuts the run off: no task is left, and
    `runtime.recover()` goes on where it was. `Runtime.stream(after=position)` reads on behind the last event that was
    seen. Where the runtime itself works in the background (`async with runtime`), and of a run that is only followed,
    leaving ends the reading alone.

    A slow reader never slows the run, and misses no fact. Facts are in the journal, which the runtime has anyway: the
    stream only keeps its place in it. Pieces of text of one model call that have not been read are joined into one
    event, so what waits to be read is never more than the journal and one reply of each handle.

    What the run's verb would raise is raised to the reader. A stream has one reader at a time.
    """

    def __init__(
        self,
        runtime: Runtime[OutputT_co],
        *,
        work: Callable[[], Awaitable[TaskResult[OutputT_co]]],
        after: int | None = None,
    ) -> None:
        """Prepare a stream; nothing happens before its first event is asked for.

        Args:
            runtime: The run.
            work: What is streamed; awaited once, its result is the last event's.
            after: Position past which recorded events come first; `None`: those there are do not come.

        Raises:
            UsageError: `after` is no position.
        """
        if not _is_position(after):
            raise UsageError(f"after is a position in the journal, from 0, or None, not {after!r}")
        self._runtime = runtime
        self._feed = _Feed(runtime._driver, after)
        self._work = work
        self._group: TaskGroup | None = None
        self._entered = False
        self._started = False
        self._reading = False
        self._breath = 0
        self._ended = False
        """Whether there is nothing to wait for any more."""
        self._over = False
        """Whether the last event has been given, or whoever reads has been told that there is none."""
        self._result: TaskResult[OutputT_co] | None = None
        self._error: BaseException | None = None

    @property
    def runtime(self) -> Runtime[OutputT_co]:
        """The run: its handles, requests, ledger and recorded events."""
        return self._runtime

    def __repr__(self) -> str:
        return f"<RunStream of run {self._runtime.id}>"

    # ------------------------------------------------------------ reading

    async def __aenter__(self) -> Self:
        """Get ready to be read; nothing runs yet.

        Raises:
            UsageError: It has been entered before.
        """
        if self._entered:
            raise UsageError("a stream is entered once; make another one")
        self._entered = True
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop reading; what still runs for this stream is cut off.

        Raises:
            OvertError: What ended the run, as its verb raises it, where nobody has read that far.
        """
        group, self._group = self._group, None
        assert group is not None
        raised = exc[1]
        if self._started and not self._ended:
            group.cancel_scope.cancel()
        # A task group would wrap what the host raised; only its own cancellation has to go through it.
        cancelled = isinstance(raised, anyio.get_cancelled_exc_class())
        try:
            await group.__aexit__(*(cast("Any", exc) if cancelled else (None, None, None)))
        except BaseException:
            self._raise_untold(fatal=True)
            raise
        self._raise_untold(fatal=raised is not None)

    def _raise_untold(self, *, fatal: bool) -> None:
        """Raise what ended the run, where nobody has read that far; with `fatal`, only what is to end the process."""
        self._feed.close()
        error, self._error = self._error, None
        told, self._over = self._over, True
        try:
            if error is not None and not told and not (fatal and isinstance(error, Exception)):
                raise error
        finally:
            del error  # it knows this frame: a cycle that would keep the run

    def __aiter__(self) -> AsyncIterator[Event]:
        """Read on where reading was left off.

        Raises:
            UsageError: It is not inside `async with`.
        """
        self._check()
        return self

    async def __anext__(self) -> Event:
        """Return the next event.

        Raises:
            UsageError: It is not inside `async with`, or somebody else is reading.
            OvertError: What ended the run, as its verb raises it: see `Runtime.run`, `resume` and `recover`.
        """
        if self._group is None:
            self._check()
        if self._reading:
            raise UsageError("somebody reads this stream already; Runtime.follow makes another one")
        feed = self._feed
        self._reading = True
        try:
            if not self._started:
                self._start()
            elif self._breath >= BREATH:
                # Before an event is taken: what is cancelled here has lost none.
                self._breath = 0
                await checkpoint()
            while (event := feed.next()) is None:
                if self._ended:
                    return await self._last()
                self._breath = 0
                await feed.news.wait()
            self._breath += 1
            return event
        finally:
            self._reading = False

    async def result(self) -> TaskResult[OutputT_co]:
        """Read what is left, and return the result.

        Raises:
            UsageError: The stream was left before there was one, or somebody else is reading.
            OvertError: As `__anext__`.
        """
        if self._group is not None:
            async for _ in self:
                pass
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise UsageError(
                "this stream has no result: it was left before the end. runtime.result() says how the run stands"
                if self._entered
                else "read the stream inside `async with` first"
            )
        return self._result

    def _check(self) -> None:
        if self._group is None:
            raise UsageError(
                "this stream has been left; runtime.stream() or runtime.follow() makes another one"
                if self._entered
                else "read a stream inside `async with`: async with agent.stream(…) as stream: async for …"
            )

    async def _last(self) -> Event:
        told = self._over
        if not told and self._result is None and self._error is None and self._group is not None:
            # The run was cancelled. So is the reader, most often, and has not heard of it yet.
            await checkpoint()
            self._result = self._runtime.result()
        self._over = True
        if self._error is not None and not told:
            raise self._error
        if self._result is None:
            self._check()  # whoever entered the stream is leaving it, while another task reads
        if told or self._result is None:
            raise StopAsyncIteration
        return trusted(
            ResultReady,
            kind="result",
            position=self._feed.position,
            handle=self._result.handle,
            at=self._feed.now(),
            result=self._result,
        )

    # ------------------------------------------------------------ the run

    def _start(self) -> None:
        assert self._group is not None
        self._started = True
        self._feed.open()
        self._group.start_soon(self._run)

    async def _run(self) -> None:
        try:
            self._result = await self._work()
        except anyio.get_cancelled_exc_class():
            # asyncio lets anybody cancel this task alone; the reader is told then, and not cancelled for it.
            await checkpoint_if_cancelled()
        except BaseException as error:  # noqa: BLE001  # the reader's to raise, in the task of the host
            self._error = error
        finally:
            self._ended = True
            self._feed.close()


def _is_position(given: object) -> bool:
    return given is None or (isinstance(given, int) and given >= 0)


class _Feed:
    """What has been read of a run, and how far there is something to read."""

    __slots__ = (
        "_after", "_driver", "_entry", "_fold", "_pieces", "_ready", "_told", "_unread", "news", "position",
    )  # fmt: skip

    def __init__(self, driver: Driver, after: int | None) -> None:
        self._driver = driver
        self._after = after
        self._fold = EventFold()
        self._entry = 0
        """Which entry of the driver's log comes next."""
        self._ready: deque[Event] = deque()
        """What is left of the one before."""
        self._told = 0
        """Position up to which facts are stored."""
        self.position: int = 0
        """Position of the last fact in the entries that were read."""
        self._pieces: deque[_Piece] = deque()
        self._unread: dict[str, _Piece] = {}
        """The last piece of each handle that has not been read."""
        self.news = Bell()
        """Rings when there may be more."""

    def open(self) -> None:
        """Begin to listen."""
        driver = self._driver
        if driver.durable:
            position, _, facts = driver.log[driver.durable - 1]
            self._told = position + len(facts) - 1
        if self._after is None:
            self._after = self._told
        driver.listeners.append(self)
        driver.audience.add(self)

    def close(self) -> None:
        """Listen no more; what was heard can still be read."""
        if self in self._driver.listeners:
            self._driver.listeners.remove(self)
        self._driver.audience.remove(self)
        self.news.ring()

    def now(self) -> datetime:
        """The clock."""
        return when(self._driver.now())

    def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
        """Hear that facts are stored; they are read from the log."""
        self._told = position + len(facts) - 1
        self.news.ring()

    def piece(self, handle: str, call: object, *, reasoning: bool, text: str) -> None:
        """Hear what a model says."""
        before = self._unread.get(handle)
        if before is not None and before.call is call and before.reasoning is reasoning:
            before.texts.append(text)
            return
        piece = _Piece(handle, call, reasoning, text, self._told, self._driver.now())
        self._unread[handle] = piece
        self._pieces.append(piece)
        self.news.ring()

    def next(self) -> Event | None:
        """Return what comes next, as far as it is there."""
        pieces, ready, driver = self._pieces, self._ready, self._driver
        while not ready:
            if pieces and pieces[0].position <= self.position:
                piece = pieces.popleft()
                if self._unread.get(piece.handle) is piece:
                    del self._unread[piece.handle]
                return piece.event()
            if self.position >= self._told:
                return None
            # A record at once: no piece was said between facts of one record.
            first, at, facts = driver.log[self._entry]
            self._entry += 1
            self.position = first + len(facts) - 1
            after = self._after or 0
            for position, fact in enumerate(facts, first):
                event = self._fold.feed(position, at, fact, tree=driver.tree)
                if position > after:
                    ready.append(event)
        return ready.popleft()


class _Piece:
    """Text of one model call that has not been read."""

    __slots__ = ("at", "call", "handle", "position", "reasoning", "texts")

    def __init__(self, handle: str, call: object, reasoning: bool, text: str, position: int, at: int) -> None:
        self.handle: str = handle
        self.call: object = call
        self.reasoning: bool = reasoning
        self.texts: list[str] = [text]
        self.position: int = position
        self.at: int = at

    def event(self) -> TextDelta | ReasoningDelta:
        """Return it as its reader sees it."""
        position, handle, at, text = self.position, self.handle, when(self.at), "".join(self.texts)
        if self.reasoning:
            return trusted(
                ReasoningDelta, kind="reasoning", position=position, handle=handle, at=at, text=text
            )
        return trusted(TextDelta, kind="text", position=position, handle=handle, at=at, text=text)
