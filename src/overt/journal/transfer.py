"""One run as JSON lines, out of a store and into another.

The first line says what comes: `{"overt": "run", "format": 1, "run_id", "agent", "status", "records", "position",
"sha256"}`, the last three for the lines that follow. Each of those is one record, exactly as it is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, cast

import anyio

from overt.core.suspension import when
from overt.core.tree import Tree
from overt.errors import JournalCorrupt, RunConflict, RunExists, StoreError, UnsupportedSchema, UsageError
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import Log, fold, folded
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.journal.store import Change, Claim, Owner, Store
from overt.journal.taking import LEASE, aware

__all__ = ("FORMAT", "export_run", "import_run")

FORMAT = 1
"""Version of the first line. History: 1, the first."""


class _Header(NamedTuple):
    run_id: str
    agent: str
    records: int
    position: int
    sha256: str


async def export_run(store: Store, run_id: str) -> str:
    """`Store.export_run`."""
    records = await store.read(run_id)
    tree, _ = folded(run_id, records)
    texts = [record.text for record in records]
    for record in records:
        if "\n" in record.text:
            raise StoreError(
                f"run {run_id!r}, position {record.position}: the record's text has more than one line"
            )
    header = {
        "overt": "run",
        "format": FORMAT,
        "run_id": run_id,
        "agent": tree.agent,
        "status": run_status(tree),
        "records": len(texts),
        "position": tree.seq,
        "sha256": _digest(texts),
    }
    return "".join(f"{line}\n" for line in (json.dumps(header, ensure_ascii=False), *texts))


async def import_run(store: Store, lines: str | Iterable[str], *, now: datetime | None = None) -> str:
    """`Store.import_run`."""
    at = aware(now, "now")
    header, records, tree, log = _checked(_split(lines))
    owner = owner_here()
    claim: Claim | None = None
    try:
        # Journal and lists come in one step, and what is there before it is an empty run.
        # Shielded, or nobody could tell whether there is an empty run to take back.
        with anyio.CancelScope(shield=True):
            claim = await _begin(store, header, created=when(log[0][1]), at=at, owner=owner)
        assert claim is not None  # a shield swallows nothing, which type checkers cannot see
        await store.append(
            header.run_id,
            records,
            after=0,
            epoch=claim.epoch,
            change=Change(status=run_status(tree), at=when(tree.now), asked=tuple(open_requests_of(tree))),
            release=True,
        )
    except BaseException:
        if claim is not None:
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await _take_back(store, header.run_id, claim, now=at)
        raise
    return header.run_id


async def _begin(store: Store, header: _Header, *, created: datetime, at: datetime, owner: Owner) -> Claim:
    try:
        return await store.create(
            header.run_id, (), agent=header.agent, owner=owner, now=created, until=at + LEASE
        )
    except RunExists as exists:
        # No driver leaves a run without a fact; an import whose process died does.
        info = await store.info(header.run_id)
        if info.position or info.agent != header.agent:
            raise
        try:
            return await store.claim(header.run_id, owner=owner, now=at, until=at + LEASE)
        except RunConflict:
            raise exists from None  # another process is importing it


async def _take_back(store: Store, run_id: str, claim: Claim, *, now: datetime) -> None:
    """Remove the empty run; one that has its records was imported."""
    info = await store.info(run_id)
    if (info.position, info.epoch) == (0, claim.epoch):
        await store.delete(run_id, now=now, force=True)


# --------------------------------------------------------------- reading the lines


def _split(lines: str | Iterable[str]) -> list[str]:
    # Not splitlines, which takes characters for line ends that JSON text may hold as they are.
    found = lines.split("\n") if isinstance(lines, str) else [line.removesuffix("\n") for line in lines]
    return found[:-1] if found and not found[-1] else found


def _checked(lines: Sequence[str]) -> tuple[_Header, list[Record], Tree, Log]:
    """Read all of a run.

    Raises:
        UsageError: The lines are no exported run.
        JournalCorrupt: One of them is damaged, or some are missing.
        UnsupportedSchema: A newer release wrote them.
    """
    header = _header(lines[0] if lines else "")
    tree, log, records = Tree(), Log(), list[Record]()
    for number, text in enumerate(lines[1:], 2):
        record = Record(tree.seq + 1, _facts_in(text), text=text)
        try:
            fold(tree, log, record, header.run_id)
        except (JournalCorrupt, UnsupportedSchema) as error:
            raise type(error)(f"line {number}: {error}; nothing was imported") from error
        records.append(record)
    found = (tree.run_id, tree.agent, len(records), tree.seq, _digest(lines[1:]))
    for what, is_so, said in zip(
        ("run", "agent", "records", "position", "sha256"), found, header, strict=True
    ):
        if is_so != said:
            raise JournalCorrupt(
                f"run {header.run_id}: line 1 says {what} {said!r}, the lines below it {is_so!r}: lines are missing, "
                "or were changed; nothing was imported"
            )
    return header, records, tree, log


def _header(line: str) -> _Header:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or cast("dict[str, Any]", row).get("overt") != "run":
        raise UsageError(
            "line 1: this is no exported run: export_run writes a first line that says what follows"
        )
    said = cast("dict[str, Any]", row)
    version = said.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UnsupportedSchema(
            f"line 1: the export has format {version}, this release reads up to {FORMAT}; use a newer overt"
        )
    fields = {name: said.get(name) for name in _Header._fields}
    kinds = {"run_id": str, "agent": str, "records": int, "position": int, "sha256": str}
    for name, kind in kinds.items():
        if version != FORMAT or type(fields[name]) is not kind:
            raise JournalCorrupt(
                f"line 1: the first line of the export is damaged ({name} is {fields[name]!r})"
            )
    return _Header(**cast("dict[str, Any]", fields))


def _facts_in(text: str) -> int:
    """Return how many facts a record has; 1 where it is none, which `fold` says."""
    try:
        facts: Any = json.loads(text)["facts"]
        return len(facts) or 1
    except (ValueError, TypeError, KeyError, RecursionError):
        return 1


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{text}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()
