"""Refunds that wait for a person, in a browser: what is asked, what a yes would repeat, and who has answered.

    python examples/approve_by_web.py       # pip install starlette uvicorn; then open http://127.0.0.1:8000

Runs park at the question; the page reads from the store what is open. An answer is durable before the page comes back,
and the run goes on in the server's task group. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import escape
from urllib.parse import parse_qs

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

import overt
from overt import Agent, Allow, Answer, Ask, Clock, GuardrailEvent, Request, Ruling, Runtime, Store, tool
from overt.errors import AlreadyAnswered, InvalidAnswer, OvertError, RequestExpired, RunConflict
from overt.stores import PendingRequest, SQLiteStore
from overt.testing import MockModel, Reply, call, say

LIMITS = {"ada": 1000.0, "ben": 100.0}  # who may approve how much


@tool
async def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order}: a kettle, 250.00, late"


@tool(on_replay="reuse")
async def refund(ctx: overt.ToolContext, order: str, amount: float) -> str:
    """Pay money back."""
    return f"refunded {amount:.2f} for {order}"  # here the bank would be called, with ctx.idempotency_key


def script(request: overt.ModelRequest) -> Reply:
    order = next(m.text for m in request.messages if m.role == "user").split()[-1]
    replies = [call("look_up", order=order), call("refund", order=order, amount=250.0), say("Dealt with.")]
    return replies[sum(message.role == "assistant" for message in request.messages)]


def clerk(clock: Clock) -> Agent:
    def ask_a_person(event: GuardrailEvent) -> Ruling:
        if event.call.name != "refund":
            return Allow()
        prompt = "Refund {amount} for {order}?".format(**event.call.arguments)
        return Ask(prompt, expires_at=clock.now() + timedelta(days=2))

    return Agent(
        "clerk",
        does="Refunds orders.",
        soul="Look the order up with look_up, refund it with refund, then say so.",
        tools=[look_up, refund],
        guardrails=[ask_a_person],
        model=os.environ.get("OVERT_MODEL") or MockModel(script),
    )


def arguments_of(request: Request) -> dict[str, JsonValue]:
    """What runs if this is approved: the arguments as they were validated."""
    asked = request.data.get("call")
    arguments = asked.get("arguments") if isinstance(asked, dict) else None
    return arguments if isinstance(arguments, dict) else {}


def may_approve(request: Request, answer: Answer[JsonValue]) -> bool:
    """Check who answers; false is `InvalidAnswer` to them, and changes nothing."""
    changed = answer.data.get("arguments") if isinstance(answer.data, dict) else None
    amount = (changed if isinstance(changed, dict) else arguments_of(request)).get("amount")
    return answer.by in LIMITS and (not answer.ok or float(str(amount)) <= LIMITS[answer.by])


class Desk:
    """Starts runs, gives them their answers, and goes on with them in this process."""

    tasks: TaskGroup  # the server's, once it has started

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock, self.agent = store, clock, clerk(clock)

    async def start(self, order: str) -> None:
        # A script repeats itself word for word, as REWIND, the default, asks for. A model does not.
        policy = overt.ResumePolicy.CONTINUE if "OVERT_MODEL" in os.environ else overt.ResumePolicy.REWIND
        await self.agent.run(
            f"Refund order {order}", store=self.store, clock=self.clock, run_id=order, resume_policy=policy
        )

    async def opened(self, run_id: str) -> Runtime[str]:
        return await Runtime.open(
            self.agent, run_id, store=self.store, clock=self.clock, verify_answer=may_approve
        )

    async def answer(self, run_id: str, answer: Answer[JsonValue]) -> None:
        """Return when the answer is durable, or raise why it does not count. What follows from it runs on."""
        await self.tasks.start(self._go_on, await self.opened(run_id), answer)

    async def _go_on(
        self, runtime: Runtime[str], answer: Answer[JsonValue], *, task_status: TaskStatus[None]
    ) -> None:
        accepted = False
        try:
            async with runtime.stream(answer=answer) as stream:
                async for event in stream:
                    if event.kind == "answer" and event.request_id == answer.id:
                        accepted = True
                        task_status.started()
        except OvertError:
            if not accepted:
                raise  # to whoever called `answer`
            logging.exception("run %s stopped; `tick` goes on with it", runtime.id)

    async def tick(self) -> None:
        """Answer what nobody answered in time, and go on with what may go on; in any number of processes."""
        now = self.clock.now()
        await self.store.expire_due(now)
        stopped = await self.store.runs(status=("ready", "cut_off"))
        for info in (*stopped, *await self.store.abandoned(now)):
            try:
                await (await self.opened(info.run_id)).recover()
            except OvertError as error:  # another process was faster, or the run needs somebody to look at it
                logging.warning("run %s: %s", info.run_id, error)

    async def tick_on(self) -> None:
        while True:
            await self.tick()
            await self.clock.sleep(60)


def page(body: str, status: int = 200) -> HTMLResponse:
    head = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return HTMLResponse(f"{head}<title>Refunds</title>{body}<p><a href='/'>All requests</a>", status)


def shown(pending: PendingRequest) -> str:
    """One request. What came from a model or a customer is escaped, everywhere."""
    request = pending.request
    arguments = arguments_of(request)
    values = "".join(f"<dt>{escape(name)}<dd>{escape(str(value))}" for name, value in arguments.items())
    again = ", ".join(f"{r.tool} {r.arguments}" for r in request.replays) or "no call"
    until = f"until {request.expires_at:%d %B %H:%M}" if request.expires_at else "for ever"
    return f"""<article><h2>{escape(request.prompt)}</h2><dl>{values}</dl>
