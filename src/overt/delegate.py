"""Agents as tools: inside a run a delegation, called as a function a run of its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Generic

from pydantic import JsonValue
from typing_extensions import TypeVar, Unpack

from overt._agent_checks import shown
from overt._signature import NAME
from overt.agent import Agent
from overt.errors import DefinitionError
from overt.message import ToolSpec
from overt.options import Options
from overt.result import TaskResult
from overt.tool import Tool

__all__ = ("AgentTool", "agent_tool")

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)


class AgentTool(Generic[DepsT, OutputT]):
    """An agent that other agents may call like a tool. Made by `Agent.as_tool`.

    Among an agent's `tools` a call of it is a delegation: a child in the same run, with its own transcript, under the
    same budgets and policy, whose questions come up through the run. Called as a function it runs on its own.
    """

    __slots__ = ("_agent", "_tool")

    def __init__(self, agent: Agent[Any, OutputT], *, name: str, description: str) -> None:
        """Use `Agent.as_tool`.

        Raises:
            DefinitionError: The name is none for a tool.
        """
        self._agent: Agent[Any, OutputT] = agent
        self._tool: Tool[object, ..., str] = Tool(_run, name=name, description=description)

    async def __call__(self, prompt: str, **options: Unpack[Options[DepsT]]) -> TaskResult[OutputT]:
        """Run the agent on its own, and return the result; `pending` too.

        A run that may ask needs a `store`, so that it can be opened again and answered: the result has its `run_id`.
        Who wants the runtime awaits `agent.run` instead.

        Args:
            prompt: What to do.
            **options: See `Options`.

        Raises:
            DefinitionError: As `Agent.run`.
            MissingDeps: As `Agent.run`.
            NoModel: As `Agent.run`.
            UsageError: As `Agent.run`.
            RunExists: As `Agent.run`.
            RunConflict: As `Agent.run`.
            StoreError: As `Agent.run`.
        """
        result, _ = await self._agent.run(prompt, **options)
        return result

    def __repr__(self) -> str:
        return f"<AgentTool {self.name}>"

    def __takes_deps__(self, deps: DepsT, /) -> None:
        """Does nothing; tells type checkers which deps the agent can be given."""

    @property
    def agent(self) -> Agent[Any, OutputT]:
        """The agent. In a run that has a rewired one of its name, that one is meant."""
        return self._agent

    @property
    def name(self) -> str:
        """Name a model calls it by."""
        return self._tool.name

    @property
    def description(self) -> str:
        """What a model is told about it."""
        return self._tool.description

    @property
    def input_schema(self) -> dict[str, JsonValue]:
        """JSON Schema of the arguments, one `prompt`; a copy."""
        return self._tool.input_schema

    @property
    def spec(self) -> ToolSpec:
        """The tool as models see it; for reading only. For the runtime."""
        return self._tool.spec

    def canonical(self, raw: Mapping[str, object] | str) -> str:
        """Validate a model's arguments, as `Tool.canonical` does. For the runtime.

        Raises:
            ValueError: They do not fit; the message names every place and is for the model.
        """
        return self._tool.canonical(raw)


def agent_tool(
    agent: Agent[Any, OutputT], *, name: str | None, description: str | None
) -> AgentTool[Any, OutputT]:
    """Make a tool of an agent.

    Raises:
        DefinitionError: `name` is none for a tool, the agent's cannot be made one, or `description` is no text.
    """
    where = f"agent {agent.name!r}: as_tool"
    if name is None:
        name = _made(agent.name)
        if name is None:
            raise DefinitionError(
                f"{where}: the agent's name cannot be made the name of a tool, which has 1 to 64 characters out of "
                "A-Z a-z 0-9 _ -: write as_tool(name=…)"
            )
    elif not isinstance(name, str) or not NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise DefinitionError(
            f"{where}: name has 1 to 64 characters out of A-Z a-z 0-9 _ -, which {name!r:.80} has not"
        )
    if description is not None and not isinstance(description, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise DefinitionError(f"{where}: description has to be str, not {shown(description)}")
    return AgentTool(agent, name=name, description=agent.does if description is None else description)


def _made(name: str) -> str | None:
    """An agent's name as that of a tool: accents dropped, blanks and punctuation as underscores."""
    if NAME.fullmatch(name):
        return name
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    # A name that lost letters would say something else.
    if any(c.isalnum() and not c.isascii() for c in plain):
        return None
    made = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_")
    return made if NAME.fullmatch(made) else None


def _run(prompt: str) -> str:
    """Run the agent.

    Args:
        prompt: What it is to do. It starts with an empty transcript: say everything it needs to know.
    """
    raise DefinitionError("an agent among tools is run by the runtime")
