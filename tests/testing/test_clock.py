from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from overt.clock import Clock
from overt.testing import VirtualClock

pytestmark = pytest.mark.anyio


async def test_time_stands_still_until_advanced() -> None:
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    clock = VirtualClock(start)
    assert isinstance(clock, Clock)
    assert (clock.now(), clock.monotonic()) == (start, 0.0)
    for _ in range(10):
        await clock.advance(0.1)
    assert (clock.now(), clock.monotonic()) == (start + timedelta(seconds=1), 1.0)


async def test_sleepers_wake_in_time_order_and_see_their_own_time() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []

    async def sleep(name: str, *seconds: float) -> None:
        for each in seconds:
            await clock.sleep(each)
            seen.append((name, clock.monotonic()))

    async with anyio.create_task_group() as group:
        group.start_soon(sleep, "late", 5)
        group.start_soon(sleep, "chain", 1, 1, 1, 1)
        group.start_soon(sleep, "early", 2.5)
        await clock.wait_for_sleepers(3)
        await clock.advance(3)
        assert seen == [("chain", 1.0), ("chain", 2.0), ("early", 2.5), ("chain", 3.0)]
        assert clock.sleepers == 2
        await clock.advance(10)
    assert seen[4:] == [("chain", 4.0), ("late", 5.0)]


async def test_a_step_lets_tasks_reach_their_sleep_and_go_far_between_two() -> None:
    clock = VirtualClock()
    done: list[float] = []

    async def work() -> None:
        for _ in range(3):
            for _ in range(30):
                await anyio.lowlevel.checkpoint()
            await clock.sleep(1)
            send, receive = anyio.create_memory_object_stream[int](0)
            async with send, receive, anyio.create_task_group() as group:
                group.start_soon(send.send, 1)
                await receive.receive()
        done.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await clock.advance(60)
        assert done == [3.0]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5)
        group.start_soon(clock.sleep, float("inf"))
        await clock.wait_for_sleepers(2)
        group.cancel_scope.cancel()
    assert clock.sleepers == 0
    await clock.advance(10)


async def test_the_wall_clock_can_be_set_back() -> None:
    clock = VirtualClock()
    woken: list[float] = []

    async def sleep() -> None:
        await clock.sleep(2)
        woken.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(sleep)
        await clock.advance(1)
        clock.set_wall(datetime(2020, 1, 1, tzinfo=UTC))
        assert clock.monotonic() == 1.0
        await clock.advance(1)
    assert clock.now() == datetime(2020, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert woken == [2.0]


async def test_a_woken_task_may_advance_the_clock_itself() -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def nested() -> None:
        await clock.sleep(1)
        await clock.advance(5)
        seen.append(clock.monotonic())

    async with anyio.create_task_group() as group:
        group.start_soon(nested)
        with anyio.fail_after(5):
            await clock.advance(2)
    assert seen == [6.0]
    assert clock.monotonic() == 6.0


async def test_waiting_for_sleepers_ends_as_they_come() -> None:
    clock = VirtualClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.wait_for_sleepers, 2)
        group.start_soon(clock.sleep, 1)
        group.start_soon(clock.sleep, 1)
        with anyio.fail_after(5):
            await clock.wait_for_sleepers(2)
        await clock.wait_for_sleepers()
        await clock.advance(1)


async def test_sleeping_no_time_is_a_cancellation_point() -> None:
    clock = VirtualClock()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await clock.sleep(0)
    assert scope.cancelled_caught


async def test_what_is_no_time_is_refused() -> None:
    clock = VirtualClock()
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite"):
            await clock.advance(seconds)
    with pytest.raises(ValueError, match="NaN"):
        await clock.sleep(float("nan"))
    with pytest.raises(ValueError, match="timezone"):
        VirtualClock(datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="timezone"):
        clock.set_wall(datetime(2026, 1, 1))
