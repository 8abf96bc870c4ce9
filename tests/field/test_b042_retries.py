"""B042: the wait a server asks for is kept, in seconds and as a date, and no retries are none, over the real client."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from tests.driver.support import agent
from tests.models.openai_fake import KEY, reply

from overt import Budget, RetryPolicy, Runtime
from overt.errors import ModelError
from overt.message import ModelRequest, UserMessage
from overt.models import OpenAIModel
from overt.testing import VirtualClock

NOON = "Tue, 01 Dec 2026 12:00:00 GMT"
SECONDS = {"retry-after": "5"}
DATE = {"retry-after": "Tue, 01 Dec 2026 12:00:05 GMT", "date": NOON}
MILLISECONDS = {"retry-after-ms": "5000", "retry-after": "1"}


class Server:
    """Answers 429 or whatever it is told, so many times, and then replies."""

    def __init__(
        self, clock: VirtualClock, *, failures: int, headers: dict[str, str], status: int = 429
    ) -> None:
        self.clock, self.failures, self.headers, self.status = clock, failures, headers, status
        self.at: list[float] = []

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.at.append(self.clock.monotonic())
        if len(self.at) <= self.failures:
            return httpx2.Response(
                self.status, json={"error": {"message": "slow down"}}, headers=self.headers
            )
        return httpx2.Response(200, json=reply(content="done"))

    def model(self) -> OpenAIModel:
        http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self.handle))
        # The host's client would retry three times by itself.
        return OpenAIModel("m", client=AsyncOpenAI(api_key=KEY, http_client=http, max_retries=3))


async def run(server: Server, *steps: float, **options: Any) -> Any:
    rt = Runtime(agent(), model=server.model(), clock=server.clock, **options)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        for step in steps:
            await server.clock.wait_for_sleepers()
            await server.clock.advance(step)
    return rt.result()


@pytest.mark.parametrize("headers", [SECONDS, DATE, MILLISECONDS], ids=["seconds", "date", "milliseconds"])
async def test_no_attempt_before_the_wait_is_over(headers: dict[str, str]) -> None:
    server = Server(VirtualClock(), failures=1, headers=headers)
    result = await run(server, 4.999, 0.001)
    assert (result.status, result.text, server.at) == ("done", "done", [0.0, 5.0])
    assert (result.usage.model_calls, result.usage.unreported_calls) == (2, 1)


@pytest.mark.parametrize("headers", [SECONDS, DATE], ids=["seconds", "date"])
async def test_no_attempt_past_the_deadline(headers: dict[str, str]) -> None:
    server = Server(VirtualClock(), failures=1, headers=headers)
    result = await run(server, budget=Budget(max_wall=4.0))
    assert (result.status, result.error.retry_after, server.at) == ("error", 5.0, [0.0])


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_zero_retries_ask_once(status: int) -> None:
    server = Server(VirtualClock(), failures=9, headers={}, status=status)
    result = await run(server, retry=RetryPolicy(max_retries=0))
    assert (result.status, len(server.at), result.usage.model_calls) == ("error", 1, 1)
    assert result.error.retryable


async def test_layers_do_not_multiply() -> None:
    server = Server(VirtualClock(), failures=99, headers={})
    result = await run(server, 0.5, 1.0, retry=RetryPolicy(jitter=0))
    assert (result.status, len(server.at)) == ("error", 3)
    server = Server(VirtualClock(), failures=99, headers={})
    result = await run(server, 0.5, retry=RetryPolicy(jitter=0), budget=Budget(max_model_calls=2))
    assert (len(server.at), result.limit) == (2, None)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Tue, 01 Dec 2026 11:00:00 GMT", "date": NOON}, 0.0),
        ({"retry-after": "Tue, 01 Dec 2026 12:01:00", "date": NOON}, 60.0),
        ({"retry-after": "Tue, 99 Dec 2026 12:01:00 GMT", "date": NOON}, None),
    ],
)
async def test_what_a_header_says(headers: dict[str, str], wait: float | None) -> None:
    server = Server(VirtualClock(), failures=1, headers=headers)
    with pytest.raises(ModelError) as caught:
        await server.model().generate(ModelRequest(messages=(UserMessage(text="go"),)))
    assert caught.value.retry_after == wait
