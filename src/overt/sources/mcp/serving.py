"""An agent as an MCP server."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    InputResponse,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue
from typing_extensions import TypeVar, Unpack

from overt._canonical import encode, jsonable
from overt._schema import schema_of
from overt.agent import Agent
from overt.clock import Clock, SystemClock
from overt.errors import (
    AlreadyAnswered,
    DefinitionError,
    InvalidAnswer,
    OvertError,
    RequestExpired,
    RunConflict,
    RunExists,
    RunNotFound,
    UnknownRequest,
)
from overt.events import ToolFinished, ToolStarted, TurnFinished
from overt.journal.memory import MemoryStore
from overt.journal.store import Store
from overt.options import Options
from overt.request import Answer, Request
from overt.result import Status, TaskResult
from overt.runtime import Runtime
from overt.sources.mcp.forms import Form, Wrong, form_of
from overt.sources.mcp.tools import KEY

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ("AgentServer", "serve")

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)

_PREFIX = "mcp-"
_TRIES = 3
"""How often somebody is asked again whose reply does not fit."""
_CONTINUE = "_continue"
_TRIED = ":"
"""Between run id and number of replies that did not fit, in what a client is given to come back with."""


def serve(
    agent: Agent[DepsT, OutputT],
    *,
    name: str | None = None,
    asks: Collection[str] | None = None,
    **options: Unpack[Options[DepsT]],
) -> AgentServer:
    """Make an agent an MCP server: one tool, which takes a `prompt` and gives the agent's final answer.

    ```python
    import anyio

    from overt import Agent
    from overt.sources.mcp import serve
    from overt.stores import SQLiteStore
    from overt.testing import MockModel

    clerk = Agent("clerk", does="Keeps the books.", model=MockModel(["Kept."]))
    server = serve(clerk, store=SQLiteStore("runs.db"))

    def main() -> None:
        anyio.run(server.run_stdio)  # or: uvicorn.run(server.http_app())
    ```

    Each call is a run of its own. `done` gives the final text, and the output as structured content; every other status
    is an error result, with status, limit, tokens and run id as data. What the run asks is put to the person behind the
    client, if the client can do that, and the result comes back in the same call. Where it cannot, or the person
    dismisses the question, the run stays parked in the store, and the result has its open requests: answer them with
    `Runtime.open` and `resume`, or let the client call the second tool, `<name>_continue`, with the run id, which asks
    the person again and goes on. It takes no answers: a model that could give them would approve its own work.

    A client that sends the same `overt/idempotency_key` in `_meta`, as overt's own does, gets the same run again.

    Args:
        agent: The agent.
        name: The tool's name; `None` makes one of the agent's.
        asks: Kinds of requests that the person behind the client may answer, such as `["input"]`; `None` for all. The
            others stay for you. Who it was is a claim: `verify_answer` is asked too.
        **options: Of every run; see `Options`. `run_id` and `history` cannot be said for all of them. Without a `store`
            runs are kept in memory until they are done, or the process ends.

    Raises:
        DefinitionError: The name is none for a tool, or an option is wrong; `MissingDeps` and `NoModel` as of a run.
        MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
        NoModel: Neither an agent nor the options say which model to use.
    """
    return AgentServer(
        cast("Agent[Any, Any]", agent), name=name, asks=asks, options=cast("dict[str, Any]", options)
    )


class AgentServer:
    """An agent that MCP clients can call. Made by `serve`."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        name: str | None,
        asks: Collection[str] | None,
        options: Mapping[str, Any],
    ) -> None:
        """Use `serve`.

        Raises:
            DefinitionError: See there.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the options say which model to use.
        """
        for field in ("run_id", "history"):
            if field in options:
                raise DefinitionError(f"serve: option {field!r} cannot be the same for every run")
        if isinstance(asks, str):
            raise DefinitionError("serve: asks is a list of kinds of requests: write asks=[…]")
        tool = agent.as_tool(name=name)
        self._agent = agent
        self._asks = asks
        self._options = dict(options)
        self._own_store = options.get("store") is None
        self._options["store"] = self._store = cast("Store", options.get("store") or MemoryStore())
        Runtime(agent, **self._options)  # told now what would be wrong with every run
        self._tool = tool
        self._continue = f"{tool.name[: 64 - len(_CONTINUE)]}{_CONTINUE}"
        self._locks: dict[str, tuple[anyio.Lock, int]] = {}
        self._server: Server[dict[str, Any]] = Server(
            agent.name, version=_version(), on_list_tools=self._list, on_call_tool=self._call
        )

    def __repr__(self) -> str:
        return f"<AgentServer {self._tool.name!r} of agent {self._agent.name!r}>"

    @property
    def server(self) -> Server[dict[str, Any]]:
        """The SDK's server, for transports and settings that are not here: authentication, other paths, tests."""
        return self._server

    async def run_stdio(self) -> None:
        """Serve the process that started this one, on standard input and output, until it hangs up."""
        async with stdio_server() as (incoming, outgoing):
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    def http_app(self, *, path: str = "/mcp", host: str = "127.0.0.1") -> Starlette:
        """Return an ASGI application that serves streamable HTTP; run it with any ASGI server.

        Make it outside of an event loop, or in one of the kind that runs it: the SDK's locks keep to asyncio or trio.

        Args:
            path: Where.
            host: The address it is served at. At a local one only requests with a local `Host` are taken.
        """
        return self._server.streamable_http_app(streamable_http_path=path, host=host)

    # ------------------------------------------------------------ the protocol

    async def _list(
        self, context: ServerRequestContext[dict[str, Any]], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        goes_on = (
            f"Go on with a run of {self._tool.name} that waits for an answer or was cut off. What it asks is put to "
            "the person who uses this client."
        )
        run_id: dict[str, Any] = {
            "type": "object",
            "properties": {"run_id": {"type": "string", "description": "As the result of the call had it."}},
            "required": ["run_id"],
            "additionalProperties": False,
        }
        shape = _shape(self._agent)
        return ListToolsResult(
            tools=[
                Tool(
                    name=self._tool.name,
                    description=self._tool.description,
                    input_schema=cast("dict[str, Any]", self._tool.input_schema),
                    output_schema=shape,
                ),
                Tool(name=self._continue, description=goes_on, input_schema=run_id, output_schema=shape),
            ]
        )

    async def _call(
        self, context: ServerRequestContext[dict[str, Any]], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        given = params.arguments or {}
        prompt: str | None = None
        state, _, wrong = (params.request_state or "").partition(_TRIED)
        run_id: Any = state or None
        if params.name == self._tool.name:
            try:
                self._tool.canonical(given)
            except ValueError as error:
                return _error(str(error))
            if run_id is None:
                prompt = str(given["prompt"])
                run_id = self._run_id(prompt, context)
        elif params.name == self._continue:
            run_id = given.get("run_id")
            if set(given) != {"run_id"} or not isinstance(run_id, str):
                return _error(f"{self._continue} takes a run_id")
        else:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        assert isinstance(run_id, str)
        if not run_id.startswith(_PREFIX):
            # Other runs of the store are none of a client's business.
            return _error(f"there is no run {run_id!r:.80}")
        async with self._alone(run_id):
            try:
                served = _Served(self, context, run_id, prompt, wrong=len(wrong))
                return await served.work(params.input_responses)
            except RunNotFound:
                return _error(f"there is no run {run_id!r:.80}")
            except RunConflict as error:
                until = "" if error.until is None else f", until {error.until.isoformat()} at least"
                return _error(f"run {run_id} is being worked on elsewhere{until}", run_id=run_id)
            except OvertError as error:
                # What it says is for the host: it names files, code and options.
                logging.getLogger("overt").exception("run %s, served over MCP, cannot go on", run_id)
                return _error(f"run {run_id} cannot go on: {type(error).__name__}", run_id=run_id)

    def _run_id(self, prompt: str, context: ServerRequestContext[dict[str, Any]]) -> str:
        key = (cast("Mapping[str, object]", context.meta or {})).get(KEY)
        # Only such keys as overt makes: shorter ones could meet by chance, or be guessed.
        if not isinstance(key, str) or len(key) != 32 or not key.isalnum():
            return _PREFIX + secrets.token_hex(16)
        text = encode([self._agent.name, key, prompt])
        return _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:32]

    @asynccontextmanager
    async def _alone(self, run_id: str) -> AsyncGenerator[None]:
        """Let calls about one run wait for each other."""
        lock, users = self._locks.get(run_id) or (anyio.Lock(), 0)
        self._locks[run_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(run_id)
            if users > 1:
                self._locks[run_id] = (lock, users - 1)


class _Served:
    """One call, and the run it is about."""

    def __init__(
        self,
        owner: AgentServer,
        context: ServerRequestContext[dict[str, Any]],
        run_id: str,
        prompt: str | None,
        *,
        wrong: int,
    ) -> None:
        self._owner = owner
        self._context = context
        self._run_id = run_id
        self._prompt = prompt
        self._wrong = wrong
        self._steps = 0
        self._dismissed: set[str] = set()
        self._notes: dict[str, str] = {}
        self._refused: str | None = None
        self._modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def work(
        self, responses: Mapping[str, InputResponse] | None
    ) -> CallToolResult | InputRequiredResult:
        """Begin the run, or go on with it, as far as it goes in this call.

        Args:
            responses: What the client was asked for before; `None` where it was not.
        """
        runtime, result = await self._begun()
        if responses is not None:
            forms = self._forms(result.pendings)
            runtime, result = await self._answered(runtime, result, self._read(forms, responses))
        while result.status is Status.PENDING:
            forms = self._forms(result.pendings)
            if not forms:
                break
            if self._modern:
                asks = {form.request.id: form.ask for form in forms}
                state = f"{self._run_id}{_TRIED}{'x' * self._wrong}"
                return InputRequiredResult(input_requests=cast("Any", asks), request_state=state)
            answers = [answer for form in forms if (answer := await self._asked(form)) is not None]
            runtime, result = await self._answered(runtime, result, answers)
        if self._owner._own_store and result.status in (Status.DONE, Status.INTERRUPTED, Status.CLOSED):
            clock: Clock = self._owner._options.get("clock") or SystemClock()
            await self._owner._store.delete(self._run_id, now=clock.now())
        return _result(result, self._refused)

    async def _begun(self) -> tuple[Runtime[Any], TaskResult[Any]]:
        owner = self._owner
        if self._prompt is not None:
            runtime = Runtime(owner._agent, **owner._options, run_id=self._run_id)
            try:
                return runtime, await self._through(runtime, self._prompt, None)
            except RunExists:
                pass
        return await self._found()

    async def _found(self) -> tuple[Runtime[Any], TaskResult[Any]]:
        """Open a run that is there already, and go on with it if it does not wait for somebody."""
        owner = self._owner
        runtime = await Runtime.open(owner._agent, self._run_id, **owner._options)
        result = runtime.result()
        if result.status not in (Status.DONE, Status.PENDING):
            result = await self._through(runtime, None, None)
        return runtime, result

    async def _answered(
        self, runtime: Runtime[Any], result: TaskResult[Any], answers: Sequence[Answer[Any]]
    ) -> tuple[Runtime[Any], TaskResult[Any]]:
        if not answers:
            return runtime, result
        try:
            return runtime, await self._through(runtime, None, answers)
        except InvalidAnswer as error:
            # `verify_answer` has refused; whoever it was need not be asked once more.
            self._dismissed |= {answer.id for answer in answers}
            self._refused = str(error)
            return runtime, result
        except (AlreadyAnswered, UnknownRequest, RequestExpired):
            # Somebody else was faster, or it was too late: the run is where the store has it.
            return await self._found()

    async def _through(
        self, runtime: Runtime[Any], prompt: str | None, answers: Sequence[Answer[Any]] | None
    ) -> TaskResult[Any]:
        """Run, resume or recover, and tell the client of each step that is done."""
        async with runtime.stream(prompt, answer=answers) as stream:
            async for event in stream:
                match event:
                    case TurnFinished():
                        await self._progress(f"{event.handle}: turn {event.turn}")
                    case ToolStarted():
                        await self._progress(f"{event.handle}: {event.call.name} begins")
                    case ToolFinished():
                        await self._progress(f"{event.handle}: {event.name} is done")
                    case _:
                        pass
            return await stream.result()

    async def _progress(self, message: str) -> None:
        self._steps += 1
        await self._context.session.report_progress(self._steps, None, message)

    # ------------------------------------------------------------ asking the client

    def _forms(self, requests: Sequence[Request]) -> list[Form]:
        can = self._context.session.client_capabilities
        asks = self._owner._asks
        forms = (
            form_of(request, can, note=self._notes.get(request.id, ""))
            for request in requests
            if request.id not in self._dismissed and (asks is None or request.kind in asks)
        )
        return [form for form in forms if form is not None]

    def _read(self, forms: Sequence[Form], responses: Mapping[str, InputResponse]) -> list[Answer[Any]]:
        """Return the answers in what a client sent; what does not fit is asked again."""
        answers: list[Answer[Any]] = []
        for form in forms:
            id = form.request.id
            reply = responses.get(id)
            if not isinstance(reply, ElicitResult):
                continue
            try:
                answer = form.answer(reply, self._by())
            except Wrong as error:
                self._notes[id] = str(error)
                self._wrong += 1
                if self._wrong >= _TRIES:
                    self._dismissed.add(id)
                continue
            if answer is None:
                self._dismissed.add(id)
            else:
                answers.append(answer)
        return answers

    async def _asked(self, form: Form) -> Answer[Any] | None:
        """Ask the person behind the client now; `None` where it comes to nothing."""
        for _ in range(_TRIES):
            try:
                answer = form.answer(await self._elicit(form), self._by())
            except Wrong as error:
                again = form_of(form.request, self._context.session.client_capabilities, note=str(error))
                assert again is not None
                form = again
                continue
            except MCPError:
                answer = None
            if answer is None:
                break
            return answer
        self._dismissed.add(form.request.id)
        return None

    async def _elicit(self, form: Form) -> ElicitResult:
        session, related = self._context.session, self._context.request_id
        params = form.ask.params
        if isinstance(params, ElicitRequestURLParams):
            return await session.elicit_url(
                params.message, params.url, form.request.id, related_request_id=related
            )
        return await session.elicit_form(params.message, params.requested_schema, related_request_id=related)

    def _by(self) -> str:
        """Who says that they have answered: a claim."""
        client = self._context.session.client_params
        return f"mcp:{'unknown' if client is None else client.client_info.name}"


# ------------------------------------------------------------------ results


def _result(result: TaskResult[Any], refused: str | None) -> CallToolResult:
    data: dict[str, JsonValue] = {
        "status": result.status.value,
        "text": result.text,
        "run_id": result.run_id,
        "turns": result.turns,
        "total_tokens": result.total_tokens,
    }
    text = result.text
    if result.status is Status.DONE:
        data["output"] = jsonable(result.output)
        text = text or encode(data["output"])
    if result.limit is not None:
        data["limit"] = result.limit.value
        data["limit_at"] = result.limit_at
    if result.partial and result.status is not Status.DONE:
        data["partial"] = result.partial
    if result.error is not None:
        data["error"] = result.error.model_dump(mode="json", exclude={"detail"})
    if refused is not None:
        data["refused"] = refused
    if result.pendings:
        data["requests"] = [request.model_dump(mode="json") for request in result.pendings]
        text += f"\nThe run is parked as {result.run_id}."
    return CallToolResult(
        content=[TextContent(text=text)],
        structured_content=data,
        is_error=result.status is not Status.DONE,
    )


def _error(text: str, **data: JsonValue) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], structured_content=data or None, is_error=True)


def _shape(agent: Agent[Any, Any]) -> dict[str, Any]:
    """Return the schema of a result that is done."""
    output = schema_of(agent.output_type)
    # References in it begin at the root.
    inner = output.pop("$defs", None)
    count: JsonValue = {"type": "integer"}
    shape: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "status": {"type": "string"},
            "text": {"type": "string"},
            "output": output,
            "run_id": {"type": "string"},
            "turns": count,
            "total_tokens": count,
        },
        "required": ["status", "text", "output", "run_id", "turns", "total_tokens"],
    }
    if inner is not None:
        shape["$defs"] = inner
    return shape


def _version() -> str:
    try:
        return version("overt")
    except PackageNotFoundError:
        return ""
