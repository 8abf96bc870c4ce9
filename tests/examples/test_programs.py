"""Each example does what it says, on both loops, from its script and over the wire."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tools.site_names import public_modules

from overt import Agent, Allow, Deny, Doubt, GuardrailEvent, Retry, Succeeded, ToolCall
from overt.testing import MockModel, call, say
from tests.demo.chat_server import Steps, chat_server

EXAMPLES = Path(__file__).parents[2] / "examples"
Play = Callable[..., str]


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OVERT_", "OPENAI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def play(
    tmp_path: Path, anyio_backend: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Play:
    """Run an example as a program and return what it prints, it and the processes it starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(anyio, "run", functools.partial(anyio.run, backend=anyio_backend))

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        (path,) = EXAMPLES.rglob(f"{name}.py")
        runpy.run_path(str(path), run_name="__main__")
        said, warned = capfd.readouterr()
        assert not warned
        return said

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
    play: Play, capfd: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        play("approval_cli", *arguments)
    assert caught.value.code == 1
    assert capfd.readouterr().err.startswith(f"{error}: ")


def test_approval_queue(play: Play) -> None:
    started, first, second = play("approval_queue").split("\nJanuary 0")
    assert started.splitlines() == [
        "refunds started refund-1: pending",
        "refunds started refund-2: pending",
        "invoices started march: pending",
    ]
    assert first.splitlines()[1:3] == ["  expired in none", "  removed none"]
    assert "  march: Pay 900 to the printer? left for later" in first
    assert first.count(": done") == 2
    assert second.splitlines()[1:6] == [
        "  expired in march",
        "    march: pending (the printer is not paid: expired)",
        "  removed none",
        "  march: Pay 70 to the carrier? yes",
        "    march: done",
    ]
    assert second.splitlines()[-2:] == ["  removed refund-1, refund-2", "left: march done"]


def test_research_team(play: Play) -> None:
    *told, said, head, root, lead, tea, salt, windows, beards = play("research_team").splitlines()
    assert [line.split(":")[0] for line in told] == ["found", "found", "found", "failed"]
    assert told[1] == 'found: {"subject":"salt","title":"The salt march","year":1930}'
    assert told[3] == "failed: [incomplete] Stopped at maxToolCalls (3) without a final answer."
    assert said.startswith("done: Windows, in 1696;")
    assert head.split()[0] == "handle"
    # turns, tool calls, own tokens, total tokens
    assert root.split()[1:] == ["0", "0", "0", "1,500"]
    assert lead.split()[1:] == ["done", "2", "4", "200", "1,500"]
    assert [line.split()[1:] for line in (tea, salt, windows)] == [["done", "3", "2", "300", "300"]] * 3
    assert beards.split() == ["reader.4", "incomplete", "4", "3", "400", "400"]


def test_learning_agent(play: Play, tmp_path: Path) -> None:
    asked, ada, first, ben, second, kept = play("learning_agent", str(tmp_path)).splitlines()
    lesson = "Totals in orders are in cents, and orders of state void do not count."
    assert asked == f"  Allow remember(lesson='{lesson}')? yes"
    assert (ada, ben) == ("done: ada has spent 62.50 euros.", "done: ben has spent 7.00 euros.")
    assert first == "  5 turns, 500 tokens, sent back 1 times"
    assert second == "  2 turns, 200 tokens, sent back 0 times"
    assert kept == f"kept: {lesson}"
    # The next time nobody is asked, nothing is sent back, and nothing is written.
    assert play("learning_agent", str(tmp_path)).splitlines() == [ada, second, ben, second, kept]


