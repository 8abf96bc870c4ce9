"""Each example does what it says, on both loops, from its script and over the wire."""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.demo.chat_server import Steps, chat_server

EXAMPLES = Path(__file__).parents[2] / "examples"
Play = Callable[..., str]


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OVERT_", "OPENAI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def play(
    tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Play:
    """Run an example as a program and return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(anyio, "run", functools.partial(anyio.run, backend=anyio_backend))

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("word", "said"), [("yes", "approved by ada"), ("no", "not refunded: declined")])
def test_approval_cli(play: Play, tmp_path: Path, word: str, said: str) -> None:
    assert "run refund-A-1001: pending: Waiting for an answer" in play("approval_cli", "start", "A-1001")
    answered = play("approval_cli", "answer", "refund-A-1001", word)
    assert f"approval: Refund 40.00 for A-1001? {word}\n" in answered
    assert "run refund-A-1001: done: I have dealt with order A-1001.\n" in answered
    assert said.encode() in (tmp_path / "approvals.db").read_bytes() + _write_ahead(tmp_path)


def _write_ahead(folder: Path) -> bytes:
    path = folder / "approvals.db-wal"
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize(("arguments", "error"), [(["answer", "gone", "yes"], "RunNotFound")])
def test_approval_cli_says_what_is_wrong(
    play: Play, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        play("approval_cli", *arguments)
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith(f"{error}: ")


def test_team_research(play: Play) -> None:
    said, *table = play("team_research").splitlines()
    assert said == "done: Windows came first, then tea, then salt."
    assert [line.split()[0] for line in table[3:]] == ["reader.1", "reader.2", "reader.3"]
    assert [line.split()[-1] for line in table[1:]] == ["800", "800", "200", "200", "200"]


def test_refund_clerk(play: Play) -> None:
    assert play("refund_clerk").splitlines() == [
        "cut off: interrupted, paid 1 time",
        "in_doubt: refund was entered and left without an outcome. Has it happened?",
        "approval: Send: Dear customer, order A-1001 is refunded.",
        "done: Refunded, and the customer knows.",
        "not repeated by the answer: ['refund']",
        "paid 1 time, 1 draft",
    ]


def test_budget_stop_and_extend(play: Play) -> None:
    assert play("budget_stop_and_extend").splitlines() == [
        "incomplete, maxToolCalls of root: 3 tool calls, 0 left, 100 tokens",
        "done: Four pages, nothing unusual.",
        "4 tool calls, 6 left, 200 tokens",
    ]


def test_cancel_and_recover(play: Play) -> None:
    assert play("cancel_and_recover").splitlines() == [
        "interrupted: Interrupted: the host was cancelled. (100 tokens)",
        "done: There are seven. (200 tokens)",
        "entered 2 times under 1 key",
    ]


REFUND = ("refund", {"order": "A-1001", "amount": 40})
WIRE: dict[str, tuple[Steps, str]] = {
    "approval_cli start A-1001": ({"refund": [[REFUND]]}, "pending: Waiting"),
    "team_research": (
        {
            "task": [[("task", {"agent": "reader", "prompt": subject}) for subject in ("tea", "salt")]],
            "read": [[("read", {"subject": "tea"})]],
        },
        "done: Said over the wire.",
    ),
    "refund_clerk": (
        {"refund": [[REFUND], [("write_letter", {"order": "A-1001"})]]},
        "done: Said over the wire.",
    ),
    "budget_stop_and_extend": (
        {"read_page": [[("read_page", {"number": number}) for number in range(1, 5)]]},
        "done: Said over the wire.",
    ),
    "cancel_and_recover": ({"count": [[("count", {})]]}, "done: Said over the wire."),
}


@pytest.mark.parametrize("command", WIRE)
def test_with_a_model_behind_an_endpoint(play: Play, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, said = WIRE[command]
    with chat_server(steps) as server:
        monkeypatch.setenv("OVERT_MODEL", "openai:tiny")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert said in play(*command.split())
    assert server.bodies


def test_every_example_is_tested() -> None:
    here = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert not [path.stem for path in EXAMPLES.glob("*.py") if path.stem not in here]
