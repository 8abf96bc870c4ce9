"""A store that keeps records encrypted in another one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NoReturn, cast, final

from overt.errors import DefinitionError, JournalCorrupt, StoreError, UnsupportedSchema
from overt.journal.record import Record
from overt.journal.store import Change, Claim, ImmediateStore, Owner, Store
from overt.journal.wrapper import StoreWrapper

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ("EncryptedStore", "sealed_as")

SCHEME = "overt-aesgcm-1"
"""AES-256-GCM under a key derived for each run; a later scheme has another name."""
SIZE = 32
"""Bytes of a key."""
NONCE = 12
RUNS = 1_024
"""Runs whose derived keys are kept ready."""


def sealed_as(text: str) -> tuple[str, str, str] | None:
    """Return scheme, key id and data of a record's text; `None` where it is not encrypted."""
    if not text.startswith("overt-"):
        return None
    scheme, _, rest = text.partition(":")
    id, _, data = rest.partition(":")
    return scheme, id, data


@final
class _Key:
    """A key, which is nowhere to be seen, and the ciphers of the runs it was last used for."""

    __slots__ = ("_ciphers", "_secret", "id")

    def __init__(self, secret: bytes) -> None:
        self.id: Final = hashlib.sha256(b"overt key id\0" + secret).hexdigest()[:8]
        self._secret: Final = secret
        self._ciphers: Final[OrderedDict[str, AESGCM]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")

    def cipher(self, run_id: str) -> AESGCM:
        """Return the cipher of a run. A key for each: how often one may be used bounds a run, and not all of them."""
        found = self._ciphers.get(run_id)
        if found is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

            derived = HKDFExpand(SHA256(), SIZE, b"overt run\0" + run_id.encode()).derive(self._secret)
            found = self._ciphers[run_id] = AESGCM(derived)
            if len(self._ciphers) > RUNS:
                self._ciphers.popitem(last=False)
        return found


class EncryptedStore(StoreWrapper):
    """Keeps the journals of `inner` encrypted: nobody who has the file or the database reads them without the key.

    Each record is encrypted and authenticated with AES-256-GCM, under a nonce of its own and a key derived for its run,
    and bound to its run, position and count: a record that was changed or moved is refused. That the newest records
    were removed, or that all of a run was put back to an earlier state, cannot be seen.

    What a store lists stays readable, because lists are made without the key: ids of runs, requests and drivers, names
    of agents, kinds of requests, statuses, times, positions, how long a record is, and the reason of an interrupt that
    was asked for.

    It offers what `inner` offers: with a `MemoryStore` it appends at once.

    ```python
    from overt.stores import EncryptedStore, SQLiteStore

    key = EncryptedStore.generate_key()  # once; kept where the other secrets are
    store = EncryptedStore(SQLiteStore("runs.db"), key)
    ```

    Args:
        inner: Where the records are kept.
        key: What `generate_key` returned, or 32 bytes of your own, as random as those. New records are encrypted with
            it.
        old_keys: Keys of records that are there already. To change the key, give the new one as `key` and the one
            before here.
        allow_plain: Read records that are not encrypted as they are: those of runs that began before encryption was
            switched on. Without it they are refused, since somebody else may have written them.

    Raises:
        DefinitionError: A key is none, or the package `cryptography` is missing: `pip install 'overt[encryption]'`.
    """

    def __init__(
        self,
        inner: Store,
        key: str | bytes,
        *,
        old_keys: Iterable[str | bytes] = (),
        allow_plain: bool = False,
    ) -> None:
        try:
            from cryptography.exceptions import InvalidTag
        except ImportError as error:
            raise DefinitionError(
                "EncryptedStore needs the package 'cryptography': pip install 'overt[encryption]'"
            ) from error
        super().__init__(inner)
        if isinstance(cast("object", old_keys), (str, bytes)):
            raise DefinitionError(
                "EncryptedStore: old_keys has to be a list of keys, not a key: old_keys=[…]"
            )
        self._key: Final = _Key(_secret("key", key))
        self._keys: Final = {old.id: old for old in (_Key(_secret("old_keys", one)) for one in old_keys)}
        self._keys[self._key.id] = self._key
        self._allow_plain: Final = allow_plain
        self._refused: Final = (InvalidTag, ValueError)
        append_now = getattr(inner, "append_now", None)
        if append_now is not None:
            self._inner_now = cast("ImmediateStore", inner)
            # Of this one only: whoever asks whether a store appends at once looks for the method.
            vars(self)["append_now"] = self._append_now

    @staticmethod
    def generate_key() -> str:
        """Return a new random key, as text of 44 characters. Without it the records cannot be read by anybody."""
        return base64.urlsafe_b64encode(secrets.token_bytes(SIZE)).decode()

    @property
    def key_id(self) -> str:
        """Eight hex digits that say which key new records are encrypted with; nothing of the key follows from them."""
        return self._key.id

    def __repr__(self) -> str:
        return f"EncryptedStore({self.inner!r}, key {self._key.id})"

    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim:
        """`create` of the inner store, with the records encrypted."""
        sealed = self._sealed(run_id, records)
        return await self.inner.create(run_id, sealed, agent=agent, owner=owner, now=now, until=until)

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        """`append` of the inner store, with the records encrypted."""
        sealed = self._sealed(run_id, records)
        return await self.inner.append(
            run_id, sealed, after=after, epoch=epoch, change=change, release=release
        )

    def _append_now(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        sealed = self._sealed(run_id, records)
        return self._inner_now.append_now(
            run_id, sealed, after=after, epoch=epoch, change=change, release=release
        )

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """`read` of the inner store, with the records decrypted.

        Raises:
            JournalCorrupt: A record was changed, or is of another run or place; names run and position.
            StoreError: It is encrypted with a key that was not given, or not encrypted at all; says so.
            UnsupportedSchema: A newer release encrypted it in another way.
        """
        return [self._opened(run_id, record) for record in await self.inner.read(run_id, after=after)]

    # ------------------------------------------------------------ one record

    def _sealed(self, run_id: str, records: Sequence[Record]) -> list[Record]:
        return [Record(one.position, one.count, text=self._seal(run_id, one)) for one in records]

    def _seal(self, run_id: str, record: Record) -> str:
        nonce = secrets.token_bytes(NONCE)
        bound = _bound(self._key.id, run_id, record)
        data = self._key.cipher(run_id).encrypt(nonce, record.text.encode(), bound)
        return f"{SCHEME}:{self._key.id}:{_encoded(nonce + data)}"

    def _opened(self, run_id: str, record: Record) -> Record:
        return Record(record.position, record.count, text=self._open(run_id, record))

    def _open(self, run_id: str, record: Record) -> str:
        sealed, where = sealed_as(record.text), f"run {run_id}, position {record.position}"
        if sealed is None:
            if self._allow_plain:
                return record.text
            raise StoreError(
                f"{where}: the record is not encrypted; if it was written before encryption was switched on, "
                "EncryptedStore(…, allow_plain=True) reads it"
            )
        scheme, id, data = sealed
        if scheme != SCHEME:
            raise UnsupportedSchema(
                f"{where}: the record is encrypted as {scheme!r:.40}, which this release does not know; use a newer "
                "overt, or restore the record from a copy"
            )
        key = self._keys.get(id)
        if key is None:
            known = ", ".join(sorted(self._keys))
            raise StoreError(
                f"{where}: the record is encrypted with key {id!r:.20}, and the keys given are {known}: give that key "
                "too, as old_keys=[…]"
            )
        try:
            raw = _decoded(data)
            return key.cipher(run_id).decrypt(raw[:NONCE], raw[NONCE:], _bound(id, run_id, record)).decode()
        except self._refused as error:
            raise JournalCorrupt(
                f"{where}: the record cannot be decrypted: it was changed, or belongs to another run or place; "
                "restore it from a copy"
            ) from error


def _encoded(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode()


def _decoded(data: str) -> bytes:
    raw = binascii.a2b_base64(data, strict_mode=True)
    if _encoded(raw) != data:
        raise ValueError("its last character has bits that nobody wrote")
    return raw


def _bound(key_id: str, run_id: str, record: Record) -> bytes:
    """Return what a record is bound to: it cannot be read in another place."""
    return json.dumps([SCHEME, key_id, run_id, record.position, record.count]).encode()


def _secret(what: str, key: object) -> bytes:
    """Return the bytes of a key. No message shows any of it."""
    wanted = "what EncryptedStore.generate_key() returns, or 32 bytes"
    if isinstance(key, bytes):
        if len(key) == SIZE:
            return key
        raise DefinitionError(f"EncryptedStore: {what} has to be {wanted}, not {len(key)} bytes")
    if not isinstance(key, str):
        raise DefinitionError(f"EncryptedStore: {what} has to be {wanted}, not {type(key).__name__}")
    try:
        found = base64.b64decode(key.strip().translate(_URLSAFE), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != SIZE:
        # Not chained: the cause may show what was given.
        raise DefinitionError(
            f"EncryptedStore: {what} has to be {wanted}, not a text of {len(key)} characters"
        ) from None
    return found


_URLSAFE = str.maketrans("-_", "+/")
