"""The sample host application works, and is typed by what the package says alone: no Any, no cast, no ignore."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import anyio
import anyio.lowlevel
from tests.typing.host.billing import Bill
from tests.typing.host.web import Site
from tests.typing.host.worker import Consumer, Job, Rejected, Shop, Sweep

from overt import ModelRequest, Price, PriceTable
from overt.stores import MemoryStore
from overt.testing import MockModel, Part, call

HOST = Path(__file__).parent / "host"
DOORS = ("overt", "overt.errors", "overt.operations")
PRICES = PriceTable({"mock": Price(input=Decimal(2), output=Decimal(2))})
"""Two dollars for a million tokens, in or out."""
SCRIPT = [
    call("price_of", order="A1").with_options(tokens=400),
    call("refund", order="A1", cents=500).with_options(tokens=400),
    call("final_result", order="A1", refunded_cents=500).with_options(tokens=400),
]


@dataclass
class Bank:
    """A payment service that finds a refund again by its key."""

    paid: dict[str, int] = field(default_factory=dict[str, int])

    async def refund(self, order: str, cents: int, *, key: str) -> str:
        self.paid[f"{order} {key}"] = cents
        return "R1"


@dataclass(frozen=True)
class Visit:
    """A call of a browser."""

    method: str
    path: str
    user: str = "ada"
    said: str = ""

    async def body(self) -> bytes:
        return self.said.encode()


@dataclass
class Desk:
    """The application in one process: a queue, the site before it, and consumers that share a store alone."""

    model: MockModel
    store: MemoryStore = field(default_factory=MemoryStore)
    bank: Bank = field(default_factory=Bank)
    queue: list[Job] = field(default_factory=list[Job])

    async def put(self, job: Job) -> None:
        self.queue.append(job)

    async def visit(self, method: str, path: str, said: str = "") -> tuple[int, str]:
        reply = await Site(self.store, self.put).handle(Visit(method, path, said=said))
        return reply.status, reply.text

    async def work(self) -> list[Bill | Rejected]:
        """Each job is done by a consumer that knows nothing of those before."""
        done: list[Bill | Rejected] = []
        while self.queue:
            consumer = Consumer(self.store, Shop(self.bank, {"A1": 500}), self.model, PRICES)
            done += await consumer.work(self.queue.pop(0))
        return done


async def test_a_refund_from_the_web_to_the_bill() -> None:
    desk = Desk(MockModel(SCRIPT))
    assert (await desk.visit("POST", "/runs", '{"run_id": "r", "prompt": "Refund A1"}'))[0] == 202
    (parked,) = await desk.work()
    assert isinstance(parked, Bill)
    assert (parked.payer, parked.note, parked.tokens) == ("nobody yet", "1 open questions", 800)

    status, listed = await desk.visit("GET", "/approvals")
    run_id, request = listed.split(": ")[0].split()
    assert (status, run_id) == (200, "r")
    assert listed.endswith("Refund 500 cents of A1? (runs again: nothing)")
    for said in ('"maybe"', "true", "true", "false"):
        body = f'{{"request": "{request}", "ok": true, "data": {said}}}'
        assert (await desk.visit("POST", "/runs/r/answers", body))[0] == 202
    unfit, bill, same, other = await desk.work()
    assert isinstance(unfit, Rejected)
    assert unfit.why.startswith("$")
    assert isinstance(bill, Bill)
    # The third reply was bought because the cap of 1,000 tokens was raised.
    assert (bill.payer, bill.note, bill.tokens) == ("customer", "delivered", 1_200)
    assert [(line.handle, line.turns, line.tokens, line.open) for line in bill.lines] == [
        ("root/clerk.1", 3, 1_200, False)
    ]
    assert (bill.amount, bill.at_least, bill.unpriced) == (Decimal("0.0024"), Decimal("0.0024"), ())
    assert list(desk.bank.paid.values()) == [500]
    assert same == Rejected("answered already", again=False)
    assert other == Rejected("ada said otherwise", again=False)

    status, told = await desk.visit("GET", "/runs/r/events")
    assert status == 200
    assert "data: ada said yes\n" in told
    assert told.index("event: request\n") < told.index("event: answer\n") < told.index("event: result\n")


async def test_a_sweep_goes_on_with_what_was_cut_off() -> None:
    desk = Desk(MockModel(SCRIPT))
    scope = anyio.CancelScope()

    async def leave(request: ModelRequest) -> Part:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return SCRIPT[0]

    desk.model = MockModel(leave)
    await desk.visit("POST", "/runs", '{"run_id": "r", "prompt": "Refund A1"}')
    with scope:
        await desk.work()
    assert scope.cancelled_caught
    desk.model = MockModel(SCRIPT)
    # After that nothing is left to do.
    now = datetime.now(UTC) + timedelta(hours=1)
    desk.queue += [Sweep(now), Sweep(now)]
    (bill,) = await desk.work()
    assert isinstance(bill, Bill)
    assert (bill.note, bill.amount, len(bill.unpriced)) == ("1 open questions", None, 1)


async def test_what_the_site_refuses() -> None:
    desk = Desk(MockModel([]))
    assert (await desk.visit("POST", "/runs", "{}"))[0] == 400
    assert (await desk.visit("GET", "/runs/none/events"))[0] == 404
    assert (await desk.visit("GET", "/elsewhere"))[0] == 404


def test_it_is_typed_by_what_the_package_says_alone() -> None:
    files = sorted(HOST.glob("*.py"))
    assert [path.name for path in files] == ["__init__.py", "billing.py", "web.py", "worker.py"]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "ignore" not in text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overt"):
                assert node.module in DOORS
            names = [node.id] if isinstance(node, ast.Name) else []
            names += [node.name] if isinstance(node, ast.alias) else []
            names += [node.attr] if isinstance(node, ast.Attribute) else []
            assert not {"Any", "cast", "TYPE_CHECKING", "getattr", "setattr"} & set(names)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                assert isinstance(node.value, ast.Name)
                assert node.value.id == "self"
