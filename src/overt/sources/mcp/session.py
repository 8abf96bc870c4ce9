"""The connection to one server: opened when it is needed, opened again when it has gone, asked by many calls at once.

All of this runs in the portal's thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, cast

import anyio
import httpx2
from mcp import Client, MCPError, UrlElicitationRequiredError
from mcp.client import ClientRequestContext, Transport
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequest,
    InputRequiredResult,
    InputResponses,
    PaginatedRequestParams,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from overt._text import told
from overt.sources.mcp.elicitation import NotAsked, elicited
from overt.sources.mcp.endpoints import Endpoint, Http, Stdio
from overt.sources.mcp.portal import Errand, Portal
from overt.sources.mcp.secrets import guard_logs
from overt.sources.mcp.transports import Watch, watched_http, watched_stdio

__all__ = ("Ambiguous", "Connection", "Refused", "Unreachable")

_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
_PAGES = 100
_ROUNDS = 20
"""How often a server may ask for more within one call."""
_TURNS = 25
_CLOSED = "Connection closed"
_HTTP_ERROR = "Server returned an error response"
_LEAVE = 5.0
"""Seconds a session has to say goodbye."""


class Unreachable(Exception):
    """The server is not there, or went away. `sent` says whether it may have got the request."""

    def __init__(self, reason: str, *, sent: bool, last_words: str = "") -> None:
        super().__init__(reason)
        self.sent: Final = sent
        self.last_words: Final = last_words


class Refused(Exception):
    """The server, or the protocol, says no; the message says why."""


class Ambiguous(Exception):
    """Questions came up in several calls at once, and the protocol does not say in which."""


class _Flight:
    """One call that is under way."""

    def __init__(self, errand: Errand[CallToolResult]) -> None:
        self.errand: Final = errand
        self.scope: Final = anyio.CancelScope()


class _Live:
    """One session and all that hangs on it."""

    def __init__(self) -> None:
        self.watch: Final = Watch()
        self.scope: Final = anyio.CancelScope()
        self.ready: Final = anyio.Event()
        """Set when it is open, or will not be."""
        self.gone: Final = anyio.Event()
        """Set when nothing is left of it."""
        self.client: Client | None = None
        self.error: Exception | None = None
        self.flights: Final[list[_Flight]] = []
        self.closed = False
        """Whether it was ended here."""
        self.asking = 0
        """Questions of which it is not known yet whose they are."""
        self._changed = anyio.Event()

    @property
    def over(self) -> bool:
        return self.watch.lost.is_set() or self.gone.is_set()

    @property
    def parted(self) -> bool:
        """Whether the protocol says in which call a question comes up."""
        return self.client is not None and self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def stop(self) -> None:
        """End it, also while it is being opened."""
        self.closed = True
        self.watch.lost.set()
        if self.client is None:
            self.scope.cancel()

    def stir(self) -> None:
        """Let those look again that wait for other calls."""
        self._changed.set()
        self._changed = anyio.Event()

    async def change(self) -> None:
        await self._changed.wait()


class Connection:
    """What calls go through, whether a session is open at the moment or not."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        portal: Portal,
        connect_timeout: float,
        protocol: str,
        one_at_a_time: bool,
    ) -> None:
        self.portal: Final = portal
        self._endpoint: Final = endpoint
        self._connect_timeout: Final = connect_timeout
        self._protocol: Final = protocol
        self._serial = one_at_a_time
        self._live: _Live | None = None
        # Not anyio's, which belong to the event loop they are made in, and this is made in a caller's.
        self._opening: Final = asyncio.Lock()
        self._turn: Final = asyncio.Lock()

    # ------------------------------------------------------------ opening and closing

    async def _open(self) -> _Live:
        live, fresh = await self._current()
        # All that wait for it share what comes of it.
        with anyio.move_on_after(self._connect_timeout):
            await live.ready.wait()
        late = not live.ready.is_set()
        if late:
            live.scope.cancel()
            live.watch.lost.set()
        if live.client is not None and live.over and not fresh:
            # It has gone just now.
            return await self._open()
        if live.client is None or live.over:
            raise self._unreachable(live, sent=False, late=late)
        return live

    async def _current(self) -> tuple[_Live, bool]:
        """Return the session there is, or one that is being opened, and whether it is a new one."""
        async with self._opening:
            live = self._live
            if live is not None and not live.over:
                return live, False
            if live is not None:
                # The next program may want what this one has: a port, a file that is locked.
                with anyio.move_on_after(self._connect_timeout):
                    await live.gone.wait()
            live = self._live = _Live()
            self.portal.spawn(partial(self._keep, live))
            return live, True

    async def _keep(self, live: _Live) -> None:
        """Hold a session open until it is asked to end, or ends."""
        self.portal.closers.add(live.stop)
        try:
            with live.scope:
                live.scope.deadline = anyio.current_time() + self._connect_timeout
                async with self._client(live) as client:
                    live.scope.deadline = math.inf
                    live.client = client
                    live.ready.set()
                    await live.watch.lost.wait()
                    live.scope.deadline = anyio.current_time() + _LEAVE
        except Exception as error:  # noqa: BLE001  # told to whoever asks next
            live.error = error
        finally:
            self.portal.closers.discard(live.stop)
            live.watch.lost.set()
            live.gone.set()
            live.ready.set()

    @asynccontextmanager
    async def _client(self, live: _Live) -> AsyncGenerator[Client]:
        guard_logs()
        at = self._endpoint
        server: Any
        if isinstance(at, Stdio):
            server = cast("Transport", watched_stdio(at, live.watch))
        elif isinstance(at, Http):
            server = cast("Transport", watched_http(at, live.watch, self._connect_timeout))
        else:
            server = at.server
        client = Client(
            server,
            mode=self._protocol,
            client_info=Implementation(name="overt", version=""),
            elicitation_callback=partial(self._asked, live),
            cache=None,
        )
        async with client:
            yield client

    async def close(self) -> None:
        """End the session; the next call opens another."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            await live.gone.wait()

    def abandon(self) -> None:
        """End the session and do not wait for it. From any thread."""
        live = self._live
        if live is not None:
            self.portal.soon(live.stop)

    # ------------------------------------------------------------ asking it

    async def tools(self) -> list[Tool]:
        """Return what the server lists.

        Raises:
            Unreachable: It is not there, or does not answer in time.
            Refused: It has no tools, or lists something else.
        """
        live = await self._open()
        try:
            with anyio.fail_after(self._connect_timeout):
                return await self._list(live)
        except TimeoutError:
            late = f"it did not list its tools within {self._connect_timeout:g} s"
            raise Unreachable(late, sent=True, last_words=live.watch.last_words) from None
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                raise Refused("it has no tools") from error
            raise await self._why(live, error) from error
        except ValidationError as error:
            raise Refused(f"what it lists is not as the protocol has it: {_where(error)}") from error
        except (OSError, RuntimeError, httpx2.HTTPError) as error:
            raise Unreachable(f"{type(error).__name__}: {told(error)}", sent=True) from error

    async def _list(self, live: _Live) -> list[Tool]:
        assert live.client is not None
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            page = await live.client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            found += page.tools
            if page.next_cursor is None or page.next_cursor == cursor:
                return found
            cursor = page.next_cursor
        raise Refused(f"it lists tools without end: {_PAGES} pages")

    async def call(
        self, errand: Errand[CallToolResult], tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> CallToolResult:
        """Call a tool. A session that has ended is opened anew first; what may have been sent is not sent again.

        Raises:
            Unreachable: It is not there, or went away.
            Refused: It says no.
            Ambiguous: See there.
        """
        params = CallToolRequestParams.model_validate(
            {"name": tool, "arguments": dict(arguments), "_meta": dict(meta)}
        )
        tries = 2
        while True:
            live = await self._open()
            tries -= 1
            try:
                if self._serial and not live.parted:
                    async with self._turn:
                        # Those that were under way before the first question have no turn.
                        while live.flights:
                            await live.change()
                        return await self._fly(live, errand, params)
                return await self._fly(live, errand, params)
            except Unreachable as error:
                if error.sent or not tries:
                    raise

    async def _fly(
        self, live: _Live, errand: Errand[CallToolResult], params: CallToolRequestParams
    ) -> CallToolResult:
        if isinstance(self._endpoint, Stdio):
            # That a program has died shows within a few turns of the loop, through which the end of its output goes.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        if live.over:
            raise self._unreachable(live, sent=False)
        flight = _Flight(errand)
        live.flights.append(flight)
        try:
            with flight.scope:
                return await self._rounds(live, flight, params)
        except MCPError as error:
            raise await self._why(live, error) from error
        except ValidationError as error:
            raise Refused(f"the call was made, and its result cannot be read: {_where(error)}") from error
        except (OSError, RuntimeError, httpx2.HTTPError) as error:
            # Nothing the SDK says it raises; whatever it is, it costs this call alone.
            raise Unreachable(f"{type(error).__name__}: {told(error)}", sent=True) from error
        finally:
            live.flights.remove(flight)
            live.stir()
        raise Ambiguous

    async def _rounds(self, live: _Live, flight: _Flight, params: CallToolRequestParams) -> CallToolResult:
        """Send a call, and again with what was asked for, until there is a result."""
        assert live.client is not None
        session = live.client.session
        listed = False
        for number in range(_ROUNDS):
            try:
                result = await session.send_request(CallToolRequest(params=params), _RESULT)
            except MCPError as error:
                if error.code == HEADER_MISMATCH and not listed:
                    # The server wants arguments in headers, which the SDK knows of once it has the list.
                    listed = True
                    await self._list(live)
                elif error.code == URL_ELICITATION_REQUIRED:
                    await self._visit(flight, error)
                else:
                    raise
                continue
            if isinstance(result, CallToolResult):
                return result
            responses: InputResponses | None = None
            if result.input_requests:
                # In an order of ours: the n-th question gets the n-th answer.
                requests = sorted(result.input_requests.items())
                responses = {key: await self._respond(flight, request) for key, request in requests}
            else:
                await anyio.sleep(min(0.05 * 2**number, 0.25))
            update = {"input_responses": responses, "request_state": result.request_state}
            params = params.model_copy(update=update)
        raise Refused(f"it asked for more {_ROUNDS} times")

    # ------------------------------------------------------------ what it asks

    async def _respond(self, flight: _Flight, request: InputRequest) -> ElicitResult:
        if not isinstance(request, ElicitRequest):
            raise Refused(f"it asks for {request.method}, which is not supported")
        reply = await self._ask(flight, request.params)
        if isinstance(reply, ErrorData):
            raise Refused(reply.message)
        return reply

    async def _visit(self, flight: _Flight, error: MCPError) -> None:
        """Have somebody go where the server wants them to go before it does anything."""
        try:
            wanted = UrlElicitationRequiredError.from_error(error.error).elicitations
        except (ValueError, TypeError, AttributeError):
            raise Refused("it wants somebody to go to an address, and does not say to which") from None
        if not wanted:
            raise Refused("it wants somebody to go to an address, and does not say to which")
        for one in wanted:
            reply = await self._ask(flight, one)
            if isinstance(reply, ErrorData):
                raise Refused(reply.message)
            if reply.action != "accept":
                raise Refused("it wants somebody to go to an address first, and they did not")

    async def _ask(self, flight: _Flight, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        try:
            wanted = elicited(params)
        except NotAsked as error:
            return ErrorData(code=INVALID_PARAMS, message=f"this is not asked of anybody: {error}")
        reply = await flight.errand.ask(wanted)
        if not isinstance(reply, ElicitResult):
            return ErrorData(code=INVALID_REQUEST, message="the call was withdrawn")
        return reply

    async def _asked(
        self, live: _Live, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Answer a question that came in beside the calls."""
        flight = await self._asker(live)
        if flight is None:
            return ErrorData(code=INVALID_REQUEST, message="there is no call this could belong to")
        return await self._ask(flight, params)

    async def _asker(self, live: _Live) -> _Flight | None:
        """Return the call a question belongs to.

        Until 2026-07-28 the protocol does not say. Where several calls are under way the question waits until the
        others have come to their end; where all of them wait for an answer they are given up, since an answer to the
        one must not be taken for one to another. From the first question on, calls of this server go one at a time.
        """
        self._serial = True
        live.asking += 1
        live.stir()
        try:
            while len(live.flights) > 1:
                if live.asking >= len(live.flights):
                    for flight in live.flights:
                        flight.scope.cancel()
                    return None
                await live.change()
            left = [flight for flight in live.flights if not flight.scope.cancel_called]
            return left[0] if left else None
        finally:
            live.asking -= 1

    # ------------------------------------------------------------ what went wrong

    async def _why(self, live: _Live, error: MCPError) -> Unreachable | Refused:
        """Return what an error of the SDK's comes to."""
        if error.code == CONNECTION_CLOSED and error.message != _CLOSED:
            # One stream of several has ended before its answer came.
            return Unreachable(self._plain(live, error), sent=True)
        if error.code == CONNECTION_CLOSED:
            live.watch.lost.set()
            with anyio.move_on_after(1.0):
                await live.gone.wait()
            return self._unreachable(live, sent=not _unsent(live.error))
        if live.watch.unknown:
            # It does not know the session any more, so it has done nothing.
            live.watch.lost.set()
            return Unreachable("it has ended the session", sent=False)
        if error.message == _HTTP_ERROR and (live.watch.status is None or live.watch.status >= 500):
            # A gateway says such a thing too, and knows nothing of what became of the request.
            return Unreachable(self._plain(live, error), sent=True)
        return Refused(self._plain(live, error))

    def _plain(self, live: _Live, error: MCPError) -> str:
        if error.message == _HTTP_ERROR and live.watch.status is not None:
            return f"it answered HTTP {live.watch.status}"
        return error.message or f"it reports error {error.code}"

    def _unreachable(self, live: _Live, *, sent: bool, late: bool = False) -> Unreachable:
        at = self._endpoint
        leaf = _leaf(live.error)
        if live.closed:
            reason = "its connection was closed"
        elif late or (leaf is None and live.client is None and live.scope.cancelled_caught):
            reason = f"it did not answer within {self._connect_timeout:g} s"
        elif isinstance(leaf, FileNotFoundError | PermissionError | NotADirectoryError):
            reason = f"{at} cannot be started: {leaf.strerror or type(leaf).__name__}"
        elif isinstance(leaf, httpx2.ConnectError | httpx2.ConnectTimeout):
            reason = f"{at} cannot be reached"
        elif isinstance(leaf, MCPError) and leaf.code != CONNECTION_CLOSED:
            reason = self._plain(live, leaf)
        elif leaf is None or isinstance(leaf, MCPError):
            reason = f"{at} ended the connection"
        else:
            reason = f"{at}: {type(leaf).__name__}: {told(leaf)}"
        return Unreachable(reason, sent=sent, last_words=live.watch.last_words)


def _leaf(error: BaseException | None) -> BaseException | None:
    """Return the first exception that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _unsent(error: Exception | None) -> bool:
    return isinstance(_leaf(error), httpx2.ConnectError | httpx2.ConnectTimeout)


def _where(error: ValidationError) -> str:
    """Return the places of a message that do not fit, without what stands there."""
    found = {
        f"{'.'.join(map(str, e['loc']))}: {e['msg']}"
        for e in error.errors(include_url=False, include_input=False)
    }
    return "; ".join(sorted(found)[:5])
