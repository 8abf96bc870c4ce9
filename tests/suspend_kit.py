"""What the tests of suspension and replay share: an asking tool, short agents, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overt import Agent, Answer, AnyTool, Request, TaskResult, ToolContext, ToolResult, pending, tool
from overt.testing import MockModel
from overt.testing.mock import Script

__all__ = ("agent", "approve", "first", "no", "tools_said", "yes")


@tool
def approve(ctx: ToolContext, what: str = "it") -> ToolResult:
    """Ask whether something may be done; the output says what was decided."""
    if ctx.answer is None:
        return pending(kind="approval", prompt=f"do {what}?")
    return ToolResult(f"{what}: {'yes' if ctx.answer.ok else f'no ({ctx.answer.reason})'}")


def agent(
    script: Script,
    *tools: AnyTool[Any],
    name: str = "w",
    team: Sequence[Agent[Any, Any]] = (),
    **options: Any,
) -> Agent[None, str]:
    """Return an agent that follows a script."""
    return Agent(name, does="works", tools=tools, team=team, model=MockModel(script), **options)


def first(result: TaskResult[Any]) -> Request:
    """Return the first pending request of a result."""
    assert result.pending is not None, result
    return result.pending


def yes(request: Request | TaskResult[Any], data: object = None, **fields: Any) -> Answer[Any]:
    """Accept."""
    request = first(request) if isinstance(request, TaskResult) else request
    return Answer[Any](id=request.id, ok=True, data=data, **fields)


def no(request: Request | TaskResult[Any], reason: str = "declined", **fields: Any) -> Answer[Any]:
    """Refuse."""
    request = first(request) if isinstance(request, TaskResult) else request
    return Answer[Any](id=request.id, ok=False, reason=reason, **fields)


def tools_said(messages: Sequence[Any]) -> list[str]:
    """Return the texts of a transcript's tool messages."""
    return [m.text for m in messages if m.role == "tool"]
