"""A run watched in a browser: what is said and done while it happens, and nothing lost when the tab goes away.

    python examples/stream_to_browser.py       # pip install starlette uvicorn; then open http://127.0.0.1:8000

The run belongs to the server, not to the connection: closing the tab stops nothing, and a browser that comes back reads
on behind the last event it has had (`Last-Event-ID`). OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import parse_qs

import anyio
from anyio.abc import TaskGroup, TaskStatus
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from overt import Agent, Event, Model, Runtime, Store, SystemClock, tool
from overt.errors import OvertError, RunNotFound
from overt.operations import follow
from overt.stores import SQLiteStore
from overt.testing import MockModel, Reply, call, say

FORECAST = {"Oslo": "rain, 4 degrees", "Rome": "sun, 21 degrees"}
BILL = {"status", "text", "limit", "turns", "total_tokens", "usage", "cost"}
SHOWN: dict[str, dict[str, bool | set[str]]] = {
    "text": {"text": True},
    "model_failed": {},
    "turn": {"message": True},
    "tool_started": {"call": True},
    "tool_finished": {"call_id": True, "name": True, "output": True, "is_error": True},
    "request": {"request": True},
    "result": {"result": BILL},
}
"""What a browser is shown. A journal has more, such as prompts, reasoning and errors: say what goes out."""


@tool
async def forecast(city: str) -> str:
    """Look up tomorrow's weather."""
    return FORECAST.get(city, "unknown")


def model() -> Model | str:
    script: list[Reply] = [
        [say("Two cities, one moment."), call("forecast", city="Oslo"), call("forecast", city="Rome")],
        say("Take an umbrella to Oslo and a hat to Rome."),
    ]
    return os.environ.get("OVERT_MODEL") or MockModel(script, chunk=6, think_time=0.5)


def guide() -> Agent:
    soul = "Call forecast for each city in one reply. Then say in one sentence what to pack."
    return Agent("guide", does="Says what to pack.", soul=soul, tools=[forecast], model=model())


class Server:
    """Drives runs in its own task group; whoever watches one comes and goes."""

    tasks: TaskGroup  # the server's, once it has started

    def __init__(self, store: Store, agent: Agent) -> None:
        self.store, self.agent = store, agent
        self.live: dict[str, Runtime[str]] = {}

    async def start(self, prompt: str) -> str:
        runtime = Runtime(self.agent, store=self.store, run_id=secrets.token_hex(8))
        await self.tasks.start(self._drive, runtime, prompt)
        return runtime.id

    async def recover(self) -> None:
        """Go on with what an earlier server has left."""
        stopped = await self.store.runs(status="cut_off")
        for info in (*stopped, *await self.store.abandoned(SystemClock().now())):
            try:
                runtime = await Runtime.open(self.agent, info.run_id, store=self.store)
                await self.tasks.start(self._drive, runtime, None)
            except OvertError as error:  # another process was faster, or the run needs somebody to look at it
                logging.warning("run %s: %s", info.run_id, error)

    async def _drive(
        self, runtime: Runtime[str], prompt: str | None, *, task_status: TaskStatus[None]
    ) -> None:
        try:
            # As a stream, so that the model is asked for pieces also before the first browser has come.
            async with runtime.stream(prompt) as stream:
                await anext(stream)  # from here on it is at work, and can be followed to its end
                self.live[runtime.id] = runtime
                task_status.started()
                await stream.result()
        except OvertError:
            if runtime.id not in self.live:
                raise
            logging.exception("run %s stopped", runtime.id)
        finally:
            self.live.pop(runtime.id, None)


