"""Every model does what is asked of every model; the table in the documentation says what was asked of which."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from tests.conformance.columns import COLUMNS, Column

from overt.testing import MODEL_CASES, MODEL_CHECKS, ModelCheck

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
ON_BOTH_LOOPS = {
    "reads_text",
    "lets_go_of_a_stream",
    "lets_cancellation_through",
    "answers_many_at_once",
    "reports_an_unreachable_provider",
    "runs_tools_side_by_side",
    "runs_streamed",
}

asked = [(column, check) for column in COLUMNS for check in column.checks]
on_trio = [(column, check) for column, check in asked if check.name in ON_BOTH_LOOPS]
# A script does whatever it says, and a download needs a network.
NOT_TRIED = {("pydantic-ai", "sends_file_by_url")}
left_out = [
    (column, name)
    for column in COLUMNS
    for name in column.make().not_applicable
    if column.name != "mock" and (column.name, name) not in NOT_TRIED
]


def named(pairs: list[tuple[Column, ModelCheck]]) -> list[str]:
    return [f"{column.name}-{check}" for column, check in pairs]


@pytest.mark.parametrize(("column", "check"), asked, ids=named(asked))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_models(column: Column, check: ModelCheck) -> None:
    await check(column.make)


# Of a stream that has ended, pydantic-ai leaves generators of the client under it to the collector. Nothing stays open.
LEFT = "ignore:Exception ignored in. <async_generator object:pytest.PytestUnraisableExceptionWarning"


@pytest.mark.parametrize(
    ("column", "check"),
    [
        pytest.param(
            column,
            check,
            marks=[pytest.mark.filterwarnings(LEFT)] if column.name == "pydantic-ai" else [],
        )
        for column, check in on_trio
    ],
    ids=named(on_trio),
)
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_models_on_trio(column: Column, check: ModelCheck) -> None:
    await check(column.make)


@pytest.mark.parametrize(("column", "name"), left_out, ids=[f"{c.name}-{name}" for c, name in left_out])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_left_out_cannot_be_done(column: Column, name: str) -> None:
    """Or it would have to be checked."""
    assert name in MODEL_CASES or name in {check.name for check in MODEL_CHECKS}
    for check in MODEL_CHECKS:
        if (name == check.name or name in check.cases) and check.needs is None:
            with pytest.raises(AssertionError):
                await check(column.make)


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "conformance_table", ROOT / "tools" / "conformance_table.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_on_the_page_is_what_the_tests_run(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    assert tool.render(page) == page, "run tools/conformance_table.py"
    rows = [line.split("|")[2:-1] for line in page.splitlines() if line.startswith("| ") and "✓" in line]
    assert sum(cell.strip() == "✓" for row in rows for cell in row) == len(asked)
