"""What `EncryptedStore` adds to a record, and what it adds to a turn on a file."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from time import process_time

from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.disk import turns

from overt.journal.store import Owner
from overt.stores import EncryptedStore, MemoryStore, Record, SQLiteStore, Store

SIZES = (500, 10_000)
"""Characters of a record; a turn appends two of some hundred."""
RECORDS = 1_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def written(store: Store, records: Sequence[Record]) -> float:
    """Return the CPU time of storing and reading records, in microseconds each."""
    begun = process_time()
    await store.create("run", records, agent="a", owner=Owner(id="o"), now=NOW, until=NOW)
    assert len([record.text for record in await store.read("run")]) == len(records)
    return (process_time() - begun) / len(records) * 1e6


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Microseconds a record in memory, and milliseconds a turn on a file; the floor is the same without."""
    if find_spec("cryptography") is None:
        return []
    key = EncryptedStore.generate_key()
    times, warm = (1, 0) if args.quick else (7, 1)
    rows: list[Row] = []
    for size in SIZES:
        records = [Record(1 + at, 1, text="x" * size) for at in range(RECORDS)]

        async def plain(records: Sequence[Record] = records) -> Numbers:
            return {"us": await written(MemoryStore(), records)}

        async def sealed(records: Sequence[Record] = records) -> Numbers:
            return {"us": await written(EncryptedStore(MemoryStore(), key), records)}

        got = await repeat({"plain": plain, "sealed": sealed}, times=times, warm=warm)
        name = f"a record of {size:,} characters, encrypted and decrypted"
        rows.append(row(name, got["sealed"]["us"], "µs", floor=got["plain"]["us"]))
    with tempfile.TemporaryDirectory(dir=args.disk) as folder:
        file = SQLiteStore(Path(folder) / "plain.db")
        closed = EncryptedStore(SQLiteStore(Path(folder) / "sealed.db"), key)
        try:
            got = await repeat(
                {"plain": lambda: turns(file), "sealed": lambda: turns(closed)}, times=times, warm=warm
            )
        finally:
            await file.close()
            await closed.close()
    rows.append(row("a turn on an encrypted file", got["sealed"]["cpu"], "ms", floor=got["plain"]["cpu"]))
    return rows


if __name__ == "__main__":
    main(measure)
