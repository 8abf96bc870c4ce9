"""Processes that start at once: an interpreter that has imported overt waits, and forks for every command.

`run(["ask.py", "yes"], cwd=…, env=…)` is what `subprocess.run([sys.executable, "ask.py", "yes"], …)` is, `start` what
`Popen` is: a process of its own with its own pid, which can be killed and whose end is told. Where there is no Linux,
`run` starts a fresh interpreter.

What differs from a fresh interpreter: modules of `PRELOADED` are imported already, so what happens on importing them is
not seen again; what Python reads of the environment when it starts (PYTHONHASHSEED, PYTHONWARNINGS, PYTHONIOENCODING,
options such as `-X`) is that of the waiting one, which has UTF-8; all share one hash seed; the parent is neither the
test nor the one that waits; after the exit handlers nothing is torn down. Threads, event loops and open files of the
test are not inherited: the waiting one has none.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PRELOADED = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "overt",
    "overt.stores",
    "overt.testing",
    "sqlite3",
)
SRC = Path(__file__).parents[1] / "src"


class Command:
    """A command that was started."""

    def __init__(self, report: IO[str]) -> None:
        self._report = report
        self.pid = self._told()

    def wait(self) -> int:
        """Wait for its end: the exit status, or less than 0 by the signal that killed it."""
        with self._report:
            return self._told()

    def _told(self) -> int:
        if line := self._report.readline():
            return int(line)
        self._report.close()
        _waiting.cache_clear()
        raise RuntimeError("the waiting interpreter has ended; its standard error says why, if it could")


@functools.cache
def _waiting() -> socket.socket:
    """The socket of this process's own waiting interpreter."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def start(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], files: Sequence[IO[str]]) -> Command:
    """Start `python *argv`; `files` are its standard input, output and error. On Linux only."""
    told, tells = os.pipe()
    job = json.dumps({"argv": [*argv], "cwd": str(cwd), "env": dict(env)}).encode()
    descriptors = [tells, *(file.fileno() for file in files)]
    try:
        socket.send_fds(_waiting(), [job], descriptors)
    except BrokenPipeError:
        # Somebody has killed it since; the next one serves as well.
        _waiting.cache_clear()
        socket.send_fds(_waiting(), [job], descriptors)
    finally:
        os.close(tells)
    return Command(os.fdopen(told, encoding="ascii"))


def run(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `python *argv` to its end, with `typed` as its standard input."""
    if sys.platform != "linux":
        command = [sys.executable, *argv]
        return subprocess.run(
            command, cwd=cwd, env=env, input=typed, text=True, capture_output=True, check=False
        )
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        files[0].write(typed)
        files[0].seek(0)
        command = start(argv, cwd=cwd, env=env, files=files)
        try:
            status = command.wait()
        except BaseException:
            # As `subprocess.run` does: a test that is cut off leaves nothing behind.
            with contextlib.suppress(ProcessLookupError):
                os.kill(command.pid, signal.SIGKILL)
            raise
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess([sys.executable, *argv], status, files[1].read(), files[2].read())


def _serve(control: socket.socket) -> list[str]:
    """Fork for every command; return in each of those, with its arguments, and end with whoever asks."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that only report
    while True:
        job, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 4)
        if not job:
            os._exit(0)
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        report, *standard = descriptors
        if child := os.fork():
            for descriptor in standard:
                os.close(descriptor)
            os.write(report, b"%d\n" % child)
            os.write(report, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            os._exit(0)
        os.close(report)
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        told = json.loads(job)
        os.chdir(told["cwd"])
        os.environ.clear()
        os.environ.update(told["env"])
        sys.path[:0] = [
            path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path
        ]
        return list(told["argv"])


def _become(argv: list[str]) -> None:
    """Go on as `python *argv`."""
    sys.excepthook = _uncaught
    match argv:
        case ["-c", code, *rest]:
            sys.argv, sys.modules["__main__"] = ["-c", *rest], types.ModuleType("__main__")
            sys.path.insert(0, "")
            # Not with the `from __future__` of this file.
            exec(compile(code, "<string>", "exec", dont_inherit=True), sys.modules["__main__"].__dict__)
        case ["-m", name, *_]:
            sys.argv = argv[1:]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case _:
            sys.argv = argv
            sys.path.insert(0, str(Path(argv[0]).absolute().parent))
            runpy.run_path(argv[0], run_name="__main__")


def _uncaught(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Leave out of a traceback what is only here."""
    while (
        trace
        and trace.tb_next
        and trace.tb_frame.f_code.co_filename in (__file__, "<string>", "<frozen runpy>")
    ):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _main() -> None:
    status = 0

    @atexit.register  # the first, so it is called last
    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    for name in PRELOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1, "what is forked has one thread"
    gc.freeze()
    argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        _become(argv)
    except BaseException as end:
        status = (end.code or 0) if isinstance(end, SystemExit) and isinstance(end.code, int | None) else 1
        if isinstance(end, KeyboardInterrupt):
            atexit.unregister(leave)  # the interpreter itself ends by that signal
        raise


if __name__ == "__main__":
    del sys.path[0]
    _main()
