"""Processes that fork from an interpreter which waits are processes like others."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests import zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a fresh interpreter is started")


def test_it_has_its_own_pid_folder_environment_arguments_and_input(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 1")
    (tmp_path / "one.py").write_text(
        "import beside, os, sys\nprint(os.getpid(), os.getcwd(), sys.argv, input(), __name__, os.environ)\n"
    )
    ran = [zygote.run(["one.py", "a b"], cwd=tmp_path, env={"X": "ü"}, typed="é\n") for _ in range(2)]
    assert ran[0].stderr == ""
    pids = [int(each.stdout.split()[0]) for each in ran]
    assert len({*pids, os.getpid()}) == 3
    assert ran[0].stdout.split(" ", 1)[1] == (
        f"{tmp_path} ['one.py', 'a b'] é __main__ environ({{'X': 'ü'}})\n"
    )
    assert zygote.run(["-c", "import beside; print(beside.x)"], cwd=tmp_path, env={}).stdout == "1\n"
    assert zygote.run(["-m", "beside"], cwd=tmp_path, env={}).returncode == 0


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("import atexit; atexit.register(print, 'bye')", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "in <module>\nZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import threading; threading.Thread(target=print, args=['bye']).start()", 0, ""),
    ],
)
def test_how_it_ends_is_told(tmp_path: Path, code: str, status: int, told: str) -> None:
    ran = zygote.run(["-c", code], cwd=tmp_path, env={})
    assert ran.returncode == status
    assert ran.stderr.endswith(told)
    assert ran.stdout == ("bye\n" if "bye" in code else "")


def test_an_exception_shows_only_the_program(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f():\n    raise ValueError(1)\nf()\n")
    ran = zygote.run(["one.py"], cwd=tmp_path, env={})
    assert [line.strip() for line in ran.stderr.splitlines() if "File" in line] == [
        'File "one.py", line 3, in <module>',
        'File "one.py", line 2, in f',
    ]


def test_several_at_once_and_one_is_killed(tmp_path: Path) -> None:
    with tempfile.TemporaryFile("w+") as nothing, tempfile.TemporaryFile("w+") as out:
        files = (nothing, out, out)
        waits = zygote.start(["-c", "import signal; signal.pause()"], cwd=tmp_path, env={}, files=files)
        other = zygote.start(["-c", "print(1)"], cwd=tmp_path, env={}, files=files)
        assert other.wait() == 0
        os.kill(waits.pid, signal.SIGTERM)
        assert waits.wait() == -signal.SIGTERM
        out.seek(0)
        assert out.read() == "1\n"


def test_a_program_has_not_the_future_of_the_one_that_waits(tmp_path: Path) -> None:
    ran = zygote.run(["-c", "def f(x: int): ...\nprint(f.__annotations__)"], cwd=tmp_path, env={})
    assert ran.stdout == "{'x': <class 'int'>}\n"


def test_another_one_waits_where_it_was_killed(tmp_path: Path) -> None:
    parent = "import os; print(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])"
    waiting = int(zygote.run(["-c", parent], cwd=tmp_path, env={}).stdout)
    os.kill(waiting, signal.SIGKILL)
    os.waitid(os.P_PID, waiting, os.WEXITED | os.WNOWAIT)
    assert zygote.run(["-c", "print(1)"], cwd=tmp_path, env={}).stdout == "1\n"
