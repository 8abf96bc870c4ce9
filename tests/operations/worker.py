"""A process that drives the tree of `crew` on a SQLite file: it says where it is, and waits there to be told.

    python -m tests.operations.worker FILE WORLD POLICY VERB PAUSE…

`run` starts the run or finds it and goes on until it is done; `answer` answers the first request; `recover` recovers
once. The process stops at each place named in PAUSE, prints it, and goes on when it reads a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from overt import ResumePolicy, Runtime
from overt.clock import SystemClock
from overt.errors import OvertError
from overt.stores import SQLiteStore
from tests.durability.crew import LEAD, RUN, Host, World


def say(text: str) -> None:
    """Tell the test."""
    print(text, flush=True)


async def main(*given: str) -> None:
    """Do one verb and say how it ended."""
    path, world_path, policy, verb, *pauses = given
    world = World(path=Path(world_path))
    left = set(pauses)

    def at(place: str) -> None:
        if place in left:
            left.remove(place)
            say(f"at {place}")
            sys.stdin.readline()  # the whole process waits, as one that was stopped

    world.at = at
    store = SQLiteStore(path)
    host = Host(world, store, ResumePolicy(policy))
    try:
        if verb == "run":
            result = await host.run()
        else:
            runtime = await Runtime.open(LEAD, RUN, **host.options() | {"clock": SystemClock()})
            at("opened")
            if verb == "answer":
                result = await runtime.resume(host.answer(runtime.pendings()[0]))
            else:
                result = await runtime.recover()
        say(f"{result.status} {result.text}")
    except OvertError as error:
        say(f"{type(error).__name__} {error}")
    at("end")
    await store.close()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
