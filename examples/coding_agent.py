"""A coding agent that is done when the tests pass and its list is worked off, and not when it says so.

    python examples/coding_agent.py

The gate runs the tests on what the agent wrote, in a process of their own. Here that comes from a script; what a real
model writes belongs in a sandbox. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import anyio

from overt import (
    Agent,
    Attempt,
    Budget,
    Completion,
    Limit,
    Model,
    Runtime,
    ToolContext,
    ToolError,
    all_todos_done,
    todo,
    tool,
)
from overt.testing import MockModel, Part, Reply, call, say

TEST = """\
from slug import slug

assert slug("Two words") == "two-words", slug("Two words")
assert slug(" Odd,  isn't it? ") == "odd-isn-t-it", slug(" Odd,  isn't it? ")
print("2 tests passed")
"""
FILES = {
    "test_slug.py": TEST,
    "slug.py": 'def slug(text: str) -> str:\n    """Make a title fit for an address."""\n    return text\n',
}


def place(folder: Path, name: str) -> Path:
    """A model does not choose where on the disk it reads and writes."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ToolError(f"{name} is outside of the project")
    return path


async def run_the_tests(folder: Path) -> tuple[bool, str]:
    """Whether they pass, and the end of what they printed."""
    with anyio.move_on_after(30):
        done = await anyio.run_process(
            # No bytecode: of a file that is written twice in a second the first would count. No environment: no keys.
            [sys.executable, "-B", "test_slug.py"],
            cwd=folder,
            env={"PATH": os.defpath},
            check=False,
        )
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        return done.returncode == 0, said[-2000:]
    return False, "the tests took longer than 30 seconds"


# All three are "rerun", the default: a replay may read, write the same text and test again.
@tool
async def read_file(ctx: ToolContext[Path], name: str) -> str:
    """Read a file of the project, the whole of it.

    Args:
        name: Its path in the project, such as `slug.py`.
    """
    return place(ctx.deps, name).read_text(encoding="utf-8")


@tool
async def write_file(ctx: ToolContext[Path], name: str, text: str) -> str:
    """Write a file of the project; what was in it is replaced.

    Args:
        name: Its path in the project, such as `slug.py`. The tests are not yours to change.
        text: All of its new text.
    """
    if Path(name).name.startswith("test_"):
        raise ToolError("the tests are not yours to change: change what they test")
    place(ctx.deps, name).write_text(text, encoding="utf-8")
    return f"{name}: {len(text.splitlines())} lines written"


@tool
async def run_tests(ctx: ToolContext[Path]) -> str:
    """Run the tests of the project, and return whether they pass and what they print."""
    ok, said = await run_the_tests(ctx.deps)
    return f"{'passed' if ok else 'FAILED'}\n{said}"


async def verify(attempt: Attempt[str]) -> tuple[bool, str]:
    """Judge: everything on the agent's list is done, and the tests pass when we run them ourselves."""
    ok, reason = all_todos_done(attempt)
    if not ok:
        return False, reason
    assert isinstance(attempt.deps, Path)
    ok, said = await run_the_tests(attempt.deps)
    return ok, said if ok else f"test_slug.py fails. The end of what it prints:\n{said}"


def coder() -> Agent[Path, str]:
    return Agent(
        "coder",
        does="Writes and repairs small programs.",
        soul="You work on a Python project. First read the tests and what they test, and write down what there is "
        "to do with todo. Change files with write_file, always the whole file; run the tests after each change. When "
        "they pass, give todo the list with everything done, and say in one sentence what you changed.",
        tools=[read_file, write_file, run_tests, todo],
        completion=Completion(verify, max_attempts=3),
        # Every round of the gate is paid for by the same budget.
        budget=Budget(max_turns=25, max_tokens=200_000),
        model=model(),
        deps_type=Path,
    )


def model() -> Model | str:
    def program(expression: str) -> str:
        return f"import re\n\n\ndef slug(text: str) -> str:\n    return {expression}\n"

    def items(status: str) -> list[dict[str, str]]:
        return [{"text": "read the tests", "status": "done"}, {"text": "write slug", "status": status}]

    def write(expression: str) -> Part:
        return call("write_file", name="slug.py", text=program(expression))

    script: list[Reply] = [
        [
            call("read_file", name="test_slug.py"),
            call("read_file", name="slug.py"),
            call("todo", items=items("open")),
        ],
        [write('text.replace(" ", "-")')],
        say("slug puts hyphens now."),
    ]
    again: list[Reply] = [
        [write('text.lower().replace(" ", "-")'), call("todo", items=items("done"))],
        say("And lower case."),
    ]
    last: list[Reply] = [
        write('"-".join(re.findall("[a-z0-9]+", text.lower()))'),
        call("run_tests"),
        say("slug keeps letters and digits, in lower case, with hyphens between them."),
    ]
    # What the gate says is a further prompt.
    return os.environ.get("OVERT_MODEL") or MockModel(prompts=[script, again, last])


def after_the_first_verdict(runtime: Runtime[str]) -> int:
    """Tokens of what came after the gate had sent the work back: what the gate cost."""
    events = runtime.events()
    back = next(
        (event.position for event in events if event.kind == "verdict" and not event.verdict.ok), None
    )
    if back is None:
        return 0
    turns = [event.usage for event in events if event.kind == "turn" and event.position > back]
    return sum(usage.total_tokens for usage in turns if usage is not None)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text, encoding="utf-8")
        result, runtime = await coder().run("Make the tests of slug.py pass.", deps=folder)
        for verdict in result.verdicts:
            print(
                f"round {verdict.number}: {'passed' if verdict.ok else 'sent back'}: {verdict.reason.splitlines()[-1]}"
            )
        print(f"{result.status}: {result.text}")
        if result.limit is Limit.COMPLETION:
            print("not done, whatever it says; the files are as it left them")
        print((folder / "slug.py").read_text(encoding="utf-8").rstrip())
        print(
            f"{result.turns} turns, {result.usage.tool_calls} tool calls, {result.total_tokens} tokens, "
            f"{after_the_first_verdict(runtime)} of them after the gate had sent it back"
        )


if __name__ == "__main__":
    anyio.run(main)
