"""The demo as somebody meets it: started as a command, read from its output and from what it left."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from overt.__main__ import main
from overt.demo import clients, team, wire
from overt.demo.provider.server import serve
from overt.demo.team import entries
from overt.errors import ModelError
from overt.policy import ResumePolicy
from overt.testing import MockModel
from tests.demo.chat_server import chat_server

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)  # up to five interpreters start in one test


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OVERT_", "OPENAI_"))}
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "TMPDIR": str(tmp_path), **more}


def demo(tmp_path: Path, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "overt", "demo", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(tmp_path, **more),
        check=False,
        timeout=200,
    )


def kept_folder(tmp_path: Path) -> Path:
    (folder,) = tmp_path.glob("overt-demo-*")
    return folder


def effects(folder: Path) -> Counter[str]:
    return Counter(str(line["what"]) for line in entries(folder))


@pytest.mark.parametrize(
    ("policy", "answer", "lookups", "own", "total", "repeats", "replay"),
    [
        (
            "rewind",
            "decline",
            2,
            300,
            1_200,
            "4 turns bought again; runs again: look_up",
            "attempt 2; 4 turns bought again: 3 of payments.2, 1 of coordinator.1",
        ),
        (
            "continue",
            "approve",
            1,
            200,
            800,
            "no turn and no finished tool",
            "attempt 1; 0 turns bought again",
        ),
    ],
)
def test_each_policy_and_answer(
    tmp_path: Path, policy: str, answer: str, lookups: int, own: int, total: int, repeats: str, replay: str
) -> None:
    ran = demo(tmp_path, "--policy", policy, "--answer", answer, "--keep")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"repeats   {repeats}\n" in ran.stdout
    assert f"replay    {replay}\n" in ran.stdout
    assert f"answer    {answer}d\n" in ran.stdout
    assert f"tokens    {own} the coordinator's own, {total:,} with its team\n" in ran.stdout
    assert "result    done:" in ran.stdout
    other = "continue would have cost about 800 tokens, not 1,200\n"
    assert (other in ran.stdout) == (policy == "rewind")
    assert "also if it only asked" in ran.stdout
    want = Counter(track=1, look_up=lookups, refund=1)
    if answer == "approve":
        want["send_voucher"] = 1
    folder = kept_folder(tmp_path)
    assert effects(folder) == want
    assert not [line for line in ran.stdout.splitlines() if len(line) > 80 and str(folder) not in line]
    counted = dict(re.findall(r"^    (\w+) +(\d+)\b", ran.stdout.split("really happened")[1], flags=re.M))
    assert counted == {"send_voucher": "0", **{what: str(times) for what, times in want.items()}}


Plain = tuple[subprocess.CompletedProcess[str], Path]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """The demo without arguments, and the temporary folder it was given."""
    folder = tmp_path_factory.mktemp("plain")
    return demo(folder), folder


def test_the_first_process_ends_before_the_second_begins_and_nothing_is_left(plain: Plain) -> None:
    ran, left = plain
    processes = re.findall(r"^Process (\d+) (starts|opens)|Process (\d+) (ends) here", ran.stdout, flags=re.M)
    told = [next(filter(None, found[::2])) + " " + next(filter(None, found[1::2])) for found in processes]
    (first, starts), (same, ends), (second, opens) = (line.split() for line in told)
    assert [starts, ends, opens] == ["starts", "ends", "opens"]
    assert first == same != second
    assert list(left.iterdir()) == []


def test_the_first_page_of_the_documentation_shows_what_the_demo_prints(plain: Plain) -> None:
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    (shown,) = re.findall(r"```text\n(Process \d+ opens.*?)```", page, flags=re.DOTALL)
    printed = plain[0].stdout
    assert re.sub(r"\d+ opens", "opens", shown) in re.sub(r"\d+ opens", "opens", printed)


def test_a_kept_run_is_shown_again_and_nothing_happens_to_it(tmp_path: Path) -> None:
    first = demo(tmp_path, "--keep")
    folder = kept_folder(tmp_path)
    before = effects(folder)
    assert before == Counter(track=1, look_up=2, refund=1, send_voucher=1)
    again = demo(tmp_path, "--open", str(folder))
    assert again.returncode == 0
    table = first.stdout[first.stdout.index("  handle ") :].split("\n\n")[0]
    assert table in again.stdout
    assert effects(folder) == before


def test_asking_on_the_terminal_takes_no_for_no(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--answer", "ask", "--keep", stdin="perhaps\nN\n")
    assert ran.returncode == 0
    assert ran.stdout.count("Approve? [y/n]") == 2
    assert effects(kept_folder(tmp_path))["send_voucher"] == 0


def test_a_closed_input_keeps_the_parked_run_and_says_how_to_answer_it(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--answer", "ask")
    assert ran.returncode == 1
    assert "the input is closed" in ran.stderr
    assert "Traceback" not in ran.stderr
    folder = kept_folder(tmp_path)
    assert str(folder) in ran.stdout
    assert demo(tmp_path, "--open", str(folder), "--answer", "approve").returncode == 0
    assert effects(folder)["send_voucher"] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policy", "forget"], "invalid choice: 'forget'"),
        (["--answer", "maybe"], "invalid choice: 'maybe'"),
        (["--open", "nowhere"], "there is no run in nowhere"),
        (["--loud"], "unrecognized arguments: --loud"),
        (["--wire", "nobody"], "invalid choice: 'nobody'"),
        (["--wire", "openai", "--keep"], "--wire keeps nothing and asks nobody"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(arguments, monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err


@pytest.mark.parametrize(
    ("model", "told"), [("gpt", "provider:name"), ("openai:gpt-5-mini", "OPENAI_API_KEY")]
)
def test_a_model_that_cannot_be_made_is_refused(
    model: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERT_MODEL", model)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert refused([], monkeypatch) == 2
    assert told in capsys.readouterr().err


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a command that makes no folder and starts no process."""

    def made(*_: object, **__: object) -> str:
        raise AssertionError("something was made")

    monkeypatch.setattr(tempfile, "mkdtemp", made)
    monkeypatch.setattr(subprocess, "Popen", made)
    try:
        return main(["demo", *arguments])
    except SystemExit as stopped:
        return int(stopped.code or 0)


