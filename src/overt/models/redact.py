"""Provider bodies without credentials and account identifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import cast

from overt._text import clean

__all__ = ("REDACTED", "denied", "redact")

REDACTED = "«redacted»"
_MAX_READ = 50_000
_MAX_DEPTH = 50

_NOUNS = (
    r"account|billing[ _-]account|client|customer|organi[sz]ation|org|owner|project|subscription|team|tenant|user"
    r"|workspace"
)
# Field names without their punctuation, in lower case.
_FIELDS = re.compile(
    r"(x|openai)?(apikey|organi[sz]ation|project)|(access|api|auth|id|refresh|session)?token|(set)?cookie|key|email"
    r"|authorization|bearer|credentials?|password|.*secret(key)?|enduser|resourcename"
    r"|(aws|billing|end)?(account|client|customer|organi[sz]ation|org|owner|project|subscription|team|tenant|user"
    r"|workspace)(id|name|number)?|.*(apikey|accountid|orgid)"
)
_PATTERNS = (
    # A key as providers write and mask it: sk-…, sk-proj-…, sk-ant-…, rk-…, AIza…, gsk_…, xai-…
    re.compile(r"(?<![A-Za-z0-9])(?:[srpg]k|gsk|csk|xai|pplx|hf|ak|nvapi)[-_][A-Za-z0-9*•._-]{4,}"),
    re.compile(r"(?<![A-Za-z0-9])(?:gh[opsu]|github_pat|r8|fw|xox[abpr])[-_][A-Za-z0-9*•_-]{8,}"),
    re.compile(r"(?<=arn:)(?:[\w-]*:){3}(\d{12})(?=:)"),
    re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{8,}"),
    re.compile(r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_.-]{8,}"),
    re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{8,}"),
    re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){0,2}"),
    re.compile(r"(?i)(?<=bearer )\s*[^\s\"',;]+|(?<=basic )\s*[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(
        r"(?<![A-Za-z0-9])(?:org|organization|proj|project|acct|account|user|usr|cus|team|ten|tenant|ws)[-_]"
        r"(?=[A-Za-z_-]{0,40}[0-9]|[A-Za-z0-9]{16})[A-Za-z0-9_-]{3,}"
    ),
    re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"),
    re.compile(
        r"(?i)\b(?:api[ _-]?key|secret|password|access[ _-]?token)[\"']?\s*(?:[:=]|is|provided:?)\s*[\"'`]?"
        r"([^\s\"'`,;)}]{4,})"
    ),
    # Resource names: projects/123, organizations/456
    re.compile(
        r"(?i)(?<![A-Za-z0-9])(?:projects|organi[sz]ations|folders|billingAccounts|customers|tenants)/([\w.:-]{2,})"
    ),
    re.compile(
        rf"(?i)\b(?:{_NOUNS})(?:[ _-]?(?:id|identifier|number|name|key))?[\"']?\s*(?:[:=#]|is\b)?\s*[\"'`(]?"
        r"((?=[\w.:-]{0,80}\d)[\w.:-]{4,}\w)"
    ),
)


def redact(body: str, secrets: Iterable[str | None] = ()) -> str:
    """Replace credentials and account identifiers in a provider's body by `«redacted»`.

    Replaced are: `secrets` wherever they stand; API keys, bearer tokens, JSON web tokens, URL passwords and e-mail
    addresses by their shape; the value of every JSON field whose name says that it is a key, a token, or the id or
    name of an account, organisation, project, user or the like, and that value again wherever else the body repeats
    it; and in prose the identifier after such a word.

    Args:
        body: The body as it came, JSON or not. What lies beyond 50,000 characters is dropped unread.
        secrets: Strings known to be secret; `None` and strings shorter than four characters are ignored.

    Returns:
        The body, JSON written compactly, without them.
    """
    known = {secret for secret in secrets if secret}
    cut = len(body) > _MAX_READ
    text = clean(body[:_MAX_READ])
    try:
        value: object = None if cut else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict | list):
        found: set[str] = set()
        walked = _walk(cast(object, value), found, secret=False, depth=0)
        known |= found
        # Only now is everything known that has to go, so fields are looked at once more, as text.
        text = clean(json.dumps(walked, ensure_ascii=False, separators=(",", ":")))
    elif cut:
        # The cut may have halved a key, which then no pattern knows.
        text = text[: -_MAX_READ // 50].rpartition(" ")[0]
    for secret in sorted(
        {form for item in known if len(item) >= 4 for form in _forms(item)}, key=len, reverse=True
    ):
        text = text.replace(secret, REDACTED)
    for pattern in _PATTERNS:
        text = pattern.sub(_replace, text)
    return text


def denied(kind: str, status: int | None) -> str | None:
    """Return all that may be said of a 401 or 403, whose body is about credentials; `None` for any other status."""
    if status not in (401, 403):
        return None
    return f"{kind} {status}: {'credentials were refused' if status == 401 else 'access was denied'}"


def _forms(secret: str) -> set[str]:
    escaped = {json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]}
    return {clean(secret), *map(clean, escaped)}


def _replace(match: re.Match[str]) -> str:
    if match.re.groups == 0:
        return REDACTED
    if REDACTED in match[1]:
        return match[0]
    start, end = match.span(1)
    offset = match.start()
    return match[0][: start - offset] + REDACTED + match[0][end - offset :]


def _walk(value: object, found: set[str], *, secret: bool, depth: int) -> object:
    if depth > _MAX_DEPTH:
        return REDACTED
    if isinstance(value, dict):
        items = cast(dict[str, object], value).items()
        return {key: _walk(item, found, secret=secret or _tells(key), depth=depth + 1) for key, item in items}
    if isinstance(value, list):
        return [_walk(item, found, secret=secret, depth=depth + 1) for item in cast(list[object], value)]
    if not secret or value is None or isinstance(value, bool):
        return value
    found.add(str(value))
    return REDACTED


def _tells(key: str) -> bool:
    return _FIELDS.fullmatch(re.sub(r"[^a-z0-9]", "", key.lower())) is not None
