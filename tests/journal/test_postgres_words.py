"""The PostgreSQL store before it connects: what it needs, and that no secret of a DSN is ever said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from overt.errors import DefinitionError
from overt.stores import PostgresStore

SECRET = "s3cr3t"

WITHOUT_LOADING = """
import sys
import overt, overt.stores
assert overt.stores.PostgresStore
assert not [name for name in sys.modules if name.split(".")[0] in ("psycopg", "psycopg_binary")]
"""

WITHOUT_PACKAGE = """
import sys
sys.modules["psycopg"] = None
import overt.errors, overt.stores
try:
    overt.stores.PostgresStore("host=db.example")
except overt.errors.DefinitionError as error:
    assert "pip install 'overt[postgres]'" in str(error), error
else:
    raise AssertionError("it was made without the package")
"""


@pytest.mark.parametrize("script", [WITHOUT_LOADING, WITHOUT_PACKAGE], ids=["not loaded", "not there"])
def test_psycopg_is_asked_for_only_when_it_is_used(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (f"postgresql://bot:{SECRET}@db.example:5433/app", "host=db.example port=5433 dbname=app user=bot"),
        (f"postgres://bot@db.example/app?password={SECRET}", "host=db.example dbname=app user=bot"),
        (
            f"postgresql://bot%40corp:{SECRET}%40%2F@a:1,b:2/a%40b",
            "host=a,b port=1,2 dbname=a@b user=bot@corp",
        ),
        (f"host=/run/pg user=bot password='{SECRET} {SECRET}' sslpassword={SECRET}", "host=/run/pg user=bot"),
        (f"service=app password={SECRET} options='-c x={SECRET}'", "service=app"),
        (f"password={SECRET}", "the server of PGHOST and PGSERVICE"),
        ("", "the server of PGHOST and PGSERVICE"),
    ],
)
def test_the_repr_tells_the_server_and_no_secret(dsn: str, shown: str) -> None:
    store = PostgresStore(dsn, schema="runs_2")
    assert repr(store) == f"PostgresStore({shown!r}, schema='runs_2')"


@pytest.mark.parametrize(
    "dsn",
    [
        SECRET,
        f"postgresql+psycopg://bot:{SECRET}@db.example/app",
        f"host=db.example password=two {SECRET}",
        f"host=db.example {SECRET}=1",
        f"postgresql://bot:x@{SECRET}@db.example/app",
        f"postgresql://bot:x/{SECRET}@db.example/app",
        f"postgresql://bot:12/{SECRET}@db.example/app",
        f"postgresql://bot:{SECRET}/x@db.example/app",
        f"postgresql://bot@db.example/app?{SECRET}=1",
        f"host=db.example port={SECRET}",
    ],
)
def test_a_dsn_that_cannot_be_read_is_refused_without_being_quoted(dsn: str) -> None:
    with pytest.raises(DefinitionError, match="DSN") as caught:
        PostgresStore(dsn)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("schema", ["", "Runs", "pg_runs", "a-b", 'a"b', "1a", "a b", "ä", "a" * 58, "a\n"])
def test_a_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(DefinitionError, match="schema"):
        PostgresStore("", schema=schema)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_timeouts_are_numbers_of_seconds(seconds: float) -> None:
    with pytest.raises(DefinitionError, match="lock_timeout"):
        PostgresStore("", lock_timeout=seconds)
    with pytest.raises(DefinitionError, match="reconnect_timeout"):
        PostgresStore("", reconnect_timeout=seconds)
