"""The tables in PostgreSQL, and the statements on them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = (
    "ALONE",
    "BEGIN",
    "COMMIT",
    "FATE",
    "NOTIFY",
    "ROLLBACK",
    "SCHEMA_VERSION",
    "SETTINGS",
    "Statements",
    "channel",
    "migrations",
    "news",
    "tag",
)

SCHEMA_VERSION: Final = 1
"""Kept in `meta`."""

# Ids are compared byte by byte: the server's language may sort otherwise, and differently after an upgrade of its
# system. `fillfactor` leaves room for the next head beside the old one; it then costs no index anything, as long as
# none is on a column that every append changes.
_MIGRATIONS: Final = (
    (
        """
        CREATE TABLE {schema}.meta (
            application text NOT NULL,
            schema_version integer NOT NULL,
            deleted_epoch bigint NOT NULL
        )
        """,
        "INSERT INTO {schema}.meta VALUES ('overt', 0, 0)",
        """
        CREATE TABLE {schema}.runs (
            run_id text COLLATE "C" CONSTRAINT runs_pkey PRIMARY KEY,
            position bigint NOT NULL,
            epoch bigint NOT NULL,
            owner_id text,
            owner_host text,
            owner_pid bigint,
            owner_started text,
            until bigint,
            status text NOT NULL,
            agent text NOT NULL,
            created bigint NOT NULL,
            updated bigint NOT NULL,
            interrupt text,
            written bigint NOT NULL
        ) WITH (fillfactor = 70)
        """,
        "CREATE INDEX runs_status ON {schema}.runs (status)",
        """
        CREATE TABLE {schema}.journal (
            run_id text COLLATE "C" NOT NULL,
            position bigint NOT NULL,
            count bigint NOT NULL,
            text text NOT NULL,
            PRIMARY KEY (run_id, position)
        )
        """,
        """
        CREATE TABLE {schema}.requests (
            run_id text COLLATE "C" NOT NULL,
            request text COLLATE "C" NOT NULL,
            kind text NOT NULL,
            agent text NOT NULL,
            asked_at bigint NOT NULL,
            expires_at bigint,
            PRIMARY KEY (run_id, request)
        )
        """,
        "CREATE INDEX requests_asked_at ON {schema}.requests (asked_at, request)",
        "CREATE INDEX requests_expires_at ON {schema}.requests (expires_at) WHERE expires_at IS NOT NULL",
    ),
)

_HEAD = (
    "run_id, position, epoch, owner_id, owner_host, owner_pid, owner_started, until, status, agent, created, updated, "
    "interrupt, written"
)
_HEADS = (
    "unnest(%b::text[], %b::bigint[], %b::bigint[], %b::text[], %b::text[], %b::bigint[], %b::text[], %b::bigint[], "
    "%b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::text[], %b::bigint[])"
)
_SETTINGS = (
    "set_config('lock_timeout', %s, true), "
    # A process that was stopped in a transaction must not hold its runs for ever.
    "set_config('idle_in_transaction_session_timeout', '30s', true)"
)

BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
# In the transaction, since a pool gives each one another session. A role may have been told to be faster than safe.
SETTINGS: Final = f"SELECT set_config('synchronous_commit', 'on', true), {_SETTINGS}".encode()
COMMIT: Final = b"COMMIT"
ROLLBACK: Final = b"ROLLBACK"
FATE: Final = b"SELECT pg_xact_status(%s::text::xid8)"
ALONE: Final = b"SELECT pg_advisory_xact_lock(%s, %s)"
# A notification that is lost is made up for; it has a transaction of its own because those that notify commit one
# after the other, in the whole server.
NOTIFY: Final = (
    b"SELECT pg_notify(%s, payload), set_config('synchronous_commit', 'off', true) "
    b"FROM unnest(%b::text[]) AS payload"
)


def channel(schema: str) -> str:
    """Where notifications go."""
    return f"overt_{schema}"


def tag(run_id: str) -> str:
    """What stands for a run in a notification, which is short and holds no NUL."""
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def news(run_id: str, position: int | None) -> str:
    """Say that a run has reached a position, or, with `None`, was deleted."""
    return f"{tag(run_id)} {'gone' if position is None else position}"


def migrations(schema: str, *, since: int) -> list[bytes]:
    """What to execute for tables of version `since`, 0 for none, to be of version `SCHEMA_VERSION`."""
    return [_in(schema, statement) for step in _MIGRATIONS[since:] for statement in step]


class Statements:
    """The statements on the tables of one schema."""

    def __init__(self, schema: str) -> None:
        def write(text: str) -> bytes:
            return _in(schema, text)

        # What is there; asked of the tables of PostgreSQL, since its functions may remember what was before a lock.
        self.find: Final = (
            "SELECT relname::text FROM pg_catalog.pg_namespace LEFT JOIN pg_catalog.pg_class "
            "ON relnamespace = pg_namespace.oid AND relname IN ('meta', 'runs', 'journal', 'requests') "
            f"WHERE nspname = '{schema}'"
        ).encode()
        self.version: Final = write("SELECT application, schema_version FROM {schema}.meta")
        self.make_schema: Final = write("CREATE SCHEMA {schema}")
        self.set_version: Final = write(f"UPDATE {{schema}}.meta SET schema_version = {SCHEMA_VERSION}")
        self.lock_out: Final = write("LOCK TABLE {schema}.runs IN ACCESS EXCLUSIVE MODE")

        # Begin.
        self.lock: Final = write(
            f"SELECT {_HEAD} FROM {{schema}}.runs WHERE run_id = ANY(%b::text[]) ORDER BY run_id FOR UPDATE"
        )
        # After the rows are locked: an upgrade of the tables that came first is seen, a later one has to wait.
        meta = "SELECT schema_version, deleted_epoch, pg_current_xact_id()::text FROM {schema}.meta"
        self.meta: Final = write(meta)
        # For new runs: no run may be deleted until they are there with their epochs.
        self.meta_kept: Final = write(f"{meta} FOR SHARE")

        # Write.
        changed = (
            "position",
            "epoch",
            "owner_id",
            "owner_host",
            "owner_pid",
            "owner_started",
            "until",
            "status",
        )
        self.insert_runs: Final = write(f"INSERT INTO {{schema}}.runs ({_HEAD}) SELECT * FROM {_HEADS}")
        self.update_runs: Final = write(
            "UPDATE {schema}.runs AS runs SET "
            + ", ".join(
                f"{column} = new.{column}" for column in (*changed, "updated", "interrupt", "written")
            )
            + f" FROM {_HEADS} AS new({_HEAD}) WHERE runs.run_id = new.run_id"
        )
        self.insert_journal: Final = write(
            "INSERT INTO {schema}.journal (run_id, position, count, text) "
            "SELECT * FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::text[])"
        )
        self.insert_requests: Final = write(
            "INSERT INTO {schema}.requests (run_id, request, kind, agent, asked_at, expires_at) "
            "SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[]) "
            "ON CONFLICT (run_id, request) DO UPDATE SET kind = excluded.kind, agent = excluded.agent, "
            "asked_at = excluded.asked_at, expires_at = excluded.expires_at"
        )
        self.delete_requests: Final = write(
            "DELETE FROM {schema}.requests AS requests USING unnest(%b::text[], %b::text[]) AS old(run_id, request) "
            "WHERE requests.run_id = old.run_id AND requests.request = old.request"
        )
        self.delete_runs: Final = tuple(
            write(f"DELETE FROM {{schema}}.{table} WHERE run_id = ANY(%b::text[])")
            for table in ("journal", "requests", "runs")
        )
        self.raise_deleted: Final = write(
            "UPDATE {schema}.meta SET deleted_epoch = greatest(deleted_epoch, %s)"
        )

        # Read.
        self.head: Final = write(f"SELECT {_HEAD} FROM {{schema}}.runs WHERE run_id = %s")
        # Head and rows in one statement are of one moment. The rows begin with the one that holds the fact after
        # the given position.
        self.journal: Final = write(
            "SELECT runs.position, journal.position, journal.count, journal.text FROM {schema}.runs AS runs "
            "LEFT JOIN {schema}.journal AS journal ON journal.run_id = runs.run_id AND journal.position >= coalesce("
            "(SELECT max(position) FROM {schema}.journal WHERE run_id = %s AND position <= %s), 0) "
            "WHERE runs.run_id = %s ORDER BY journal.position"
        )
        self.headless: Final = write(
            "SELECT EXISTS (SELECT FROM {schema}.journal WHERE run_id = %s) "
            "AND NOT EXISTS (SELECT FROM {schema}.runs WHERE run_id = %s)"
        )
        self.positions: Final = write(
            "SELECT run_id, position FROM {schema}.runs WHERE run_id = ANY(%b::text[])"
        )
        self.written: Final = write(
            "SELECT run_id, written FROM {schema}.runs WHERE run_id = ANY(%b::text[])"
        )
        self.runs: Final = write(f"SELECT {_HEAD} FROM {{schema}}.runs")
        self.orphans: Final = tuple(
            (
                write(
                    f"SELECT DISTINCT run_id FROM {{schema}}.{table} WHERE run_id NOT IN "
                    "(SELECT run_id FROM {schema}.runs) ORDER BY run_id"
                ),
                what,
            )
            for table, what in (
                ("journal", "there is a journal and no head of it"),
                ("requests", "open requests are listed and there is no such run"),
            )
        )
        """What finds the run ids of rows that belong to no run."""
        self.requests: Final = write(
            "SELECT run_id, request, kind, agent, asked_at, expires_at FROM {schema}.requests"
        )


def _in(schema: str, text: str) -> bytes:
    """Put the name of the schema in; as bytes, which psycopg takes for a statement without asking where it is from."""
    return " ".join(text.replace("{schema}", f'"{schema}"').split()).encode()
