"""What the real model is asked to do. It need not succeed at any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from overt import Agent, Budget, ModelSettings, ResumePolicy, ToolContext, tool

__all__ = ("JOBS", "Job")

SHORT = 48
"""Output tokens of a reply; enough for a call."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """An agent, what it is asked, and how its run is limited and answered."""

    name: str
    agent: Agent[None, Any]
    prompt: str
    budget: Budget | None = None
    policy: ResumePolicy = ResumePolicy.CONTINUE
    answers: tuple[bool, ...] = ()
    """How questions are answered, one after the other; then the run stays parked."""
    options: Mapping[str, Any] = field(default_factory=dict)


class Order(BaseModel):
    """What a customer wants."""

    item: str
    count: int


@tool
def stock(item: str) -> int:
    """Say how many of an item are on the shelf."""
    return 7


@tool
async def price(item: str) -> str:
    """Say what an item costs."""
    return "2.50"


@tool
async def refund(ctx: ToolContext, order: str, amount: float) -> str:
    """Pay money back; a person is asked first."""
    answer = await ctx.ask(f"Refund {amount:.2f} for {order}?", kind="approval")
    return f"refunded {amount:.2f}" if answer.ok else f"not refunded: {answer.reason}"


@tool(on_replay="reuse")
async def note(text: str) -> str:
    """Write something down."""
    return "noted"


def settings(force: str = "", *, length: int = SHORT, temperature: float = 0.7) -> ModelSettings:
    """Settings of a reply, one that calls the tool `force` if given."""
    choice: Any = {"type": "function", "function": {"name": force}}
    return ModelSettings(
        temperature=temperature, max_output_tokens=length, extra={"tool_choice": choice} if force else {}
    )


def agent(
    name: str, soul: str, *tools: Any, force: str = "", length: int = SHORT, **more: Any
) -> Agent[None, Any]:
    """An agent with short replies."""
    return Agent(
        name,
        does=f"Works as a {name}.",
        soul=soul,
        tools=list(tools),
        settings=settings(force, length=length),
        **more,
    )


CLERK = "You are a clerk in a shop. Use the tools you have, then answer in one sentence."

JOBS = [
    Job(name="text", agent=agent("poet", "Answer in one sentence."), prompt="What is a kettle?"),
    Job(
        name="tools by choice",
        agent=Agent(
            "clerk",
            does="Sells.",
            soul=CLERK,
            tools=[stock, price],
            settings=ModelSettings(temperature=0.7, max_output_tokens=SHORT, tool_choice="auto"),
        ),
        prompt="How many kettles are left, and what does one cost?",
        budget=Budget(max_turns=3),
    ),
    Job(
        name="tools forced",
        agent=agent("clerk", CLERK, stock, price, force="stock"),
        prompt="How many kettles are left?",
        budget=Budget(max_turns=2),
    ),
    Job(
        name="typed output",
        agent=agent("taker", "Say what is ordered.", output_type=Order, force="final_result"),
        prompt="I would like three kettles, please.",
        budget=Budget(max_turns=2),
    ),
    Job(
        name="typed output by choice",
        agent=agent("taker", "Say what is ordered.", output_type=Order),
        prompt="I would like three kettles, please.",
        budget=Budget(max_turns=2),
    ),
    Job(
        name="approval given",
        agent=agent("clerk", CLERK, refund, force="refund"),
        prompt="Refund order A-1001: 40.00.",
        budget=Budget(max_turns=2),
        answers=(True, True),
    ),
    Job(
        name="approval rewound",
        agent=agent("clerk", CLERK, refund, note, force="refund"),
        prompt="Refund order A-1001: 40.00.",
        budget=Budget(max_turns=2),
        policy=ResumePolicy.REWIND,
        answers=(True, True, True),
    ),
    Job(
        name="approval declined",
        agent=agent("clerk", CLERK, refund, force="refund"),
        prompt="Refund order A-1001: 40.00.",
        budget=Budget(max_turns=2),
        answers=(False,),
    ),
    Job(
        name="parked for good",
        agent=agent("clerk", CLERK, refund, force="refund"),
        prompt="Refund order A-1001: 40.00.",
    ),
    Job(
        name="few tokens",
        agent=agent("poet", "Tell stories."),
        prompt="Tell one.",
        budget=Budget(max_tokens=30),
    ),
    Job(
        name="cut off in a call",
        agent=agent("clerk", CLERK, note, force="note", length=6),
        prompt="Write down all you know of kettles.",
        budget=Budget(max_turns=2),
    ),
    Job(
        name="no tool call left",
        agent=agent("clerk", CLERK, stock, force="stock"),
        prompt="How many kettles are left?",
        budget=Budget(max_tool_calls=1, max_turns=4),
    ),
    Job(
        name="a team",
        agent=agent(
            "head",
            "Delegate with task: agent clerk, prompt 'How many kettles are left?'.",
            team=[agent("clerk", CLERK, stock, force="stock", budget=Budget(max_turns=2))],
            force="task",
            length=96,
        ),
        prompt="How many kettles are left? Ask the clerk.",
        budget=Budget(max_turns=2, max_tokens=3_000),
    ),
]
