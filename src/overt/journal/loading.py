"""Rebuilding a run from its journal."""

from __future__ import annotations

from collections.abc import Iterable

from overt.core import facts as f
from overt.core.apply import apply_all
from overt.core.suspension import when
from overt.core.tree import Tree
from overt.errors import JournalCorrupt, StoreError
from overt.journal.codec import decode
from overt.journal.encrypted import sealed_as
from overt.journal.record import Record
from overt.journal.store import Store

__all__ = ("Log", "fold", "folded", "load", "refold", "trace_lines")

Log = list[tuple[int, int, list[f.Fact]]]
"""Position of the first fact, time, facts: one entry a record."""


def fold(tree: Tree, log: Log, rec: Record, run_id: str) -> None:
    """Apply one stored record.

    Raises:
        JournalCorrupt: It does not follow on from the tree.
        UnsupportedSchema: A newer release wrote it.
        StoreError: It is encrypted, and the store does not decrypt it.
    """
    if rec.position != tree.seq + 1:
        raise JournalCorrupt(f"run {run_id}, position {rec.position}: expected position {tree.seq + 1}")
    sealed = sealed_as(rec.text)
    if sealed is not None:
        raise StoreError(
            f"run {run_id}, position {rec.position}: the record is encrypted, with key {sealed[1]!r:.20}: wrap the "
            "store, EncryptedStore(store, key)"
        )
    at, facts = decode(run_id, rec)
    try:
        _check_times(at, facts)
        apply_all(tree, facts, at)
    except Exception as error:
        raise JournalCorrupt(
            f"run {run_id}, position {rec.position}: the facts do not follow on ({type(error).__name__}: {error})"
        ) from error
    log.append((rec.position, at, facts))


def _check_times(at: int, facts: Iterable[f.Fact]) -> None:
    """Refuse what would only be found out when it is shown: a time that is none."""
    when(at)
    for fact in facts:
        if (
            isinstance(fact, (f.CallAsked, f.WakeAsked, f.QuestionUpgraded))
            and fact.question.expires_at is not None
        ):
            when(fact.question.expires_at)


def refold(log: Log, durable: int) -> Tree:
    """Drop the entries of the log past `durable`, which could not be stored, and return the tree of the others.

    Whoever goes on reading the run sees what is in the store, not what was decided on the way there.
    """
    del log[durable:]
    tree = Tree()
    for _, at, facts in log:
        apply_all(tree, facts, at)
    return tree


async def load(store: Store, run_id: str) -> tuple[Tree, Log]:
    """Read a run.

    Raises:
        RunNotFound: The store has no such run.
        JournalCorrupt: The journal is damaged.
        UnsupportedSchema: A newer release wrote it.
    """
    return folded(run_id, await store.read(run_id))


def folded(run_id: str, records: Iterable[Record]) -> tuple[Tree, Log]:
    """Rebuild a run from all its records.

    Raises:
        JournalCorrupt: They are no whole journal of this run.
        UnsupportedSchema: A newer release wrote them.
    """
    tree, log = Tree(), Log()
    for rec in records:
        fold(tree, log, rec, run_id)
    if tree.run_id != run_id:
        what = f"is of run {tree.run_id!r}" if tree.seq else "is empty"
        raise JournalCorrupt(f"run {run_id}, position 1: the journal {what}")
    return tree, log


def trace_lines(log: Log) -> list[str]:
    """Return one line a fact, for people."""
    lines: list[str] = []
    for position, at, facts in log:
        stamp = when(at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        for offset, fact in enumerate(facts):
            rest = ", ".join(
                f"{name}={_short(value)}"
                for name, value in zip(fact._fields, fact, strict=True)
                if name != "handle" and value != type(fact)._field_defaults.get(name, object())
            )
            where = getattr(fact, "handle", "")
            lines.append(
                f"{position + offset:>5} {stamp} {where} {type(fact).__name__}({rest})".replace("  ", " ", 1)
            )
    return lines


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