def test_what_a_learning_agent_keeps_is_a_sentence(tmp_path: Path) -> None:
    program = runpy.run_path(str(EXAMPLES / "learning_agent.py"))
    for lesson, ruling in ((program["LESSON"], Allow), ("See https://example.org", Deny), ("x" * 201, Deny)):
        asked = ToolCall(id="c", name="remember", arguments={"lesson": lesson})
        event = GuardrailEvent(run_id="r", handle="h", agent="a", call=asked)
        assert type(program["one_sentence"](event)) is ruling
    memory = program["Memory"](tmp_path / "lessons.json", keep=2)
    for key, text in (("k1", "one"), ("k1", "again"), ("k2", "one"), ("k3", "two"), ("k4", "three")):
        memory.add(program["Lesson"](key=key, text=text, run_id="r"))
    assert [(lesson.key, lesson.text) for lesson in memory.lessons()] == [("k3", "two"), ("k4", "three")]
    # A call that was cut off: the file knows.
    desk = program["Desk"](memory, tmp_path)
    for key, found in (("k3", Succeeded("kept")), ("k1", Retry())):
        doubt = Doubt(
            deps=desk,
            run_id="r",
            handle="h",
            tool="remember",
            arguments={"lesson": "two"},
            idempotency_key=key,
        )
        assert anyio.run(program["is_kept"], doubt) == found


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it starts processes of its own
def test_support_desk(play: Play) -> None:
    friday, saturday, sunday, tuesday = play("support_desk").split("day\n")[1:]
    lines = [line.strip() for line in friday.splitlines()]
    assert [line.split(": ")[1] for line in lines[:4]] == ["done", "pending", "pending", "pending"]
    assert lines[4] == (
        "{'arguments': {'amount': 250.0, 'order': 'A-1002'}, 'tool': 'refund'}: a yes repeats 0 turns, 0 calls"
    )
    # Killed when the service had paid and nobody knew: gone on with, not paid twice, and no person was asked.
    assert "ticket-2" not in saturday
    assert "  the process is killed\n" in saturday
    assert "  ticket-2: done: It is on its way.\n" in sunday
    assert "  ticket-3: done: We are sorry, no refund (declined: ask a manager).\n" in sunday
    assert tuesday.splitlines() == [
        "  ticket-4: done: We are sorry, no refund (declined: expired).",
        *(f"  ticket-{number}: 3 turns, 300 tokens" for number in (1, 2, 3, 4)),
        "  paid: A-1001 40.00, A-1002 200.00",
    ]


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


def test_approve_refunds(play: Play) -> None:
    changed = '{"amount":200.0,"order":"A-1002"}'
    assert play("approve_refunds").splitlines() == [
        "Allow refund(amount=250.0, order='A-1002')? {'arguments': {'amount': 200, 'order': 'A-1002'}}",
        "Allow refund(amount=900.0, order='A-1003')? not without a manager",
        "done: Two orders are refunded, A-1003 is not.",
        "the model was told:",
        "  refunded 40.00 for A-1001",
        f"  [run with arguments changed by whoever approved it: {changed}] refunded 200.00 for A-1002",
        "  declined: not without a manager",
        "paid: A-1001 40.00, A-1002 200.00",
    ]


def test_coding_agent(play: Play) -> None:
    said = play("coding_agent").splitlines()
    assert said[:4] == [
        "round 1: sent back: Do them, then give the whole list again with the tool todo.",
        "round 2: sent back: AssertionError: -odd,--isn't-it?-",
        "round 3: passed: 2 tests passed",
        "done: slug keeps letters and digits, in lower case, with hyphens between them.",
    ]
    assert said[-2] == '    return "-".join(re.findall("[a-z0-9]+", text.lower()))'
    assert said[-1] == "8 turns, 8 tool calls, 800 tokens, 500 of them after the gate had sent it back"


def test_a_coding_agent_stays_in_its_folder_and_leaves_the_tests_alone(tmp_path: Path) -> None:
    program = runpy.run_path(str(EXAMPLES / "coding_agent.py"))
    attempts = [
        call("write_file", name="../out.py", text=""),
        call("read_file", name="/etc/hostname"),
        call("write_file", name="test_slug.py", text=""),
    ]
    model = MockModel([attempts, say("no")])
    agent = Agent(
        "x", does="x", tools=[program["read_file"], program["write_file"]], model=model, deps_type=Path
    )
    result, runtime = agent.run_sync("Go.", deps=tmp_path)
    told = [message.text for message in runtime.transcript(result.handle) if message.role == "tool"]
    assert ["outside" in told[0], "outside" in told[1], "not yours to change" in told[2]] == [True] * 3
    assert not list(tmp_path.iterdir())


def test_stream_to_terminal(play: Play) -> None:
    said = play("stream_to_terminal").splitlines()
    assert said[:2] == ["Two cities, one moment.", "[turn 1: 100 tokens]"]
    left = next(number for number, line in enumerate(said) if line.startswith("-- left at position "))
    assert said[left].endswith(": interrupted")
    # Left at the first tool; the reader that comes after it is told of the other one.
    tools = ["[forecast: rain, 4 degrees]", "[forecast: sun, 21 degrees]"]
    assert [line in said[:left] for line in tools].count(True) == 1
    assert [line in said[left:] for line in tools].count(True) == 1
    assert said[-4:-1] == [
        "Take an umbrella to Oslo and a hat to Rome.",
        "[turn 2: 100 tokens]",
        "[root/guide.1: done]",
    ]
    assert said[-1].startswith("-- 200 tokens, ")


def test_typed_output(play: Play) -> None:
    assert play("typed_output").splitlines() == [
        "the answer does not fit:",
        "items.0.count: Input should be greater than or equal to 1",
        "days: missing",
        "Ames & Sons: 39.80 within 14 days (2 turns)",
    ]


