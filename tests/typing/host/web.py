"""The web's side: runs are begun, questions listed and answered, and a run is followed as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, assert_never

from pydantic import BaseModel, JsonValue, ValidationError
from tests.typing.host.worker import Job, Resume, Start

from overt import Answer, Event, Store, events
from overt.errors import RunNotFound
from overt.operations import follow


class Call(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def user(self) -> str: ...
    async def body(self) -> bytes: ...


@dataclass(frozen=True)
class Reply:
    """What a handler gives back."""

    status: int
    text: str = ""


class Begin(BaseModel):
    run_id: str
    prompt: str


class Yes(BaseModel):
    request: str
    ok: bool
    data: JsonValue = None
    reason: str | None = None


@dataclass(frozen=True)
class Site:
    """The handler, over a store and a way into the queue."""

    store: Store
    put: Callable[[Job], Awaitable[None]]

    async def handle(self, call: Call) -> Reply:
        """Answer one call."""
        try:
            match call.method, call.path.strip("/").split("/"):
                case "POST", ["runs"]:
                    begin = Begin.model_validate_json(await call.body())
                    await self.put(Start(begin.run_id, begin.prompt))
                    return Reply(202)
                case "GET", ["approvals"]:
                    return Reply(200, "\n".join([line async for line in self._approvals()]))
                case "POST", ["runs", run_id, "answers"]:
                    yes = Yes.model_validate_json(await call.body())
                    answer = Answer[JsonValue](
                        id=yes.request, ok=yes.ok, data=yes.data, reason=yes.reason, by=call.user
                    )
                    await self.put(Resume(run_id, answer))
                    return Reply(202)
                case "GET", ["runs", run_id, "events"]:
                    return Reply(200, "".join([line async for line in self.follow(run_id)]))
                case _:
                    return Reply(404)
        except ValidationError as error:
            return Reply(400, str(error))
        except RunNotFound as error:
            return Reply(404, str(error))

    async def _approvals(self) -> AsyncIterator[str]:
        for pending in await self.store.pendings(kind="approval"):
            request = pending.request
            again = ", ".join(call.tool for call in request.replays) or "nothing"
            yield f"{pending.run_id} {request.id}: {request.prompt} (runs again: {again})"

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[str]:
        """Yield a run as server-sent events; a browser that comes back gives the last `id` as `after`."""
        async for event in follow(self.store, run_id, after=after):
            said = in_words(event)
            if said:
                yield f"id: {event.position}\nevent: {event.kind}\ndata: {said}\n\n"


def in_words(event: Event) -> str | None:
    """Say an event to a customer; `None` where it is none of their business."""
    match event:
        case events.TextDelta():
            return event.text
        case events.TurnFinished():
            return event.message.text or None
        case events.ToolStarted():
            return f"{event.call.name} …"
        case events.ToolFinished():
            return f"{event.name}: {event.output}"
        case events.ToolDenied():
            return f"{event.call.name} may not be: {event.reason}"
        case events.RequestOpened():
            return event.request.prompt
        case events.AnswerGiven():
            return f"{event.by or 'somebody'} said {'yes' if event.ok else 'no'}"
        case events.LimitReached():
            return f"stopped by {event.limit.value} of {event.limit_at}"
        case events.RetryAwaited():
            return f"again in {event.seconds:.0f} s"
        case events.HandleSettled():
            return event.status.value
        case events.VerdictGiven():
            return event.verdict.reason
        case events.ResultReady():
            return event.result.text
        case events.WakeBegan() | events.HandleSpawned() | events.Parked() | events.Resumed():
            return None
        case events.Rewound() | events.HandleClosed() | events.RequestCancelled() | events.ModelFailed():
            return None
        case events.Recorded() | events.ReasoningDelta():
            return None
        case _:
            assert_never(event)
