"""A coding agent that is done when its list is worked off and the test passes, and not when it says so.

    python examples/coding_agent.py

The gate runs what the agent wrote. Here that comes from a script; what a real model writes belongs in a sandbox.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from overt import Agent, Attempt, Budget, Completion, ToolContext, all_todos_done, todo, tool
from overt.testing import MockModel, call, say

TEST = "from slug import slug\nassert slug('Two words') == 'two-words', slug('Two words')\n"
FIRST = "def slug(text):\n    return text.replace(' ', '-')\n"
SECOND = "def slug(text):\n    return text.lower().replace(' ', '-')\n"


@tool
async def write_file(ctx: ToolContext[Path], name: str, text: str) -> str:
    """Write a file of the project."""
    # A name without a folder: a model does not choose where on the disk it writes.
    (ctx.deps / Path(name).name).write_text(text, encoding="utf-8")
    return f"{name}: {len(text.splitlines())} lines"


def gate(folder: Path) -> Completion:
    async def verify(attempt: Attempt[str]) -> tuple[bool, str]:
        ok, reason = all_todos_done(attempt)
        if not ok:
            return False, reason
        done = await anyio.run_process([sys.executable, "test_slug.py"], cwd=folder, check=False)
        last = done.stderr.decode().strip().splitlines()[-1:]
        return done.returncode == 0, last[0] if last else "the test passes"

    return Completion(verify, max_attempts=5)


def model() -> MockModel:
    def items(status: str) -> list[dict[str, str]]:
        return [{"text": "write slug.py", "status": "done"}, {"text": "write its test", "status": status}]

    # What the gate says is a further prompt.
    return MockModel(
        prompts=[
            [
                [call("todo", items=items("open")), call("write_file", name="slug.py", text=FIRST)],
                say("slug.py is written."),
            ],
            [
                [call("write_file", name="test_slug.py", text=TEST), call("todo", items=items("done"))],
                say("There is a test, too."),
            ],
            [call("write_file", name="slug.py", text=SECOND), say("It is lower case now.")],
        ]
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        coder = Agent(
            "coder",
            does="Writes small programs.",
            tools=[write_file, todo],
            completion=gate(Path(folder)),
            # Every round is paid for by the same budget.
            budget=Budget(max_turns=12),
            model=model(),
            deps_type=Path,
        )
        result, _ = await coder.run("Write slug.py, and test_slug.py for it.", deps=Path(folder))
    for verdict in result.verdicts:
        said = verdict.reason.splitlines()
        print(f"round {verdict.number}: {'passed' if verdict.ok else 'sent back'}: {said[0]}")
    print(f"{result.status}: {result.text} ({result.turns} turns, {result.total_tokens} tokens)")


if __name__ == "__main__":
    anyio.run(main)
