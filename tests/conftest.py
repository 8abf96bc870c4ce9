"""What every test has: async tests run on asyncio and on trio."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

from tests.postgres import place, postgres, postgres_dsn, server

__all__ = ("anyio_backend", "place", "postgres", "postgres_dsn", "server")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test; others do not ask for it and run once."""
    return str(request.param)


HERE = Path(__file__).parent
WHOLE = (
    HERE / "core",
    HERE / "driver",
    HERE / "journal" / "test_conformance.py",
    HERE / "docs" / "test_pages.py",
)
"""Where every case runs on both loops: the rules, what performs them, what every store has to do, what pages show."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the loops the cases of a table like the fields of a chessboard: each test has both.

    So has each value where a second axis crosses its own. Along a single axis the loops take turns, and which of them
    begins is left to the test's name: else the first policy would never be seen on trio.

    `OVERT_EVERY_LOOP=1` runs every case on both, and so does a run of chosen tests.
    """
    chosen = config.option.keyword or any("::" in argument for argument in config.args)
    if chosen or os.environ.get("OVERT_EVERY_LOOP"):
        return
    tables: defaultdict[str, list[tuple[pytest.Item, object, int]]] = defaultdict(list)
    seen: defaultdict[tuple[str, str], dict[tuple[int, ...], int]] = defaultdict(dict)
    for item in items:
        values: dict[str, object] = dict(getattr(getattr(item, "callspec", None), "params", {}))
        loop = values.pop("anyio_backend", None)
        if loop is None or any(item.path.is_relative_to(place) for place in WHOLE):
            continue
        test = item.nodeid.partition("[")[0]
        rows = [mark.args[0] for mark in item.iter_markers("parametrize")]
        axes = [row.replace(" ", "").split(",") if isinstance(row, str) else list(row) for row in rows]
        axes += [[name] for name in values if not any(name in axis for axis in axes)]
        field = crc32(test.encode())
        for axis in axes:
            places = seen[test, axis[0]]
            field += places.setdefault(tuple(id(values.get(name)) for name in axis), len(places))
        tables[test].append((item, loop, field % 2))
    left_out: set[pytest.Item] = set()
    for cases in tables.values():
        loops = list(dict.fromkeys(loop for _, loop, _ in cases))
        # A table on one loop, or with one case, has nothing to share.
        if len(loops) == 2 and len({field for _, _, field in cases}) == 2:
            left_out.update(item for item, loop, field in cases if loops[field] != loop)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
