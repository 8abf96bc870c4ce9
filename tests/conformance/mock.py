"""A bench for every model that is checked: its provider, and what that has nothing like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from pydantic import JsonValue

from overt.message import Model
from overt.testing import MockModel, ModelCase
from overt.testing._model_mock import mock_of

__all__ = ("MockBench",)

_SCRIPTED = "fails as it is told to"
_KEPT = "keeps the request as it is"


class MockBench:
    """The scripted model, whose requests are what was sent."""

    not_applicable: Mapping[str, str] = MappingProxyType(
        {
            "reports_an_error_within_a_reply": _SCRIPTED,
            "reports_a_web_page": _SCRIPTED,
            "does_not_retry_by_itself": _SCRIPTED,
            "bad_request": _SCRIPTED,
            "denied": _SCRIPTED,
            "reports_the_wait_of_a_rate_limit": _SCRIPTED,
            "unreachable": _SCRIPTED,
            "cut_off": _SCRIPTED,
            "sends_no_empty_message": _KEPT,
            "survives_broken_texts": _KEPT,
            "carries_reasoning": _KEPT,
            "offers_tools_by_names_of_their_own": _KEPT,
            "takes_the_least_limit": _KEPT,
        }
    )

    def __init__(self) -> None:
        self.models: list[MockModel] = []

    def model(self, *cases: ModelCase, pieces: int | None = None) -> Model:
        self.models.append(mock_of(cases, pieces=pieces, structured_output=True))
        return self.models[-1]

    def sent(self) -> Sequence[JsonValue]:
        return [
            {
                "messages": [message.model_dump(mode="json") for message in request.messages],
                "tools": [{**asdict(tool)} for tool in request.tools],
                "settings": request.settings.model_dump(mode="json", exclude_none=True),
                "schema": None if request.output_schema is None else {**request.output_schema},
            }
            for model in self.models
            for request in model.requests
        ]

    def unclosed(self) -> int:
        return 0