class EventStream:
    """Server-sent events of one run to one reader, as an ASGI response.

    Not a generator in a `StreamingResponse`: one that is left in the middle is closed by somebody else's task, and the
    stream of a runtime has to be left by the task that entered it.
    """

    def __init__(self, server: Server, run_id: str, after: int) -> None:
        self.server, self.run_id, self.after = server, run_id, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, receive, tasks)
            async with AsyncExitStack() as stack:
                events: AsyncIterator[Event]
                if runtime := self.server.live.get(self.run_id):
                    events = aiter(await stack.enter_async_context(runtime.follow(after=self.after)))
                else:  # at rest, or another process drives it: facts, but no pieces of text
                    events = follow(self.server.store, self.run_id, after=self.after)
                async for event in events:
                    if event.kind in SHOWN:
                        await send({"type": "http.response.body", "body": written(event), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            tasks.cancel_scope.cancel()

    @staticmethod
    async def _until_gone(receive: Receive, tasks: TaskGroup) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()  # the reader goes; the run is in another task group


def written(event: Event) -> bytes:
    """One event on the wire. A piece of text is no fact and has no place in the journal, so it has no id."""
    data = event.model_dump_json(
        include={"kind": True, "position": True, "handle": True, **SHOWN[event.kind]}
    )
    id = "" if event.kind == "text" else f"id: {event.position}\n"
    return f"{id}data: {data}\n\n".encode()


START = """<!doctype html><meta charset="utf-8"><title>What do I pack?</title>
<form method="post" action="/runs"><input name="prompt" value="Oslo and Rome"><button>Ask</button></form>"""
WATCH = """<!doctype html><meta charset="utf-8"><title>What do I pack?</title>
<pre id="log"></pre><p id="said"></p><form method="post"><button>Stop</button></form>
<script>
const log = document.getElementById("log"), said = document.getElementById("said");
const line = text => { log.textContent += text + "\\n"; };
const source = new EventSource(location.pathname + "/events");
source.onopen = () => { said.textContent = ""; };  // what was said while nobody listened is missing from it
source.onmessage = message => {
  const event = JSON.parse(message.data);
  switch (event.kind) {
    case "text": said.textContent += event.text; break;
    case "model_failed": said.textContent = ""; break;
    case "turn": said.textContent = ""; line(event.message.text); break;
    case "tool_started": line("> " + event.call.name + " " + JSON.stringify(event.call.arguments)); break;
    case "tool_finished": line("< " + event.output); break;
    case "request": line("waits: " + event.request.prompt); break;
    case "result":
      line(event.result.status + ": " + event.result.total_tokens + " tokens, " + event.result.turns + " turns");
      source.close();  // or the browser would ask again
  }
};
</script>"""


def make_app(store: Store, agent: Agent) -> Starlette:
    """Start runs, and show them to whoever has the address. Yours: who may start, see and stop which."""
    server = Server(store, agent)

    async def index(web: WebRequest) -> Response:
        return HTMLResponse(START)

    async def start(web: WebRequest) -> Response:
        form = parse_qs((await web.body()).decode(errors="replace"))
        run_id = await server.start(form.get("prompt", ["Oslo and Rome"])[0])
        return RedirectResponse(f"/runs/{run_id}", 303)

    async def watch(web: WebRequest) -> Response:
        return HTMLResponse(WATCH)

    async def events(web: WebRequest) -> Response | EventStream:
        run_id, after = web.path_params["run_id"], web.headers.get("last-event-id", "0")
        if not after.isdecimal():
            return PlainTextResponse("Last-Event-ID is no position", 400)
        try:
            if run_id not in server.live:
                await store.info(run_id)
        except RunNotFound as error:
            return PlainTextResponse(str(error), 404)  # a browser does not ask again
        return EventStream(server, run_id, int(after))

    async def stop(web: WebRequest) -> Response:
        run_id = web.path_params["run_id"]
        if runtime := server.live.get(run_id):
            await runtime.interrupt()
        else:  # another process is asked
            await store.interrupt(run_id, reason="stopped by a reader")
        return RedirectResponse(f"/runs/{run_id}", 303)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as server.tasks:
            await server.recover()
            yield
            server.tasks.cancel_scope.cancel()  # what is at work is cut off; the next server goes on with it
        await store.close()

    routes = [
        Route("/", index),
        Route("/runs", start, methods=["POST"]),
        Route("/runs/{run_id}", watch),
        Route("/runs/{run_id}", stop, methods=["POST"]),
        Route("/runs/{run_id}/events", events),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(SQLiteStore("trips.db"), guide()), timeout_graceful_shutdown=1)