def test_chat_loop(play: Play) -> None:
    assert play("chat_loop").splitlines() == [
        "> I am Ada. Which rooms are free?",
        "The blue and the green one, Ada. [2 turns, 200 tokens so far]",
        "  Allow book(name='Ada', room='blue')? yes",
        "> Book the blue one for me.",
        "The blue room is yours. [4 turns, 400 tokens so far]",
        "> What is my name?",
        "Ada. [5 turns, 500 tokens so far]",
        "10 messages, closed",
    ]


def test_compact_transcript(play: Play) -> None:
    *turns, done, transcript, journal = play("compact_transcript").splitlines()
    assert len(turns) == 7
    assert [", compacted from 7" in turns[3], ", compacted from 8" in turns[5]] == [True, True]
    assert max(int(line.split("messages, ")[1].split()[0]) for line in turns) <= 4 * 300
    assert done == "done: Six pages, nothing unusual."
    assert transcript.startswith("transcript: ['user', 'user', 'assistant', 'tool',")
    assert journal == "journal: 6 pages, 2592 characters"


REFUND = ("refund", {"order": "A-1001", "amount": 40})
FOUND = [("final_result", {"subject": "tea", "year": 1773, "title": None})]
RIGHT = '"-".join(re.findall("[a-z0-9]+", text.lower()))'
WIRE: dict[str, tuple[Steps, str]] = {
    "approval_cli start A-1001": ({"refund": [[REFUND]]}, "pending: Waiting"),
    "research_team": (
        {
            "task": [[("task", {"agent": "reader", "prompt": subject}) for subject in ("tea", "salt")]],
            "read": [[("search", {"words": "tea"})], [("read", {"title": "Letters from Boston"})], FOUND],
        },
        'found: {"subject":"tea","title":null,"year":1773}',
    ),
    "coding_agent": (
        {
            "write_file": [
                [("read_file", {"name": "test_slug.py"})],
                [("todo", {"items": [{"text": "write", "status": "done"}]})],
                [
                    (
                        "write_file",
                        {"name": "slug.py", "text": "import re\n\ndef slug(text):\n    return " + RIGHT},
                    )
                ],
                [("run_tests", {})],
            ]
        },
        "round 1: passed: 2 tests passed\ndone: Said over the wire.",
    ),
    "learning_agent": (
        {"query": [[("query", {"sql": "SELECT 1"})], [], [("remember", {"lesson": "Cents."})]]},
        "kept: Cents.",
    ),
    "support_desk Friday .": (
        {"refund": [[("find_order", {"order": "A-1002"})], [("refund", {"order": "A-1002", "amount": 250})]]},
        "ticket-4: pending: Waiting for an answer to: Refund 250.00 for A-1002?",
    ),
    "three_levels 1 .": (
        {
            "refund": [[("refund", {"order": "A-1002", "amount": 250, "account": "DE-4711"})]],
            "find_orders": [[("task", {"agent": "cashier", "prompt": "Refund A-1002"})]],
            "task": [[("task", {"agent": "case_worker", "prompt": "Complaint"})]],
        },
        "cashier.1: ASKS (approval): Allow refund(account='DE-4711', amount=250.0, order='A-1002')?",
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
    "approve_refunds": ({"refund": [[("refund", {"order": "A-1003", "amount": 900})]]}, "paid: \n"),
    "stream_to_terminal": ({"forecast": [[("forecast", {"city": "Oslo"})]]}, "[root/guide.1: done]"),
    "typed_output": (
        {"final_result": [[("final_result", {"sender": "Ames", "items": [], "days": 3})]]},
        "Ames: 0 within 3 days (1 turns)",
    ),
    "chat_loop": (
        {"book": [[("free_rooms", {})], [], [("book", {"room": "blue", "name": "Ada"})]]},
        "10 messages",
    ),
    "compact_transcript": (
        {"read_page": [[("read_page", {"number": number})] for number in range(1, 3)]},
        "journal: 2 pages",
    ),
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
    assert not [path.stem for path in EXAMPLES.rglob("*.py") if path.stem not in here]


def test_no_example_takes_a_private_name() -> None:
    public = set(public_modules())
    for path in EXAMPLES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "overt":
                assert node.module in public, f"{path.name}:{node.lineno}"
                assert {alias.name for alias in node.names} <= {
                    *importlib.import_module(node.module).__all__,
                    *(name.rpartition(".")[2] for name in public if name.startswith(f"{node.module}.")),
                }, f"{path.name}:{node.lineno}"
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "overt" or not node.attr.startswith("_"), f"{path.name}:{node.lineno}"
