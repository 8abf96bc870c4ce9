"""The approval page and the approval chat, driven in process on both loops, from the script and over the wire."""

from __future__ import annotations

import html
import os
import re
import runpy
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.applications import Starlette

from overt import Store
from overt.stores import MemoryStore
from overt.testing import CrashingStore, VirtualClock
from tests.demo.chat_server import Steps, chat_server

pytestmark = pytest.mark.anyio
STEPS: Steps = {
    "refund": [[("look_up", {"order": "A-1001"})], [("refund", {"order": "A-1001", "amount": 250})]]
}
EXAMPLES = Path(__file__).parents[2] / "examples"
Form = Mapping[str, str]


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OVERT_", "OPENAI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "approve_by_web.py"))


class Browser:
    """What a person sees and presses; no server, no port."""

    def __init__(self, app: Starlette, clock: VirtualClock) -> None:
        self.clock = clock
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://desk")

    async def see(self) -> str:
        await self.clock.advance(0)  # whatever works in the background has come to rest
        return (await self.http.get("/")).text

    async def forms(self) -> list[dict[str, str]]:
        """The hidden fields of each request on the page."""
        fields = r'<input type="hidden" name="(\w+)" value="([^"]*)">'
        return [
            {name: html.unescape(value) for name, value in re.findall(fields, form)}
            for form in (await self.see()).split("<form")[1:]
        ]

    async def press(self, form: Form, word: str, *, by: str = "ada", amount: str = "") -> tuple[int, str]:
        answer = await self.http.post(
            "/answer", data={**form, "word": word, "amount": amount}, headers={"x-user": by}
        )
        return answer.status_code, re.sub(r"<[^>]+>", "", html.unescape(answer.text))


Opened = Callable[..., Any]


@pytest.fixture
def desk(program: dict[str, Any]) -> Opened:
    @asynccontextmanager
    async def opened(
        *orders: str, store: Store | None = None, clock: VirtualClock | None = None
    ) -> AsyncGenerator[Browser]:
        clock = clock or VirtualClock()
        app = cast("Starlette", program["make_app"](store or MemoryStore(), clock, *orders))
        async with app.router.lifespan_context(app):
            browser = Browser(app, clock)
            async with browser.http:
                yield browser

    return opened


async def test_a_request_shows_what_a_yes_runs_and_repeats(desk: Opened) -> None:
    async with desk("A-1001") as browser:
        seen = html.unescape(await browser.see())
        assert "<h2>Refund 250.0 for A-1001?</h2>" in seen
        assert "<dt>amount<dd>250.0" in seen
        assert "open until 03 January 00:00" in seen
        assert "An answer runs again: look_up {'order': 'A-1001'}. It buys again: 2 turns." in seen
        (form,) = await browser.forms()
        assert await browser.press(form, "yes") == (303, "")
        seen = await browser.see()
        assert "<article>" not in seen
        assert "<li>A-1001: done" in seen


async def test_only_the_first_of_two_clicks_counts(desk: Opened) -> None:
    async with desk("A-1001", "A-1002") as browser:
        first, second = sorted(await browser.forms(), key=lambda form: form["run"])
        await browser.press(first, "no", by="ben")
        for word in ("yes", "change", "no"):  # while the run is at work, too
            status, text = await browser.press(first, word, amount="7")
            assert (status, "Already answered by ben: no (declined)." in text) == (409, True)
        assert [form["id"] for form in await browser.forms()] == [second["id"]]
        assert (await browser.press(first, "yes"))[0] == 409
        assert "<li>A-1001: done" in await browser.see()


async def test_an_amount_is_changed_within_what_somebody_may_approve(desk: Opened) -> None:
    store = CrashingStore(MemoryStore())  # one that can be read when the server has closed it
    async with desk("A-1001", store=store) as browser:
        (form,) = await browser.forms()
        for word, by, amount in (("yes", "ben", ""), ("change", "ben", "101"), ("yes", "eve", "")):
            status, text = await browser.press(form, word, by=by, amount=amount)
            assert (status, f"Not accepted from {by}" in text) == (403, True)
        for amount in ("much", "nan"):
            assert (await browser.press(form, "change", amount=amount))[0] in (400, 403)
        assert await browser.forms() == [form]
        assert await browser.press(form, "change", by="ben", amount="99.5") == (303, "")
        assert await browser.forms() == []
    assert "refunded 99.50 for A-1001" in await store.export_run("A-1001")


async def test_what_nobody_answers_expires_and_the_run_goes_on(desk: Opened) -> None:
    async with desk("A-1001") as browser:
        (form,) = await browser.forms()
        await browser.clock.advance(timedelta(days=2).total_seconds())
        assert "<li>A-1001: done" in await browser.see()
        status, text = await browser.press(form, "yes")
        assert (status, "It expired on 03 January 00:00" in text) == (410, True)


async def test_an_answer_that_comes_too_late_is_told_so_before_the_timer_is(desk: Opened) -> None:
    async with desk("A-1001") as browser:
        (form,) = await browser.forms()
        browser.clock.set_wall(browser.clock.now() + timedelta(days=2))
        assert (await browser.press(form, "yes"))[0] == 410
        await browser.clock.advance(60)
        assert "<li>A-1001: done" in await browser.see()


async def test_another_process_shows_and_answers_what_the_first_one_asked(desk: Opened) -> None:
    store, clock = CrashingStore(MemoryStore()), VirtualClock()
    async with desk("A-1001", store=store, clock=clock) as browser:
        (form,) = await browser.forms()
    async with desk("A-1002", store=store, clock=clock) as browser:
        assert await browser.forms() == [form]
        await browser.press(form, "yes")
        assert "<li>A-1001: done" in await browser.see()


async def test_what_came_from_outside_is_escaped(desk: Opened) -> None:
    async with desk("<b>&\"'") as browser:
        seen = await browser.see()
        assert "&lt;b&gt;&amp;&quot;&#x27;" in seen
        assert "<b>" not in seen
        (form,) = await browser.forms()
        answer = await browser.http.post("/answer", data={**form, "run": "<b>", "word": "yes"})
        assert (answer.status_code, "<b>" in answer.text, "&lt;b&gt;" in answer.text) == (400, False, True)
        assert (await browser.http.post("/answer", content=b"\xff")).status_code == 400
        assert await browser.press(form, "yes") == (303, "")


async def resting(store: Store, run_id: str, status: str) -> None:
    """Wait until a run stands so."""
    while (info := await store.info(run_id)).status != status:
        await store.wait(run_id, after=info.position)


async def test_a_server_that_stops_leaves_its_runs_to_the_next(
    desk: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = CrashingStore(MemoryStore()), VirtualClock()
    with chat_server(STEPS, hang_at="refund") as server, anyio.fail_after(20):
        monkeypatch.setenv("OVERT_MODEL", "openai:tiny")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with desk("A-1001", store=store, clock=clock):
            await anyio.to_thread.run_sync(server.hangs.wait)
        assert (await store.info("A-1001")).status == "cut_off"
        server.go_on.set()
        async with desk(store=store, clock=clock) as browser:
            await resting(store, "A-1001", "pending")
            assert "An answer runs again: no call. It buys again: 0 turns." in await browser.see()
            (form,) = await browser.forms()
            assert await browser.press(form, "yes") == (303, "")
            await resting(store, "A-1001", "done")
    assert "Said over the wire." in await store.export_run("A-1001")
