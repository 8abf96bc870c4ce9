"""The models that are checked, each a column of the table in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from tests.conformance.bridge import BridgeWire
from tests.conformance.http import HttpBench, Wire
from tests.conformance.mock import MockBench
from tests.conformance.openai import ChatWire, CompatibleWire, ItemsWire
from tests.models.anthropic_fake import AnthropicWire
from tests.models.google_fake import GoogleWire

from overt.message import Model
from overt.testing import MODEL_CASES, MODEL_CHECKS, ModelBench, ModelCase, ModelCheck

__all__ = ("COLUMNS", "Column")

_NO_ERRORS = "the API has no field for it"
_DATA_ONLY = "the API takes files as data only"
_REFUSED = "the library refuses such a reply"
_BY_ORDER = "results are told apart by name and order, ids are only sent back where the API gave some"


@dataclass(frozen=True)
class Column:
    """One model.

    Attributes:
        name: Head of the column.
        make: Makes its bench.
    """

    name: str
    make: Callable[[], ModelBench]
    reasons: Mapping[str, str] = field(init=False)
    """Why checks are left out, by their names."""

    def __post_init__(self) -> None:
        asked = _OneModel(self.make())
        found = {check.name: check.why_not(asked) for check in MODEL_CHECKS}
        reasons = {name: reason for name, reason in found.items() if reason is not None}
        object.__setattr__(self, "reasons", reasons)

    @property
    def checks(self) -> list[ModelCheck]:
        """Those that are run."""
        return [check for check in MODEL_CHECKS if check.name not in self.reasons]


class _OneModel:
    """A bench for what is asked of a model before it is used: one model is enough for that."""

    def __init__(self, inner: ModelBench) -> None:
        self.not_applicable = inner.not_applicable
        self.inner = inner
        self.made = inner.model(MODEL_CASES["text"])

    def model(self, *cases: ModelCase, pieces: int | None = None) -> Model:
        return self.made

    def sent(self) -> Sequence[JsonValue]:
        return self.inner.sent()

    def unclosed(self) -> int:
        return self.inner.unclosed()


def _http(wire: Callable[[], Wire], **not_applicable: str) -> Callable[[], ModelBench]:
    return lambda: HttpBench(wire(), not_applicable)


COLUMNS = (
    Column("mock", MockBench),
    Column(
        "OpenAI chat",
        _http(
            ChatWire,
            says_that_a_result_is_an_error=_NO_ERRORS,
            sends_file_by_url=_DATA_ONLY,
        ),
    ),
    Column(
        "compatible",
        _http(
            CompatibleWire,
            says_that_a_result_is_an_error=_NO_ERRORS,
            sends_file_by_url=_DATA_ONLY,
        ),
    ),
    Column(
        "OpenAI Responses",
        _http(
            ItemsWire,
            says_that_a_result_is_an_error=_NO_ERRORS,
            sends_stop="the API has no stop sequences",
        ),
    ),
    Column("Anthropic", _http(AnthropicWire, filtered="the API calls a filtered reply a refusal")),
    Column(
        "Google",
        _http(
            GoogleWire,
            refusal="the API blocks a reply instead of refusing: a filter",
            pairs_results_with_calls=_BY_ORDER,
            sends_one_call_at_a_time="the API has no such setting",
        ),
    ),
    Column(
        "pydantic-ai",
        _http(
            BridgeWire,
            missing_id=_REFUSED,
            null_usage=_REFUSED,
            sends_file_by_url="the library downloads the file itself",
            sends_extra="`extra` has the library's own settings; fields of the body stand there under `extra_body`",
        ),
    ),
)