def test_a_closed_output_is_no_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "overt", "demo"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert "Traceback" not in told
    assert str(kept_folder(tmp_path)) in told


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let children be interrupted although this process ignores it, as one in the background of a shell does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "one process"])
def test_an_interrupted_run_is_recovered(tmp_path: Path, whole_group: bool) -> None:
    with chat_server(hang_at="send_voucher") as server:
        endpoint = {"OVERT_MODEL": "openai:tiny", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-test"}
        process = subprocess.Popen(
            [sys.executable, "-m", "overt", "demo"],
            env=environment(tmp_path, **endpoint),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert server.hangs.wait(200)
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=200)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        server.go_on.set()
        assert (process.returncode, err) == (130, "")
        assert "can be recovered" in out
        folder = kept_folder(tmp_path)
        assert effects(folder) == Counter(track=1, look_up=1, refund=1)
        again = demo(tmp_path, "--open", str(folder), **endpoint)
    assert (again.returncode, again.stderr) == (0, "")
    assert "recover() goes on with it" in again.stdout
    assert "result    done: Said over the wire." in again.stdout
    assert {body["model"] for body in server.bodies} == {"tiny"}
    assert effects(folder) == Counter(track=1, look_up=2, refund=1, send_voucher=1)


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--version"], "overt "), (["--help"], "demo"), ([], "usage: overt")]
)
def test_the_command_is_installed_with_a_version_and_a_help(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert told in "".join(capsys.readouterr())
    assert ended.value.code == (0 if arguments else 2)
    assert shutil.which("overt", path=str(Path(sys.executable).parent))


PROVIDERS = ["openai", "openai-responses", "anthropic", "google"]


def test_the_same_job_through_each_providers_client_comes_to_the_same(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--wire", "all")
    assert (ran.returncode, ran.stderr) == (0, "")
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == ["provider", *PROVIDERS]
    assert [row[3:] for row in rows[1:]] == [["12", "of", "12", "12", "1,200", "yes"]] * 4
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []
    page = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"```text\n(  provider .*?)```", page, flags=re.DOTALL)
    assert unversioned(shown) in unversioned(ran.stdout)


def unversioned(table: str) -> str:
    """A table without the versions of packages."""
    return re.sub(r" +\d+\.\d+\.\d+ +", " ", table)


# ------------------------------------------------------------------ over the wire, in this process


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the two parts where they can be reached."""

    def play(*arguments: str) -> str | None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = wire.main(list(arguments))
        return f"The process ended with {code} and said\n{said.getvalue()}" if code else None

    monkeypatch.setattr(wire, "_process", play)


def row_of(provider: str, printed: str) -> list[str]:
    """What is printed of a provider, without the name of its client."""
    (row,) = [line.split() for line in printed.splitlines() if line.startswith(f"  {provider} ")]
    return row[2:]


@pytest.mark.usefixtures("in_process")
def test_a_run_that_came_to_something_else_is_shown_beside_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dear = MockModel(team._script, name=team.MODEL, tokens=101)
    monkeypatch.setattr(wire, "serve", lambda _: serve(dear))
    assert main(["demo", "--wire", "openai", "--policy", "continue"]) == 1
    printed = capsys.readouterr().out
    assert row_of("openai", printed)[-2:] == ["808", "no"]
    expected, _, got = printed.partition("and got")
    assert re.search(r"payments\.2 +done +4 +3 +400 +400\n", expected)
    assert re.search(r"payments\.2 +done +4 +3 +404 +404\n", got)


@pytest.mark.usefixtures("in_process")
def test_a_client_that_is_not_installed_is_told_and_the_others_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(package: str) -> str:
        if package == "anthropic":
            raise PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(clients, "version", version)
    assert wire.run(["anthropic", "openai"], policy=ResumePolicy.CONTINUE, how="decline") == 1
    printed = capsys.readouterr().out
    assert row_of("anthropic", printed)[-2:] == ["not", "run"]
    assert "anthropic: the package 'anthropic' is missing: pip install 'overt[anthropic]'" in printed
    assert row_of("openai", printed)[-1] == "yes"


@pytest.mark.usefixtures("in_process")
def test_a_run_that_failed_is_told_with_what_its_process_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    down = MockModel(lambda _: ModelError("no credit left", status_code=402))
    monkeypatch.setattr(wire, "serve", lambda _: serve(down))
    assert main(["demo", "--wire", "openai"]) == 1
    printed = capsys.readouterr().out
    assert row_of("openai", printed)[-1] == "no"
    assert "no credit left" in printed


def test_an_interrupted_comparison_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wire, "_process", interrupted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["demo", "--wire", "openai"]) == 130
    assert "nothing is kept" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
