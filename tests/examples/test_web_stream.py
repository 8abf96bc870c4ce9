"""A run streamed to browsers that come and go, over ASGI without a server, on both loops."""

from __future__ import annotations

import json
import runpy
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from overt import Agent, Store, tool
from overt.operations import follow
from overt.stores import MemoryStore
from overt.testing import CrashingStore, MockModel, call, say
from tests.demo.chat_server import Steps, chat_server
from tests.examples.test_programs import no_model

__all__ = ("no_model",)  # a fixture

pytestmark = pytest.mark.anyio
STEPS: Steps = {"forecast": [[("forecast", {"city": "Oslo"})]]}
PROGRAM = Path(__file__).parents[2] / "examples" / "stream_to_browser.py"


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return runpy.run_path(str(PROGRAM))


class Depot:
    """A tool that a test holds."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.go_on = anyio.Event()

    def agent(self) -> Agent:
        @tool
        async def count() -> int:
            """Count."""
            self.entered.set()
            await self.go_on.wait()
            return 7

        model = MockModel([[say("I look."), call("count")], say("There are seven.")], chunk=4)
        return Agent("clerk", does="Counts.", tools=[count], model=model)


class Reader:
    """One connection: what came, and when it goes."""

    def __init__(self, app: Starlette, run_id: str, last: int | None = None, *, takes: int = 1000) -> None:
        self.app = app
        self.path = f"/runs/{run_id}/events"
        self.last = last
        self.takes = takes
        """After so many messages it reads no more, and does not go either."""
        self.got: list[dict[str, Any]] = []
        self.status = 0
        self.ended = False
        self.gone = anyio.Event()
        self.news = anyio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if len(self.got) >= self.takes:
            await anyio.sleep_forever()
        self.ended = not message.get("more_body")
        if self.status == 200:
            for block in message["body"].decode().split("\n\n")[:-1]:
                fields = dict(line.split(": ", 1) for line in block.splitlines())
                self.last = int(fields.get("id", self.last or 0))
                self.got.append(json.loads(fields["data"]))
        self.news.set()

    async def read(self) -> None:
        headers = [] if self.last is None else [(b"last-event-id", str(self.last).encode())]
        scope = {"type": "http", "method": "GET", "path": self.path, "headers": headers, "query_string": b""}
        await self.app(scope, self.receive, self.send)

    async def until(self, kind: str) -> None:
        while kind not in self.kinds():
            self.news = anyio.Event()
            await self.news.wait()

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.got]

    def facts(self) -> list[dict[str, Any]]:
        return [event for event in self.got if event["kind"] != "text"]


Serve = Callable[..., Any]


@pytest.fixture
def serve(program: dict[str, Any]) -> Serve:
    @asynccontextmanager
    async def opened(agent: Agent, store: Store) -> AsyncGenerator[tuple[Starlette, httpx2.AsyncClient]]:
        app = cast("Starlette", program["make_app"](store, agent))
        with anyio.fail_after(20):
            async with app.router.lifespan_context(app):
                http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://trips")
                async with http:
                    yield app, http

    return opened


async def begin(http: httpx2.AsyncClient) -> str:
    answer = await http.post("/runs", data={"prompt": "How many? (secret-17)"})
    assert answer.status_code == 303
    assert "EventSource" in (await http.get(answer.headers["location"])).text
    return answer.headers["location"].rsplit("/", 1)[1]


FACTS = ["turn", "tool_started", "tool_finished", "turn", "result"]


async def test_a_browser_is_told_all_of_it_and_the_bill_last(serve: Serve) -> None:
    depot = Depot()
    async with serve(depot.agent(), MemoryStore()) as (app, http):
        reader = Reader(app, await begin(http))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await reader.until("tool_started")
            begun = len(reader.got)  # the first pieces may have been said before it listened
            depot.go_on.set()
    assert [event["kind"] for event in reader.facts()] == FACTS
    assert reader.ended
    said = "".join(event["text"] for event in reader.got[begun:] if event["kind"] == "text")
    assert said == "There are seven."
    bill = reader.got[-1]["result"]
    assert (bill["status"], bill["total_tokens"], bill["turns"]) == ("done", 200, 2)
    assert bill["usage"]["output_tokens"] == 40
    assert "secret-17" not in json.dumps(reader.got)


async def test_leaving_stops_nothing_and_coming_back_misses_and_doubles_nothing(serve: Serve) -> None:
    depot = Depot()
    async with serve(depot.agent(), MemoryStore()) as (app, http):
        run_id = await begin(http)
        first = Reader(app, run_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.read)
            await first.until("tool_started")
            first.gone.set()
        assert not first.ended
        second = Reader(app, run_id, first.last)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.read)
            depot.go_on.set()
        assert [event["kind"] for event in first.facts() + second.facts()] == FACTS
        whole = Reader(app, run_id)
        await whole.read()
        assert whole.got == first.facts() + second.facts()


async def test_wherever_a_reader_stops_the_next_one_reads_on(serve: Serve) -> None:
    depot = Depot()
    depot.go_on.set()
    async with serve(depot.agent(), MemoryStore()) as (app, http):
        whole = Reader(app, run_id := await begin(http))
        await whole.read()
        for cut in range(1, len(FACTS)):
            first = Reader(app, run_id, takes=cut)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.read)
                await first.until(FACTS[cut - 1])
                while len(first.got) < cut:
                    first.news = anyio.Event()
                    await first.news.wait()
                first.gone.set()
            second = Reader(app, run_id, first.last)
            await second.read()
            assert first.got + second.got == whole.facts(), cut


async def test_a_reader_that_reads_no_more_holds_nobody_up(serve: Serve) -> None:
    depot, store = Depot(), MemoryStore()
    async with serve(depot.agent(), store) as (app, http):
        run_id = await begin(http)
        slow, quick = Reader(app, run_id, takes=1), Reader(app, run_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow.read)
            tasks.start_soon(quick.read)
            await quick.until("tool_started")
            depot.go_on.set()
            await quick.until("result")
            assert (await store.info(run_id)).status == "done"
            assert len(slow.got) == 1
            slow.gone.set()


async def test_the_button_stops_what_closing_the_tab_does_not(serve: Serve) -> None:
    depot = Depot()
    async with serve(depot.agent(), MemoryStore()) as (app, http):
        run_id = await begin(http)
        await depot.entered.wait()
        assert (await http.post(f"/runs/{run_id}")).status_code == 303
        reader = Reader(app, run_id)
        await reader.read()
        assert reader.got[-1]["result"]["status"] == "interrupted"
        assert reader.got[-1]["result"]["total_tokens"] == 100


async def test_a_server_that_stops_is_read_on_at_the_next(serve: Serve) -> None:
    depot, store = Depot(), CrashingStore(MemoryStore())  # outlives its server
    async with serve(depot.agent(), store) as (app, http):
        first = Reader(app, run_id := await begin(http))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.read)
            await first.until("tool_started")
            first.gone.set()
    depot.go_on.set()
    async with serve(depot.agent(), store) as (app, http):
        second = Reader(app, run_id, first.last)
        await second.read()
        # The tool is entered again, and a reader is told so: that is what happened.
        assert [event["kind"] for event in second.facts()][-3:] == FACTS[-3:]
        positions = [event["position"] for event in first.facts() + second.facts()[:-1]]
        assert positions == sorted(set(positions))
        recorded = [event.position async for event in follow(store, run_id) if event.kind in FACTS]
        assert positions == recorded[:-1]


@pytest.mark.parametrize(
    ("run_id", "last", "status"), [("gone", "0", 404), ("gone", "x", 400), ("gone", "-1", 400)]
)
async def test_what_cannot_be_read(serve: Serve, run_id: str, last: str, status: int) -> None:
    async with serve(Depot().agent(), MemoryStore()) as (_, http):
        answer = await http.get(f"/runs/{run_id}/events", headers={"last-event-id": last})
        assert answer.status_code == status


async def test_with_a_model_behind_an_endpoint(
    program: dict[str, Any], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server(STEPS) as server:
        monkeypatch.setenv("OVERT_MODEL", "openai:tiny")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with serve(program["guide"](), MemoryStore()) as (app, http):
            reader = Reader(app, await begin(http))
            await reader.read()
    assert server.bodies
    assert reader.got[-1]["result"]["text"] == "Said over the wire."
