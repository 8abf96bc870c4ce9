"""Who drives a run, and whether that process is still alive as far as this one can see."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import sys
import uuid
from pathlib import Path

from overt.journal.store import Owner

__all__ = ("is_dead", "owner_here")

_counter = itertools.count(1)


def owner_here() -> Owner:
    """Return a new owner of this process, different from every other.

    Nothing is cached, so a forked child gets an identity of its own. Each driver asks for one and keeps it.

    Returns:
        An owner with `host`, `pid` and, where there is `/proc`, `started`. On Windows `host` is empty: there the
        death of a process is not seen, and its claims run out by their time.
    """
    pid = os.getpid()
    started = _stat(pid)
    return Owner(
        id=f"{pid}-{next(_counter)}-{secrets.token_hex(8)}",
        host=_host(),
        pid=pid,
        started="" if started is None else started[1],
    )


def is_dead(owner: Owner) -> bool:
    """Say whether the process of `owner` is known to have ended.

    Args:
        owner: As stored with a claim, by this process or another.

    Returns:
        `True` only where it is certain: same machine and same process namespace, and no such process, one that
        has ended but was not collected, or one with another start time. `False` in every doubt.
    """
    if not owner.host or owner.pid <= 0 or owner.host != _host():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        # The process exists and belongs to somebody else, or the number is no process id.
        return False
    now = _stat(owner.pid)
    if now is None:
        # /proc may hide the processes of other users.
        return False
    state, started = now
    return state in "ZXx" or (owner.started not in ("", started))


def _host() -> str:
    """Name the machine and the namespaces in which its process ids and start times mean something."""
    if sys.platform == "win32":
        # os.kill(pid, 0) ends the process there instead of asking after it.
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # Containers share the boot id, and each has a process 1 of its own.
        return "/".join((boot, _namespace("pid"), _namespace("time")))
    except (OSError, ValueError):
        # Two machines may have one name; the hardware address, or chance where there is none, tells them apart.
        return f"{socket.gethostname()}/{uuid.getnode():x}"


def _namespace(kind: str) -> str:
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except FileNotFoundError:
        # Kernels before 5.6 have no time namespaces.
        return ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Return state and start time (clock ticks since boot) of a process, or `None` where they cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    return fields[0], fields[19]
