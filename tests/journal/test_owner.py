"""Identities of drivers, and what is known of their processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from overt.journal.owner import is_dead, owner_here
from overt.journal.store import Owner

PRINT_OWNER = """
import sys
from overt.journal.owner import owner_here
me = owner_here()
print(me.id, me.host, me.pid, me.started, sep="\\n", flush=True)
sys.stdin.read()
"""


def test_every_owner_is_another() -> None:
    owners = [owner_here() for _ in range(100)]
    assert len({one.id for one in owners}) == 100
    assert {one.pid for one in owners} == {os.getpid()}
    assert len({(one.host, one.started) for one in owners}) == 1


def test_this_process_lives() -> None:
    assert not is_dead(owner_here())


def test_nothing_is_known_of_other_machines() -> None:
    me = owner_here()
    assert not is_dead(Owner(id="x"))
    assert not is_dead(replace(me, host="elsewhere", pid=2**22 + 1))
    assert not is_dead(replace(me, pid=0))
    assert not is_dead(replace(me, pid=-1))
    assert not is_dead(replace(me, pid=2**80))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times come from /proc")
def test_a_reused_pid_is_another_process() -> None:
    me = owner_here()
    assert is_dead(replace(me, started="1"))
    assert not is_dead(replace(me, started=""))


@pytest.mark.skipif(sys.platform == "win32", reason="death is not seen there")
def test_a_killed_process_is_dead() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PRINT_OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    lines = [child.stdout.readline().rstrip("\n") for _ in range(4)]
    other = Owner(id=lines[0], host=lines[1], pid=int(lines[2]), started=lines[3])
    assert other.pid == child.pid
    assert other.host == owner_here().host
    assert not is_dead(other)
    child.kill()
    # Before it is waited for, the process is a zombie: nothing but a number is left of it.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if other.started:
        assert is_dead(other)
    child.communicate()
    assert is_dead(other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_another_owner() -> None:
    parent = owner_here()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        me = owner_here()
        os.write(into, f"{me.id} {me.pid}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    identity, pid = os.read(out, 1000).decode().split()
    os.close(out)
    os.close(into)
    assert int(pid) == child
    assert identity != parent.id
