"""Servers in processes: they die, hang and cannot be started, and nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from anyio.to_thread import run_sync

from overt import Answer, ResumePolicy, Runtime, Status
from overt.sources.mcp import ServerUnavailable, ToolServer
from overt.stores import MemoryStore
from overt.testing import VirtualClock, call, say
from tests.sources.kit import FAKE, Fake, agent, gone, ran, said

pytestmark = pytest.mark.anyio
ONE = pytest.mark.parametrize("anyio_backend", ["asyncio"])
SECRET = "s3cret-token-of-mine"


async def test_a_server_that_dies_in_a_call_costs_that_call(tmp_path: Path) -> None:
    async with Fake(tmp_path, env={"API_TOKEN": SECRET}) as fake:
        tools = await fake.server.tools()
        script = [call("fake__pid"), call("fake__die"), call("fake__pid"), say("end")]
        result, runtime = await ran(script, tools)
        first, second = fake.pids()
        await gone(first)
        before, died, after = said(runtime)
    assert result.status is Status.DONE
    assert (before.text, after.text) == (str(first), str(second))
    assert died.is_error
    assert died.text.startswith(f"MCP server 'fake': the program {sys.executable!r} ended the connection.")
    assert "Whether the call took effect is not known" in died.text
    assert died.metadata == {"mcp": {"server": "fake", "tool": "die", "outcome": "unknown"}}
    assert SECRET not in repr(runtime.transcript(result.handle))
    await gone(second)


@ONE
async def test_output_that_is_no_text_costs_nothing(tmp_path: Path) -> None:
    noisy = [{"name": name, "inputSchema": {"type": "object"}} for name in ("noise", "pid")]
    async with Fake(tmp_path, tools=noisy, call_timeout=10) as fake:
        script = [call("fake__noise"), call("fake__pid"), say("end")]
        result, runtime = await ran(script, await fake.server.tools())
        assert result.status is Status.DONE
        assert [message.text for message in said(runtime)] == ["heard", str(*fake.pids())]


async def test_one_that_was_killed_between_calls_is_started_again(tmp_path: Path) -> None:
    async with Fake(tmp_path) as fake:
        tools = await fake.server.tools()
        (first,) = fake.pids()
        os.kill(first, signal.SIGKILL)
        await gone(first)
        _, runtime = await ran([call("fake__pid"), say("end")], tools)
        assert [message.text for message in said(runtime)] == [str(pid) for pid in fake.pids()[1:]]
        assert len(fake.pids()) == 2


@ONE
async def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    server = ToolServer.stdio("nowhere", command=str(tmp_path / "none"), env={"API_TOKEN": SECRET})
    with pytest.raises(ServerUnavailable) as raised:
        await server.tools()
    assert str(raised.value) == (
        f"MCP server 'nowhere': the program {str(tmp_path / 'none')!r} cannot be started: No such file or directory"
    )
    assert raised.value.server == "nowhere"
    words = 'import sys; sys.exit(f\'no luck with {__import__("os").environ["API_TOKEN"]}\')'
    broken = ToolServer.stdio("broken", command=sys.executable, args=["-c", words], env={"API_TOKEN": SECRET})
    with pytest.raises(
        ServerUnavailable, match=r"ended the connection\. It wrote .* no luck with «redacted»"
    ):
        await broken.tools()


async def test_one_that_has_gone_for_good_is_an_error_result(tmp_path: Path) -> None:
    program = tmp_path / "server.sh"
    async with Fake(tmp_path) as fake:
        args = fake.server._endpoint.args  # type: ignore[union-attr]  # a program's
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', "utf-8")
        program.chmod(0o755)
        async with ToolServer.stdio("moved", command=str(program), args=args) as server:
            tools = await server.tools()
            await server.close()
            program.unlink()
            result, runtime = await ran([call("moved__pid"), call("moved__pid"), say("end")], tools)
    assert result.status is Status.DONE
    for message in said(runtime):
        assert message.is_error
        assert message.text.endswith("cannot be started: No such file or directory. The call was not made.")
        assert message.metadata["mcp"]["outcome"] == "not made"


@ONE
async def test_one_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async with Fake(tmp_path, env={"SLOW": "1"}, connect_timeout=0.3) as fake:
        with pytest.raises(ServerUnavailable, match=r"MCP server 'fake': it did not answer within 0\.3 s"):
            await fake.server.tools()
        await fake.until("begins")
        await gone(fake.pids()[0])


@ONE
async def test_one_that_is_closed_while_it_is_opened(tmp_path: Path) -> None:
    async with Fake(tmp_path, env={"SLOW": "1"}) as fake:
        failed: list[Exception] = []

        async def opens() -> None:
            try:
                await fake.server.tools()
            except ServerUnavailable as error:
                failed.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(opens)
            await fake.until("begins")
            await fake.server.close()
        assert [str(error) for error in failed] == ["MCP server 'fake': its connection was closed"]
        await gone(fake.pids()[0])


async def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Fake(tmp_path, call_timeout=60.0) as fake:
        tools = await fake.server.tools()
        worker = agent([[call("fake__hang_reading"), call("fake__hang")], say("end")], tools)
        runtime = Runtime(worker, store=MemoryStore(), clock=clock, resume_policy=ResumePolicy.CONTINUE)
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await fake.until("call hang", 2)
            await clock.advance(60)
        await fake.until("cancelled", 2)
        result = runtime.result()
        # What only reads has failed; of what may do something nobody knows whether it did.
        assert result.status is Status.PENDING
        assert [request.kind for request in result.pendings] == ["in_doubt"]
        answer = Answer[Any](id=result.pendings[0].id, ok=True, data={"outcome": "failed", "output": "no"})
        await runtime.resume(answer)
    assert [(message.text, message.is_error) for message in said(runtime)] == [
        ("fake__hang_reading timed out after 60 s", True),
        ("no", True),
    ]


async def test_a_cancelled_host_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    async with Fake(tmp_path) as fake:
        tools = await fake.server.tools()
        runtime = Runtime(agent([call("fake__hang"), say("end")], tools), store=MemoryStore())
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await fake.until("call hang")
            group.cancel_scope.cancel()
        await fake.until("cancelled")
        # The session is as good as before.
        _, after = await ran([call("fake__pid"), say("end")], tools)
        assert [message.text for message in said(after)] == [str(pid) for pid in fake.pids()]


async def test_closing_ends_calls_under_way(tmp_path: Path) -> None:
    async with Fake(tmp_path) as fake:
        tools = await fake.server.tools()
        worker = agent([call("fake__hang_reading"), call("fake__pid"), say("end")], tools)
        runtime = Runtime(worker, store=MemoryStore())
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await fake.until("call hang")
            await fake.server.close()
        first, second = fake.pids()
        hung, again = said(runtime)
    assert hung.is_error
    assert hung.text.startswith(
        "MCP server 'fake': its connection was closed. Whether the call took effect is not"
    )
    assert again.text == str(second)
    await gone(first)


async def test_opened_and_closed_by_any_task_in_any_order(tmp_path: Path) -> None:
    servers = [Fake(tmp_path, name) for name in "abc"]
    texts: list[str] = []

    async def opens(fake: Fake, *, task_status: TaskStatus[None]) -> None:
        tools = await fake.server.tools(only=["pid"])
        _, runtime = await ran([call(tools[0].name), say("end")], tools)
        texts.extend(message.text for message in said(runtime))
        task_status.started()

    async with anyio.create_task_group() as group:
        for fake in servers:
            await group.start(opens, fake)
    assert texts == [str(fake.pids()[0]) for fake in servers]

    async def closes(fake: Fake) -> None:
        await fake.server.close()

    async with anyio.create_task_group() as group:
        for fake in (servers[0], servers[2], servers[1]):
            group.start_soon(closes, fake)
    for fake in servers:
        await gone(fake.pids()[0])
        async with fake:
            pass


@ONE
async def test_shared_by_event_loops_of_both_kinds_and_threads(tmp_path: Path) -> None:
    async with Fake(tmp_path) as fake:
        tools = await fake.server.tools(only=["pid"])
        found: list[str] = []

        async def one() -> None:
            _, runtime = await ran([[call("fake__pid"), call("fake__pid")], say("end")], tools)
            found.extend(message.text for message in said(runtime))

        def elsewhere(backend: str) -> None:
            anyio.run(one, backend=backend)

        async with anyio.create_task_group() as group:
            for backend in ("trio", "asyncio", "trio"):
                group.start_soon(run_sync, elsewhere, backend)
            group.start_soon(one)
        assert found == [str(fake.pids()[0])] * 8, "one process for all"

        def closes() -> None:
            anyio.run(fake.server.close, backend="trio")

        await run_sync(closes)
        await gone(fake.pids()[0])


@ONE
async def test_a_server_nobody_uses_any_more_ends(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    tools = await fake.server.tools()
    _, runtime = await ran([call("fake__pid"), say("end")], tools)
    assert not said(runtime)[0].is_error
    del tools, runtime
    fake.server = None  # type: ignore[assignment]  # the last reference
    import gc

    gc.collect()
    await gone(fake.pids()[0])
    os.close(fake._reading)


SCRIPT = """
import os, sys, anyio
from overt import Agent
from overt.sources.mcp import ToolServer
from overt.testing import MockModel, call, say