<p>Asked by {escape(pending.agent)} in run {escape(pending.run_id)}, open {until}.
<p>An answer runs again: {escape(again)}. It buys again: {request.turns_again} turns.
<form method="post" action="/answer"><input type="hidden" name="id" value="{escape(request.id)}">
<input type="hidden" name="run" value="{escape(pending.run_id)}">
<button name="word" value="yes">Approve</button> <button name="word" value="no">Decline</button>
<input name="amount" value="{escape(str(arguments.get("amount", "")))}" inputmode="decimal">
<button name="word" value="change">Approve this amount</button></form></article>"""


def make_app(store: Store, clock: Clock, *orders: str) -> Starlette:
    """Serve the runs of a store; where there are none, begin with these orders."""
    desk = Desk(store, clock)

    async def index(web: WebRequest) -> Response:
        pendings = await store.pendings(kind="approval", limit=50)
        runs = "".join(f"<li>{escape(r.run_id)}: {escape(r.status)}" for r in await store.runs(limit=50))
        return page("".join(map(shown, pendings)) + f"<h2>Runs</h2><ul>{runs}</ul>")

    async def answered(web: WebRequest) -> Response:
        sent = parse_qs((await web.body()).decode(errors="replace"))
        form = {name: values[0] for name, values in sent.items()}
        word, run_id, id = form.get("word"), form.get("run", ""), form.get("id", "")
        # Your sign-in comes here: the user of the session, never a field of the form. This is a header as a proxy that
        # signs people in sets it. A form that goes with a session's cookie needs your framework's CSRF token, too.
        by = web.headers.get("x-user", "ada")
        answer = Answer[JsonValue](id=id, ok=False, reason="declined", by=by)
        try:
            if word == "yes":
                answer = Answer[JsonValue](id=id, ok=True, by=by)
            elif word == "change":
                arguments: dict[str, JsonValue] = {"amount": float(form.get("amount", ""))}
                for request in (await desk.opened(run_id)).pendings():
                    arguments = {**arguments_of(request), **arguments} if request.id == id else arguments
                answer = Answer[JsonValue](id=id, ok=True, data={"arguments": arguments}, by=by)
            await desk.answer(run_id, answer)
        except (AlreadyAnswered, RunConflict):
            # While a run is at work only its driver takes answers; what was answered before is in the journal.
            events = (await desk.opened(run_id)).events()
            given = next((e for e in events if e.kind == "answer" and e.request_id == id), None)
            if given is None:
                return page("Somebody is at work on this run. Try again in a moment.", 409)
            said = "yes" if given.ok else f"no ({given.reason})"
            return page(f"Already answered by {escape(given.by or 'the clock')}: {escape(said)}.", 409)
        except RequestExpired as error:
            return page(f"It expired on {error.expires_at:%d %B %H:%M}, and counts as declined.", 410)
        except InvalidAnswer as error:
            return page(f"Not accepted from {escape(by)}: {escape(str(error))}", 403)
        except (OvertError, ValueError) as error:
            return page(f"That cannot be answered: {escape(str(error))}", 400)
        return RedirectResponse("/", 303)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as desk.tasks:
            for order in () if await store.runs(limit=1) else orders:
                desk.tasks.start_soon(desk.start, order)
            desk.tasks.start_soon(desk.tick_on)
            yield
            desk.tasks.cancel_scope.cancel()  # what is at work is cut off, and `tick` of the next process goes on
        await store.close()

    routes = [Route("/", index), Route("/answer", answered, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(SQLiteStore("refunds.db"), overt.SystemClock(), "A-1001", "A-1002"))
