from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.models.redact import REDACTED, redact

KEY = "sk-proj-Ab12_cd34-EF56"
ACCOUNT = "acct-zebra"
ORG = "org-9XyZ77aa"


def test_a_body_that_echoes_key_and_account_in_every_field_keeps_neither() -> None:
    told = f"Key {KEY} of {ACCOUNT} ({ORG}) is over its limit"
    body = {
        "error": {
            "message": told,
            "type": f"type {KEY}",
            "code": f"{ACCOUNT}/{ORG}",
            "param": KEY,
            "account_id": ACCOUNT,
            "details": [{"reason": told, "metadata": {"organization": ORG, KEY: [told, [ACCOUNT]]}}],
        },
        "request": {"headers": {"Authorization": f"Bearer {KEY}", "x-api-key": KEY}},
    }
    shown = redact(json.dumps(body), [KEY])
    for secret in (KEY, ACCOUNT, ORG):
        assert secret not in shown
    assert "is over its limit" in shown
    assert isinstance(json.loads(shown), dict)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abc123def456",
        "sk-ab***********wxyz",
        "sk-ant-api03-abcdef",
        "AIzaSyA1234567890abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl",
        "gsk_AbCdEf123456",
        "nvapi-AbCdEf123456",
        "ghp_AbCdEf123456AbCdEf",
        "xoxb-123456-AbCdEf",
        "org-AbCdEf123",
        "proj_abc123XYZ",
        "acct_1032D82eZv",
        "jo.doe+x@example.co.uk",
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "bad key: {}.", '{{"error": "no {} here"}}', "<b>{}</b>", "key='{}'"]
)
def test_known_shapes_go_without_being_named(secret: str, around: str) -> None:
    assert secret not in redact(around.format(secret))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("no access to arn:aws:bedrock:us-east-1:123456789012:profile/x", "123456789012"),
        ("arn:aws:iam::123456789012:role/y may not", "123456789012"),
        ("authorization: bearer tok.en/9", "tok.en/9"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("proxy https://bob:hunter2@host/x", "hunter2"),
        ("api_key=zzzz9", "zzzz9"),
        ("Account 123456789012 is not allowed", "123456789012"),
        ("organization ID: 77-acme", "77-acme"),
        (
            "subscription '0f8fad5b-d9cb-469f-a165-70867728950e' is disabled",
            "0f8fad5b-d9cb-469f-a165-70867728950e",
        ),
        ('{"user": {"id": "bob", "n": 81231}}', "81231"),
        ('{"tenantId": "blue", "message": "blue is out of credit"}', "blue"),
    ],
)
def test_values_go_by_what_stands_before_them(text: str, secret: str) -> None:
    shown = redact(text)
    assert secret not in shown
    assert REDACTED in shown


def test_what_helps_stays() -> None:
    text = json.dumps(
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens; see https://platform.openai.com/account/limits",
                "type": "invalid_request_error",
                "param": "messages[3].tool_calls[0].id",
                "code": "context_length_exceeded",
            },
            "request_id": "req_123456",
            "usage": {"total_tokens": 17},
        },
        separators=(",", ":"),
    )
    assert redact(text) == text
    assert redact("<html>502 Bad Gateway</html>") == "<html>502 Bad Gateway</html>"
    assert redact("") == ""


def test_a_key_with_characters_that_json_escapes_is_found() -> None:
    key = 'pa"ss\\wörd'
    for text in (json.dumps({"m": f"no {key}"}), json.dumps({"m": f"no {key}"}, ensure_ascii=False), key):
        shown = redact(text, [key])
        assert "wörd" not in shown
        assert "rd" not in shown


def test_a_key_halved_by_the_reading_limit_is_dropped() -> None:
    shown = redact("x " * 24_995 + KEY * 3, [KEY])
    assert KEY[:8] not in shown
    assert redact(json.dumps({"m": "y" * 100_000}))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "repeated", ["a", "a.", "account-", "org-", "sk-", "a@b.", "eyJa.", "://a:", "bearer ", "client "]
)
def test_no_body_takes_long(repeated: str) -> None:
    assert redact(json.dumps({"m": repeated * (40_000 // len(repeated))}))


def test_deep_and_broken_json_is_read_as_text() -> None:
    assert KEY not in redact("[" * 40_000 + KEY, [KEY])
    deep = json.dumps({"account": ACCOUNT})
    for _ in range(60):
        deep = f'{{"a":{deep}}}'
    assert ACCOUNT not in redact(deep)


@given(st.text(), st.text(min_size=4), st.text())
def test_a_known_secret_never_survives(before: str, secret: str, after: str) -> None:
    if secret in REDACTED:
        return
    for text in (f"{before}{secret}{after}", json.dumps({"message": f"{before}{secret}{after}"})):
        shown = redact(text, [secret])
        bare = shown.replace(REDACTED, "\0\0\0\0\0")
        assert secret not in bare or set(secret) == {"\0"}
