"""A throw-away PostgreSQL server for tests and benchmarks: in a temporary folder, gone when its maker is.

with throwaway() as server:
    psycopg.connect(server.dsn)
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ("NoServer", "Server", "find_programs", "throwaway")

# It lives as long as somebody holds its standard input open, so a killed test run leaves no server behind.
_KEEPER = """
trap '' INT TERM HUP
cat >/dev/null
cd "$1" && "$0/pg_ctl" -s -D data -m immediate stop
cd / && rm -rf "$1"
"""

_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
max_connections = 100
shared_buffers = 64MB
logging_collector = off
log_min_messages = fatal
"""


class NoServer(Exception):
    """The programs of a PostgreSQL server are not on this machine."""


class Server:
    """A running server. Its superuser is `postgres`, and there is a database of the same name."""

    def __init__(self, folder: Path, programs: Path, password: str) -> None:
        self.folder = folder
        self.password = password
        self._programs = programs

    @property
    def dsn(self) -> str:
        """How to connect, password and all."""
        return f"host={self.folder} user=postgres dbname=postgres password={self.password}"

    @property
    def log(self) -> str:
        """What the server wrote to its log so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._ctl("start", "-l", str(self.folder / "log"))

    def stop(self) -> None:
        """End it as a crash would, without farewells; what was committed is there at the next start."""
        self._ctl("stop", "-m", "immediate")

    def configure(self, line: str) -> None:
        """Add a line to `postgresql.conf`; a restart puts it into effect."""
        with (self.folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program as the server's user."""
        return subprocess.Popen(
            command,
            user=_user(),
            group=_group(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )

    def give(self, path: Path) -> None:
        """Make the server's user the owner of a path."""
        if (uid := _user()) is not None:
            os.chown(path, uid, _group() or -1)

    def _ctl(self, verb: str, *options: str) -> None:
        command = [
            str(self._programs / "pg_ctl"),
            "-s",
            "-w",
            "-D",
            str(self.folder / "data"),
            verb,
            *options,
        ]
        done = subprocess.run(
            command,
            check=False,
            user=_user(),
            group=_group(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if done.returncode:
            raise RuntimeError(f"pg_ctl {verb} failed: {self.log}")


def find_programs() -> Path:
    """Return the folder of `initdb`, `pg_ctl` and `postgres`, of the newest release that is installed.

    Raises:
        NoServer: There is none.
    """
    found = [Path(path).parent for name in ("initdb",) if (path := shutil.which(name))]
    # Debian keeps them off the PATH.
    found += sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")),
        key=lambda folder: float(folder.parent.name),
        reverse=True,
    )
    for folder in found:
        if (folder / "postgres").exists():
            return folder
    raise NoServer("no PostgreSQL server is installed (on Debian: apt-get install postgresql)")


@contextmanager
def throwaway() -> Iterator[Server]:
    """Make and start a server of its own; end it and remove its files at the end.

    It listens on a Unix socket only, asks for the password, and syncs to the disk as any other.

    Raises:
        NoServer: The programs are not on this machine.
    """
    programs = find_programs()
    # The path of a socket has about a hundred characters at most, and pytest's folders are longer.
    folder = Path(tempfile.mkdtemp(prefix="overt-pg-"))
    password = secrets.token_urlsafe(12)
    if (uid := _user()) is not None:
        os.chown(folder, uid, _group() or -1)
    keeper = subprocess.Popen(
        ["sh", "-c", _KEEPER, str(programs), str(folder)],
        stdin=subprocess.PIPE,
        user=_user(),
        group=_group(),
        start_new_session=True,
        cwd="/",
    )
    try:
        secret = folder / "password"
        secret.write_text(password, encoding="utf-8")
        secret.chmod(0o644)
        server = Server(folder, programs, password)
        subprocess.run(
            [
                *(str(programs / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-E", "UTF8"),
                *("--locale=C", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync"),
            ],
            check=True,
            user=_user(),
            group=_group(),
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        secret.unlink()
        server.configure(_SETTINGS.format(folder=folder))
        server.start()
        yield server
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait()


def _user() -> int | None:
    """The server refuses to run as root; `None` where nothing has to change."""
    return _account()[0]


def _group() -> int | None:
    return _account()[1]


def _account() -> tuple[int | None, int | None]:
    if os.geteuid() != 0:
        return None, None
    import pwd

    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        account = pwd.getpwnam("nobody")
    return account.pw_uid, account.pw_gid
