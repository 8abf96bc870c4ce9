"""What is said of a PostgreSQL server: where it is, without the password, and what went wrong there."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from overt.errors import DefinitionError, JournalCorrupt, StoreError

__all__ = ("NotConnected", "explain", "is_final", "is_lost", "parse")

_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service")
"""Of what a DSN may hold; none of these is secret."""

_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "overt",
}
"""Where the DSN says nothing: a server that has vanished from the network is noticed within a minute."""

# How libpq and the server word a connection that fails: there is no code then. First match counts. Waiting helps
# against those of the second list.
_FINAL = (
    ("password authentication failed", "the server refuses the user or the password: check both"),
    (
        "no password supplied",
        "the server asks for a password: put one into the DSN, PGPASSWORD or a passfile",
    ),
    ("no pg_hba.conf entry", "the server lets nobody in from here: its pg_hba.conf has to allow it"),
    (
        'database "',
        "the database does not exist, or the user may not connect to it: create it first, or name another",
    ),
    ('role "', "the server does not know the user: create the role first, or name another"),
)
_PASSING = (
    ("too many", "the server has no connection to spare: close some, or raise max_connections"),
    (
        "remaining connection slots",
        "the server has no connection to spare: close some, or raise max_connections",
    ),
    ("starting up", "the server is starting: try again in a moment"),
    ("shutting down", "the server is shutting down: try again when it is back"),
    ("resolve host", "the host's name is not known: check the DSN and the name service"),
    ("translate host name", "the host's name is not known: check the DSN and the name service"),
    ("certificate", "the server's certificate is not accepted: check sslmode and sslrootcert"),
    ("SSL", "no encrypted connection can be made: check sslmode"),
    ("refused", "nothing listens there: is the server running, and is it the right host and port?"),
    ("No such file", "nothing listens there: is the server running, and is it the right socket folder?"),
    (
        "timeout",
        "the server does not answer: is it the right host and port, and does the network let through?",
    ),
)

# SQLSTATE or its class.
_STATES = {
    "25006": "the server is read-only, a standby or told to be: connect to the primary "
    "(target_session_attrs=read-write)",
    "42501": "the user lacks the right: grant USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables, "
    "or CREATE on the database to have them made",
    "53100": "the server's disk is full: free space there and try again",
    "53200": "the server has run out of memory",
    "53300": "the server has no connection to spare: close some, or raise max_connections",
    "54000": "a value is too big for PostgreSQL",
    "55P03": "another transaction held the run longer than the lock timeout: end it, or give the store a longer "
    "lock_timeout",
    "57014": "the server cancelled the statement: check its statement_timeout",
    "58030": "the server's disk reported an input/output error: check its disk",
    "3D000": "the database does not exist",
    "3F000": "the schema is gone: was it dropped while the store was open?",
    "42P01": "a table is gone: was it dropped while the store was open?",
    "40": "other transactions got in the way again and again: try again",
    "42": "the tables are not as this release makes them: do they belong to another application?",
    "53": "the server is short of something: look into its log",
    "22": "a value cannot be stored",
    "XX": "the server reports damage or a fault of its own: look into its log",
}


class NotConnected(psycopg.OperationalError):
    """There is no connection, and none could be made."""


def parse(dsn: str) -> tuple[str, str]:
    """Check a DSN without connecting.

    Returns:
        What to connect with, and what may be shown of it.

    Raises:
        DefinitionError: It cannot be read. The message holds nothing of it, since any part may be the password.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error:
        # Raised below: the error quotes what it could not read, and would go along as the context.
        given = None
    if given is None:
        raise DefinitionError(
            "PostgresStore: the DSN cannot be read; it is 'postgresql://user:password@host:port/database' with "
            "%-escapes, or 'host=… port=… dbname=… user=… password=…' with values that hold spaces in single quotes"
        )
    if not str(given.get("port", "0")).replace(",", "").isdecimal() or (
        # Of a URI libpq takes what follows a raw '@' or '/' of the password for host, port and database.
        "://" in dsn
        and any("@" in str(given.get(key, "")) and str(given[key]) in dsn for key in ("host", "dbname"))
    ):
        raise DefinitionError(
            "PostgresStore: host, port and database cannot be told apart in the DSN; characters of the password that "
            "mean something in a URI are written as %40 for '@', %2F for '/', %3A for ':', %25 for '%'"
        )
    shown = {key: given[key] for key in _SHOWN if given.get(key)}
    where = make_conninfo("", **shown) or "the server of PGHOST and PGSERVICE"
    return make_conninfo("", **{**_DEFAULTS, **given, "client_encoding": "UTF8"}), where


def is_lost(error: BaseException) -> bool:
    """Whether `error` tells that there is no connection, or none any more."""
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, psycopg.errors.PipelineAborted):
        return False
    state = error.sqlstate
    return state is None or state[:2] == "08" or state in ("25P03", "57P01", "57P02", "57P03", "57P05")


def is_final(error: BaseException) -> bool:
    """Whether connecting again will fail as well."""
    return any(sign in str(error) for sign, _ in _FINAL)


def explain(error: Exception, where: str, *, run_id: str, committing: bool) -> StoreError:
    """Return `error` as a `StoreError` that names the server and says what to do.

    Args:
        error: What the operation raised.
        where: The server, without secrets.
        run_id: The run the operation was about.
        committing: Whether it came while the transaction was being written and committed.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return StoreError(
            f"{where}: run {run_id!r}: text with half of a surrogate pair cannot be stored ({error})"
        )
    if is_lost(error):
        lines = " ".join(str(error).split())
        if isinstance(error, NotConnected):
            signs = (*_FINAL, *_PASSING)
            advice = next((words for sign, words in signs if sign in lines), "no connection can be made")
        elif committing:
            advice = (
                "the connection was lost at the commit; whether it was written is unknown, read the run again"
            )
        else:
            advice = "the connection was lost, and nothing was written; the next call connects again"
        return StoreError(f"{where}: {advice} ({lines})")
    state = getattr(error, "sqlstate", None) or ""
    if state == "23505":
        return JournalCorrupt(
            f"{where}: run {run_id!r}: the journal holds rows where it should end, after the position of its head"
        )
    advice = _STATES.get(state) or _STATES.get(state[:2]) or "PostgreSQL could not do it"
    # The details of an error may quote what was to be stored.
    said = (error.diag.message_primary if isinstance(error, psycopg.Error) else None) or type(error).__name__
    return StoreError(f"{where}: run {run_id!r}: {advice} ({said})")