server = ToolServer.stdio("fake", command=sys.executable, args=["-I", "-S", {fake!r}, {told!r}])
tools = []

async def main(seconds):
    tools[:] = await server.tools()
    agent = Agent("w", does="works", tools=tools, model=MockModel([call("fake__hang"), say("end")]))
    with anyio.move_on_after(seconds):
        await agent.run("go")

async def child():
    await server.tools()
    await server.close()

anyio.run(main, 0.05, backend={backend!r})
if {forks}:
    pid = os.fork()
    if not pid:
        anyio.run(child, backend={backend!r})
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    anyio.run(main, 0.05, backend={backend!r})
    sys.exit("the host has had enough")
"""


def test_nothing_is_left_at_the_end_of_the_process(tmp_path: Path, anyio_backend: str) -> None:
    """The second host forks a child, which has a connection of its own and leaves the parent's alone."""
    told, forks = tmp_path / "told", anyio_backend == "trio"
    script = SCRIPT.format(fake=str(FAKE), told=str(told), backend=anyio_backend, forks=forks)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=50, check=False
    )
    # Nobody complains: of no resource, thread or task.
    assert ran.stderr == ("the host has had enough\n" if forks else "")
    assert ran.returncode == forks
    lines = told.read_text("utf-8").splitlines()
    begun = [line.split()[1] for line in lines if line.startswith("begins")]
    assert sorted(line.split()[1] for line in lines if line.startswith("ends")) == sorted(begun)
    assert len(begun) == 1 + forks
    for pid in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_the_portal_is_a_daemon_and_one(tmp_path: Path) -> None:
    from overt.sources.mcp.portal import portal

    assert portal() is portal()
    (thread,) = (thread for thread in threading.enumerate() if thread.ident == portal().ident)
    assert thread.daemon
