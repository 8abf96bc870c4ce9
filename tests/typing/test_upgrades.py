"""What type checkers see of upgrades. Checked, never run but for the match: each mistake has its code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never, assert_type, get_args, get_type_hints

from pydantic import JsonValue

from overt import Agent, Drift, Request, Runtime, Upgrade
from overt.errors import SpecDrift
from overt.stores import MemoryStore


def acceptable(drift: Drift) -> bool:
    match drift.kind:
        case "tool" | "arguments" | "agent" | "onReplay" | "outputType":
            return True
        case "entry" | "guardrails" | "rename":
            return False
        case _:
            assert_never(drift.kind)


def test_every_kind_is_named() -> None:
    kinds: tuple[
        Literal["entry", "agent", "tool", "arguments", "onReplay", "outputType", "guardrails", "rename"], ...
    ] = get_args(get_type_hints(Drift)["kind"])
    said = [acceptable(Drift(kind=kind, what="", how="", acceptable=False)) for kind in kinds]
    assert (said.count(True), said.count(False)) == (5, 3)


if TYPE_CHECKING:

    def arguments(name: str, recorded: dict[str, JsonValue]) -> dict[str, object]:
        return {"tool": name, **recorded}

    def question(request: Request) -> Request:
        return request.model_copy(update={"prompt": "now"})

    def nothing(request: Request) -> None: ...

    async def upgrades(agent: Agent[None, int], error: SpecDrift) -> None:
        upgrade = Upgrade(tools={"a": "b"}, agents={}, arguments=arguments, questions=question)
        Upgrade(questions=nothing)
        runtime = await Runtime.open(agent, "r", store=MemoryStore(), upgrade=upgrade, on_drift="accept")
        assert_type(runtime, Runtime[int])
        assert_type(error.drifts, tuple[Drift, ...])
        assert_type(error.drifts[0].handle, str | None)
        await Runtime.open(agent, "r", on_drift="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        Upgrade(tools={"a": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
        Upgrade(arguments=question)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        upgrade.tools = {}  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
