"""What a model is shown of a result, and what is kept out of it."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from overt.sources.mcp.results import cut, result_of
from overt.sources.mcp.secrets import Secrets, public_url
from overt.testing import call, say
from tests.sources.kit import Fake, ran, said

NONE = Secrets({}, {})


def shown(*content: Any, longest: int = 100_000, secrets: Secrets = NONE, **more: Any) -> Any:
    return result_of(CallToolResult(content=list(content), **more), secrets=secrets, longest=longest)


def test_bytes_are_never_shown() -> None:
    data = base64.b64encode(b"\x89PNG" * 500).decode()
    result = shown(
        TextContent(text="before"),
        ImageContent(data=data, mime_type="image/png"),
        AudioContent(data=base64.b64encode(b"x").decode(), mime_type="audio/wav"),
        EmbeddedResource(
            resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=data)
        ),
        EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="its text")),
        ResourceLink(name="a link", uri="https://example.com/a", mime_type="text/html"),
    )
    assert result.output.splitlines() == [
        "before",
        "[image, image/png, 2,000 bytes]",
        "[audio, audio/wav, 1 byte]",
        "[resource, file:///a.pdf, application/pdf, 2,000 bytes]",
        "[resource, file:///a.txt]",
        "its text",
        "[link, a link, https://example.com/a, text/html]",
    ]
    assert not result.metadata


def test_structured_content() -> None:
    both = shown(TextContent(text="said"), structured_content={"b": [1.5, None], "a": "é"})
    assert (both.output, both.metadata) == ("said", {"structured_content": {"b": [1.5, None], "a": "é"}})
    alone = shown(structured_content={"b": 1, "a": 2})
    assert alone.output == '{"a":2,"b":1}'
    failed = shown(structured_content={"why": "no"}, is_error=True)
    assert (failed.output, failed.is_error) == ('{"why":"no"}', True)
    assert shown(is_error=True).output == "The tool failed and says nothing more."
    assert shown().output == ""
    endless = shown(structured_content={"n": float("nan")})
    assert "NaN and infinities are no JSON" in endless.metadata["structured_content_left_out"]


def test_results_are_cut_where_it_shows() -> None:
    text = "".join(f"line {n}\n" for n in range(2_000))
    result = shown(TextContent(text=text), structured_content={"text": text}, longest=1_000)
    assert len(result.output) <= 1_000
    assert result.output.startswith("line 0\n")
    assert result.output.endswith("line 1999\n")
    left_out = int(result.output.split("[… ")[1].split(" of ")[0].replace(",", ""))
    marker = f"\n[… {left_out:,} of {len(text):,} characters left out …]\n"
    assert len(result.output) - len(marker) + left_out == len(text)
    assert result.metadata == {
        "structured_content_left_out": f"it has {len(text) + 2_000 + 11:,} characters, more than 1,000"
    }
    assert cut("abcdef", 3) == "ab…"
    assert cut("abcdef", 1) == "…"


def test_what_is_hidden_and_what_stays() -> None:
    env = {
        "API_TOKEN": "abracadabra",
        "PLAIN": "k3y-by-its-look",
        "LOG_LEVEL": "information",
        "FOLDER": "/srv/data",
        "PORT": "8080",
        "DATABASE": "postgres://ada:pass-99word@db.example/x",
    }
    secrets = Secrets(
        env, {"Authorization": "Bearer zyx987wvu"}, "https://u:pw-12345@h/p?key=abcdef12&page=22"
    )
    told = secrets.hide(f"{env} zyx987wvu pw-12345 abcdef12")
    for secret in ("abracadabra", "k3y-by-its-look", "pass-99word", "zyx987wvu", "pw-12345", "abcdef12"):
        assert secret not in told
    for word in ("information", "/srv/data", "8080", "db.example"):
        assert word in told, "a model has to go on with these"
        if word != "db.example":
            assert word not in secrets.scrub(told), "an error need not say them"
    assert secrets.hide_in({"abracadabra": ["x abracadabra", 1]}) == {"«redacted»": ["x «redacted»", 1]}
    assert public_url("https://u:p@h:1/p?key=1#x") == "https://h:1/p"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_server_was_given_does_not_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    env = {"API_TOKEN": "s3cret-of-ours", "FOLDER": str(tmp_path)}
    async with Fake(tmp_path, env=env) as fake:
        tools = await fake.server.tools()
        script = [[call("fake__env"), call("fake__nothing"), call("fake__echo", text="after")], say("end")]
        result, runtime = await ran(script, tools)
        shown_env, noise, after = said(runtime)
        assert noise.is_error, "there is no such tool"
    assert str(tmp_path) in shown_env.text
    assert "«redacted»" in shown_env.metadata["structured_content"]["API_TOKEN"]
    assert after.text == "after"
    assert result.text == "end"
    assert "Failed to parse JSONRPC message" in caplog.text, "the SDK tells of the line"
    journal = repr([event.model_dump() for event in runtime.events()])
    assert "s3cret-of-ours" not in journal + caplog.text + repr(fake.server)
    assert "PATH" in shown_env.metadata["structured_content"], "it has what programs need"
    assert "PYTEST_CURRENT_TEST" not in shown_env.metadata["structured_content"], "and nothing else of ours"
