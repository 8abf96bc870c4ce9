"""Runs with a real model, which misbehaves: `make real-model`, or `python -m tests.real_model`.

Every job is run whole and streamed, kept in SQLite, answered in a runtime of its own, opened anew; what holds of any
run has to hold. What the model says is printed, not judged. Exits with 1 where something did not hold, or raised.

Read from the environment:

    OVERT_MODEL  another model, such as openai:NAME with OPENAI_BASE_URL and OPENAI_API_KEY; no server is started
    ROUNDS       1; how often each job is run
    ONLY         names of jobs, with commas
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

from overt import Answer, Runtime, TaskResult
from overt.errors import ModelError
from overt.message import Model, ModelRequest, UserMessage
from overt.models import OpenAIModel, resolve
from overt.stores import SQLiteStore
from tests.real_model.checks import Broken, check
from tests.real_model.jobs import JOBS, Job
from tests.real_model.server import ALIAS, running

_ROW = "{:<24} {:<8} {:<11} {:<34} {:>5} {:>5} {:>6} {:>6}  {}"


async def play(job: Job, model: Model, folder: Path, *, streamed: bool) -> tuple[TaskResult[Any], int]:
    """Run a job to its end and check it at every rest; return the result and how many questions were answered."""
    options: dict[str, Any] = {"model": model, **job.options}
    store = SQLiteStore(folder / "runs.db")
    asked = 0
    try:
        if job.budget is not None:
            options["budget"] = job.budget
        runtime: Runtime[Any] = Runtime(job.agent, store=store, resume_policy=job.policy, **options)
        result = await _to_rest(runtime, job.prompt, None, streamed)
        await check(job.agent, runtime, result, store=store, **options)
        for ok in job.answers:
            if result.pending is None:
                break
            asked += 1
            # Another process would open it so.
            runtime = await Runtime.open(job.agent, runtime.id, store=store, **options)
            answer = Answer[Any](id=result.pending.id, ok=ok, reason=None if ok else "no", by="harness")
            result = await _to_rest(runtime, None, answer, streamed)
            await check(job.agent, runtime, result, store=store, **options)
        return result, asked
    finally:
        await store.close()


async def _to_rest(
    runtime: Runtime[Any], prompt: str | None, answer: Answer[Any] | None, streamed: bool
) -> TaskResult[Any]:
    if streamed:
        async with runtime.stream(prompt, answer=answer) as stream:
            async for _ in stream:
                pass
        return await stream.result()
    if answer is not None:
        return await runtime.resume(answer)
    assert prompt is not None
    return await runtime.run(prompt)


def why(result: TaskResult[Any]) -> str:
    """What stopped a run."""
    if result.limit is not None:
        return f"{result.limit} at {result.limit_at}"
    return "" if result.error is None else f"{result.error.type}: {result.error.message}"


async def play_all(model: Model, jobs: list[Job], folder: Path) -> int:
    """Play the jobs, print a line of each, and return how many broke something."""
    outcomes: Counter[str] = Counter()
    broken = 0
    head = ("job", "how", "status", "stopped by", "turns", "tools", "tokens", "sec", "said")
    print(_ROW.format(*head))
    for job in jobs:
        for streamed in (False, True):
            began = time.monotonic()
            how = "streamed" if streamed else "whole"
            try:
                result, asked = await play(job, model, folder, streamed=streamed)
            except Exception as error:  # noqa: BLE001  # nothing may be raised, whatever it is
                broken += 1
                print(f"{job.name} {how}: BROKEN: {error!r}")
                if not isinstance(error, Broken):
                    traceback.print_exc()
                continue
            outcomes[result.status] += 1
            said = " ".join((result.partial or result.text).split())
            usage = result.usage
            answered = f" ({asked} answered)" if asked else ""
            print(
                _ROW.format(
                    job.name,
                    how,
                    result.status,
                    why(result)[:34],
                    usage.turns,
                    usage.tool_calls,
                    f"{usage.total_tokens}{'+?' if usage.unreported_calls else ''}",
                    f"{time.monotonic() - began:.1f}",
                    said[:60] + answered,
                ),
                flush=True,
            )
    print(", ".join(f"{status} {count}" for status, count in sorted(outcomes.items())), f"| broken: {broken}")
    return broken


def local(url: str) -> OpenAIModel:
    """The model behind the local server."""
    return OpenAIModel(
        ALIAS, base_url=url, api_key="none", output_limit_field="max_tokens", null_content=False
    )


async def interrupted(url: str) -> int:
    """The server cuts a streamed reply off for another one: tell what the adapter makes of that."""
    model = local(url)
    request = ModelRequest(messages=(UserMessage(text="Tell a long story."),), max_output_tokens=200)
    outcome: list[str] = []

    async with anyio.create_task_group() as group:

        async def first(begun: anyio.Event) -> None:
            pieces = 0
            finish: str | None = None
            try:
                async for delta in model.stream(request):
                    pieces += 1
                    finish = delta.finish_reason or finish
                    begun.set()
                outcome.append(f"ended with {finish} after {pieces} pieces")
            except ModelError as error:
                outcome.append(f"failed after {pieces} pieces: {error}")
            finally:
                begun.set()

        begun = anyio.Event()
        group.start_soon(first, begun)
        await begun.wait()
        second = await model.generate(
            ModelRequest(messages=(UserMessage(text="Say hello."),), max_output_tokens=8)
        )
    print(f"\ncut off by the server: the first {outcome[0]}; the second said {second.message.text!r}")
    # It says neither why it ended nor that it did not, so "stop" would be made up.
    return 1 if "ended with stop" in outcome[0] else 0


def main() -> int:
    """Run everything; return the exit code."""
    chosen = [name for name in os.environ.get("ONLY", "").split(",") if name]
    jobs = [job for job in JOBS if not chosen or job.name in chosen] * int(os.environ.get("ROUNDS") or 1)
    named = os.environ.get("OVERT_MODEL")
    with tempfile.TemporaryDirectory(prefix="overt-real-model-") as folder:
        if named:
            return 1 if anyio.run(play_all, resolve(named), jobs, Path(folder)) else 0
        with running() as url:
            broken = anyio.run(play_all, local(url), jobs, Path(folder))
        with running(interrupts=True) as url:
            broken += anyio.run(interrupted, url)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
