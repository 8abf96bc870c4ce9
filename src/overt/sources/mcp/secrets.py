"""What a server was given to identify itself with, kept out of everything that is shown, logged or recorded."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from pydantic import JsonValue

from overt.models.redact import REDACTED, redact

__all__ = ("Secrets", "guard_logs", "public_url")

_LEAST = 4
"""Characters a value has to have: shorter ones are words like `on`, and would be hidden everywhere."""
_NAMED = re.compile(
    r"key|token|secret|passw|passphrase|pwd|auth|cred|cookie|session|bearer|signature|private|dsn|salt",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[A-Za-z]+|[\d.,:-]+")
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


class Secrets:
    """Values that were given to one server, and texts without them.

    Every value of four characters or more is kept out of errors and logs. Out of results and questions, which a model
    goes on with, only those are that are secrets by their name (`API_KEY`, `Authorization`) or their look; a log level,
    a folder or a number stays what it is there.
    """

    __slots__ = ("__weakref__", "_all", "_sure")

    def __init__(self, env: Mapping[str, str], headers: Mapping[str, str], url: str = "") -> None:
        named = [*env.items(), *headers.items(), *_of_url(url)]
        named += [("password", found) for _, value in named for found in _IN_URL.findall(value)]
        found = {form: _is_sure(name, value) for name, value in named for form in _forms(value)}
        known = {form: sure for form, sure in found.items() if len(form) >= _LEAST}
        # A value inside another must not leave the rest of that one behind.
        self._all: Final = tuple(sorted(known, key=len, reverse=True))
        self._sure: Final = tuple(value for value in self._all if known[value])
        _known.add(self)

    def hide(self, text: str) -> str:
        """Return a text for models and the journal."""
        return _without(text, self._sure)

    def hide_in(self, value: JsonValue) -> JsonValue:
        """Return data for models and the journal, keys and all."""
        if not self._sure:
            return value
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(key): self.hide_in(item) for key, item in value.items()}
        return value

    def scrub(self, text: str) -> str:
        """Return a text for errors and logs: without the values, and without what looks like a credential."""
        return redact(_without(text, self._all), self._all)


def _without(text: str, values: Iterable[str]) -> str:
    for value in values:
        if value in text:
            text = text.replace(value, REDACTED)
    return text


def _forms(value: str) -> Iterable[str]:
    value = value.strip()
    yield value
    # `Bearer …`, `Basic …`, `Token …`: what stands behind the scheme is the secret, wherever it turns up.
    scheme, _, rest = value.partition(" ")
    if rest and scheme.isalpha():
        yield rest.strip()


def _is_sure(name: str, value: str) -> bool:
    if len(value.strip()) < _LEAST or _PLAIN.fullmatch(value.strip()):
        return _NAMED.search(name) is not None and len(value) >= _LEAST
    if _NAMED.search(name):
        return True
    looks_public = "/" in value or "\\" in value or " " in value.strip()
    return not looks_public and len(value) >= 8 and any(c.isdigit() for c in value)


def _of_url(url: str) -> Iterable[tuple[str, str]]:
    parts = urlsplit(url)
    for part in (parts.username, parts.password):
        if part:
            yield "password", part
            yield "password", unquote(part)
    yield from parse_qsl(parts.query)


def public_url(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


# ------------------------------------------------------------------ logs

_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
"""What the SDK and its HTTP client log under; `client` is a logger of the SDK's."""
_known: weakref.WeakSet[Secrets] = weakref.WeakSet()


class _Guard(logging.Filter):
    """Hides every known secret in what is logged in the portal's thread; elsewhere nothing is touched."""

    def __init__(self, thread: int | None) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        try:
            text = record.getMessage()
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
        except Exception:  # noqa: BLE001  # what cannot be written cannot be looked through
            text, record.exc_text = "a record that cannot be written", None
        record.exc_info = None
        for secrets in tuple(_known):
            text = secrets.scrub(text)
            record.exc_text = record.exc_text and secrets.scrub(record.exc_text)
        record.msg, record.args = text, ()
        return True


def guard_logs(thread: int | None = None) -> None:
    """Let what the SDK logs in a thread go through the guard; for loggers there are by now, and once each."""
    thread = threading.get_ident() if thread is None else thread
    for name in [*_LOGGERS, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] not in _LOGGERS:
            continue
        logger = logging.getLogger(name)
        if not any(isinstance(f, _Guard) and f._thread == thread for f in logger.filters):
            logger.addFilter(_Guard(thread))
