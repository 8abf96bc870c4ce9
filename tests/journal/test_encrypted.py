"""Journals at rest: unreadable without the key, and no record of them can be changed or moved unnoticed."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.field import values

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, ToolResult, tool
from overt.errors import DefinitionError, JournalCorrupt, StoreError, UnsupportedSchema
from overt.journal.record import Record
from overt.journal.store import Change, Owner
from overt.stores import EncryptedStore, ImmediateStore, MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio

KEY = EncryptedStore.generate_key()
OTHER = EncryptedStore.generate_key()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "4929-1111-2222-3333"


@tool
async def charge(ctx: ToolContext, card: str) -> ToolResult:
    """Charge."""

    async def receipt() -> str:
        return f"receipt {SECRET}"

    kept = await ctx.once("receipt", receipt)
    answer = await ctx.ask(f"charge {SECRET}?", data={"card": SECRET})
    return ToolResult(f"{kept} {answer.data}", metadata={"card": SECRET})


CLERK = Agent(
    "clerk", does="charges", tools=[charge], model=MockModel([call("charge", card=SECRET), say(SECRET)])
)


async def drive(store: Store, run_id: str = "r", **options: Any) -> None:
    """Run to the end, with a stop in between."""
    result, _ = await CLERK.run(SECRET, store=store, run_id=run_id, **options)
    assert result.pending is not None
    runtime = await Runtime.open(CLERK, run_id, store=store)
    result = await runtime.resume(
        Answer(id=result.pending.id, ok=True, data=SECRET, reason=SECRET, by=SECRET)
    )
    assert (result.status, result.text) == (Status.DONE, SECRET)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def everything(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(folder.iterdir()))


# ------------------------------------------------------------------ what the file shows


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_nothing_of_a_run_is_in_the_file(path: Path, policy: ResumePolicy) -> None:
    plain = SQLiteStore(path.with_name("plain.db"))
    await drive(plain, resume_policy=policy)
    assert SECRET.encode() in everything(path.parent), "it would be found"
    await plain.close()
    path.with_name("plain.db").unlink()
    store = EncryptedStore(SQLiteStore(path), KEY)
    await drive(store, resume_policy=policy)
    found = everything(path.parent)
    assert len(list(path.parent.iterdir())) > 1, "the write-ahead log is looked at too"
    for word in (
        SECRET,
        base64.b64encode(SECRET.encode()).decode()[:-2],
        "charge",
        "receipt",
        '"kind"',
        "model_replied",
    ):
        assert word.encode() not in found
    for clear in ("clerk", "overt-aesgcm-1", store.key_id):
        assert clear.encode() in found
    await store.close()
    assert SECRET.encode() not in everything(path.parent)


async def test_two_records_of_the_same_words_differ() -> None:
    inner = MemoryStore()
    store = EncryptedStore(inner, KEY)
    rows = [Record(1, 1, text="same"), Record(2, 1, text="same")]
    await store.create("r", rows, agent="a", owner=Owner(id="o"), now=NOW, until=NOW)
    one, two = (rec.text for rec in await inner.read("r"))
    assert one != two
    assert [rec.text for rec in await store.read("r")] == ["same", "same"]


# ------------------------------------------------------------------ end to end


async def test_suspended_in_one_process_resumed_in_another(path: Path) -> None:
    store = EncryptedStore(SQLiteStore(path), KEY)
    book = values.Book(second=False)
    result, _ = await values.KEEPER.run("go", run_id=values.RUN, store=store, deps=book)
    assert result.status is Status.PENDING
    await store.close()
    program = (
        "import anyio, sys; from overt.stores import EncryptedStore, SQLiteStore; from tests.field import values;"
        "values.open_store = lambda path: EncryptedStore(SQLiteStore(path), sys.argv[2]);"
        "anyio.run(values.main, sys.argv[1])"
    )
    done = await anyio.run_process(
        [sys.executable, "-W", "error", "-c", program, str(path), KEY],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parent.parent.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert lines[-1] == "done end"
    assert {f"once {name}" for name in values.VALUES} <= set(lines)
    store = EncryptedStore(SQLiteStore(path), KEY)
    runtime = await Runtime.open(values.KEEPER, values.RUN, store=store, deps=book)
    assert runtime.result().status is Status.DONE
    await store.close()


async def test_a_run_is_the_same_with_and_without(path: Path) -> None:
    plain, store = MemoryStore(), EncryptedStore(SQLiteStore(path), KEY)
    await drive(plain, clock=VirtualClock(NOW))
    await drive(store, clock=VirtualClock(NOW))
    one = await Runtime.open(CLERK, "r", store=plain)
    two = await Runtime.open(CLERK, "r", store=store)
    assert two.result() == one.result()
    assert [e.kind for e in two.events()] == [e.kind for e in one.events()]
    await store.close()


async def test_an_append_at_once_is_offered_where_the_inner_store_has_it(path: Path) -> None:
    at_once = EncryptedStore(MemoryStore(), KEY)
    assert isinstance(at_once, ImmediateStore)
    await drive(at_once)
    file = EncryptedStore(SQLiteStore(path), KEY)
    assert not isinstance(file, ImmediateStore)
    assert not hasattr(file, "append_now")
    await file.close()


# ------------------------------------------------------------------ keys


async def test_a_key_is_changed_and_what_was_written_before_is_still_read(path: Path) -> None:
    inner = SQLiteStore(path)
    result, _ = await CLERK.run("go", store=EncryptedStore(inner, KEY), run_id="r")
    store = EncryptedStore(inner, OTHER, old_keys=[KEY])
    runtime = await Runtime.open(CLERK, "r", store=store)
    assert result.pending is not None
    await runtime.resume(Answer(id=result.pending.id, ok=True))
    ids = [rec.text.split(":")[1] for rec in await inner.read("r")]
    assert ids == sorted(ids, key=lambda id: id == store.key_id), "the old ones first, then the new ones"
    assert set(ids) == {EncryptedStore(inner, KEY).key_id, store.key_id}
    assert (
        await Runtime.open(CLERK, "r", store=EncryptedStore(inner, KEY, old_keys=[OTHER]))
    ).result().text == SECRET
    with pytest.raises(StoreError, match="give that key too, as old_keys"):
        await Runtime.open(CLERK, "r", store=EncryptedStore(inner, OTHER))
    await inner.close()


async def test_a_wrong_key_is_named_by_its_id_and_the_run_stays_as_it_was(path: Path) -> None:
    inner = SQLiteStore(path)
    right, wrong = EncryptedStore(inner, KEY), EncryptedStore(inner, OTHER)
    result, _ = await CLERK.run("go", store=right, run_id="r")
    with pytest.raises(StoreError) as caught:
        await Runtime.open(CLERK, "r", store=wrong)
    assert str(caught.value) == (
        f"run r, position 1: the record is encrypted with key '{right.key_id}', and the keys given are "
        f"{wrong.key_id}: give that key too, as old_keys=[…]"
    )
    assert type(caught.value) is StoreError, "nothing is wrong with the journal"
    assert (await right.info("r")).owner is None
    runtime = await Runtime.open(CLERK, "r", store=right)
    assert runtime.pendings() == result.pendings
    await inner.close()


async def test_a_store_that_does_not_decrypt_says_so(path: Path) -> None:
    inner = SQLiteStore(path)
    store = EncryptedStore(inner, KEY)
    await drive(store)
    with pytest.raises(StoreError) as caught:
        await Runtime.open(CLERK, "r", store=inner)
    assert str(caught.value) == (
        f"run r, position 1: the record is encrypted, with key '{store.key_id}': wrap the store, "
        "EncryptedStore(store, key)"
    )
    assert type(caught.value) is StoreError
    await inner.close()


async def test_a_journal_from_before_encryption_is_read_with_a_flag_only(path: Path) -> None:
    inner = SQLiteStore(path)
    result, _ = await CLERK.run("go", store=inner, run_id="r")
    assert result.pending is not None
    with pytest.raises(StoreError, match=r"run r, position 1: the record is not encrypted.*allow_plain=True"):
        await Runtime.open(CLERK, "r", store=EncryptedStore(inner, KEY))
    mixed = EncryptedStore(inner, KEY, allow_plain=True)
    runtime = await Runtime.open(CLERK, "r", store=mixed)
    done = await runtime.resume(Answer(id=result.pending.id, ok=True, data=SECRET))
    assert done.text == SECRET
    texts = [rec.text for rec in await inner.read("r")]
    assert texts[0][0] == "{"
    assert texts[-1].startswith("overt-aesgcm-1:")
    assert (await Runtime.open(CLERK, "r", store=mixed)).result() == done
    await inner.close()


async def test_a_record_of_a_later_scheme_is_refused_by_name() -> None:
    inner = MemoryStore()
    rows = [Record(1, 1, text="overt-later-9:abc:def")]
    await inner.create("r", rows, agent="a", owner=Owner(id="o"), now=NOW, until=NOW)
    with pytest.raises(UnsupportedSchema, match=r"run r, position 1: .*'overt-later-9'"):
        await EncryptedStore(inner, KEY).read("r")


# ------------------------------------------------------------------ damage, and records in another's place


async def one_record(text: str = '{"v":2}', *, run_id: str = "r", position: int = 1, count: int = 2) -> str:
    inner = MemoryStore()
    rows = [Record(1, position - 1, text="x")] if position > 1 else []
    rows.append(Record(position, count, text=text))
    store = EncryptedStore(inner, KEY)
    await store.create(run_id, rows, agent="a", owner=Owner(id="o"), now=NOW, until=NOW)
    return (await inner.read(run_id))[-1].text


async def put(
    text: str, *, run_id: str = "r", position: int = 1, count: int = 2, **options: Any
) -> EncryptedStore:
    inner = MemoryStore()
    rows = [Record(1, position - 1, text=await one_record())] if position > 1 else []
    rows.append(Record(position, count, text=text))
    await inner.create(run_id, rows, agent="a", owner=Owner(id="o"), now=NOW, until=NOW)
    return EncryptedStore(inner, KEY, **options)


async def test_every_byte_counts() -> None:
    text = await one_record()
    assert [rec.text for rec in await (await put(text)).read("r")] == ['{"v":2}']
    for at in range(len(text)):
        for other in {"A", "0", ":", "\0", "é", text[at].swapcase()} - {text[at]}:
            store = await put(text[:at] + other + text[at + 1 :])
            with pytest.raises(StoreError, match="run r, position 1: "):
                await store.read("r")
        for shorter in (text[:at], text[:at] + text[at + 1 :]):
            with pytest.raises(StoreError, match="run r, position 1: "):
                await (await put(shorter)).read("r")


@pytest.mark.parametrize("place", [{"run_id": "other"}, {"position": 3}, {"count": 3}], ids=str)
async def test_a_record_in_another_place_is_refused(place: dict[str, Any]) -> None:
    text = await one_record()
    store = await put(text, **place)
    with pytest.raises(JournalCorrupt, match="belongs to another run or place") as caught:
        await store.read(place.get("run_id", "r"), after=place.get("position", 1) - 1)
    assert f"run {place.get('run_id', 'r')}, position {place.get('position', 1)}: " in str(caught.value)


async def test_records_swapped_in_the_file(path: Path) -> None:
    store = EncryptedStore(SQLiteStore(path), KEY)
    await drive(store, "one")
    await drive(store, "two")
    await store.close()
    with sqlite3.connect(path) as file:
        (text,) = file.execute("SELECT text FROM journal WHERE run_id = 'one' AND position = 1").fetchone()
        file.execute("UPDATE journal SET text = ? WHERE run_id = 'two' AND position = 1", (text,))
    file.close()
    store = EncryptedStore(SQLiteStore(path), KEY)
    with pytest.raises(JournalCorrupt, match=r"run two, position 1: .*cannot be decrypted"):
        await Runtime.open(CLERK, "two", store=store)
    assert (await Runtime.open(CLERK, "one", store=store)).result().text == SECRET, "the others stay usable"
    await store.close()


async def test_the_cipher_of_a_run_is_forgotten_and_made_again() -> None:
    store = EncryptedStore(MemoryStore(), KEY)
    runs = [f"r{n}" for n in range(1_100)]
    for run_id in runs:
        await store.create(
            run_id, [Record(1, 1, text=run_id)], agent="a", owner=Owner(id="o"), now=NOW, until=NOW
        )
    for run_id in runs:
        assert [rec.text for rec in await store.read(run_id)] == [run_id]


# ------------------------------------------------------------------ the key is nowhere to be seen


async def test_the_key_shows_nowhere(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = EncryptedStore(SQLiteStore(path), KEY, old_keys=[OTHER])
    await drive(store)
    raw = base64.urlsafe_b64decode(KEY)
    shown = [repr(store), str(store), repr(vars(store)), caplog.text]
    with pytest.raises(JournalCorrupt) as caught:
        await (await put(await one_record(), run_id="other")).read("other")
    shown += [str(caught.value), repr(caught.value.__cause__)]
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(store._key)
    for text in shown:
        for secret in (KEY, OTHER, repr(raw), raw.hex()):
            assert secret not in text
    assert raw not in everything(path.parent)
    assert KEY.encode() not in everything(path.parent)
    await store.close()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("s3cret", "a text of 6 characters"),
        ("", "a text of 0 characters"),
        ("é" * 44, "a text of 44 characters"),
        (b"s3cret", "6 bytes"),
        (b"", "0 bytes"),
        (None, "NoneType"),
        (KEY[:-2], "a text of 42 characters"),
    ],
    ids=["short", "empty", "letters", "few bytes", "no bytes", "none", "cut off"],
)
def test_what_is_no_key_is_refused_without_being_shown(key: Any, told: str) -> None:
    for options in ({"key": key}, {"key": KEY, "old_keys": [key]}):
        with pytest.raises(DefinitionError, match=told) as caught:
            EncryptedStore(MemoryStore(), **options)
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(DefinitionError, match="old_keys has to be a list"):
        EncryptedStore(MemoryStore(), KEY, old_keys=OTHER)


def test_a_key_is_text_or_bytes() -> None:
    raw = base64.urlsafe_b64decode(KEY)
    ids = {EncryptedStore(MemoryStore(), key).key_id for key in (KEY, f"{KEY}\n", raw)}
    assert len(ids) == 1
    assert len({EncryptedStore.generate_key() for _ in range(10)}) == 10


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(DefinitionError, match=r"pip install 'overt\[encryption\]'"):
        EncryptedStore(MemoryStore(), KEY)


async def test_a_claim_and_lists_pass_through(path: Path) -> None:
    store = EncryptedStore(SQLiteStore(path), KEY)
    rows = [Record(1, 1, text="a")]
    claim = await store.create(
        "r", rows, agent="a", owner=Owner(id="o"), now=NOW, until=NOW + timedelta(seconds=9)
    )
    await store.ask_interrupt("r", reason="stop")
    change = Change(status="running", at=NOW)
    more = [Record(2, 1, text="b")]
    assert await store.append("r", more, after=1, epoch=claim.epoch, change=change) == "stop"
    assert [info.status for info in await store.runs()] == ["running"]
    assert [rec.text for rec in await store.read("r", after=1)] == ["b"]
    await store.close()
