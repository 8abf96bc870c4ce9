"""The adapters that the tests of this folder are run with. A new one is a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from overt.demo.clients import CLIENTS
from overt.message import StreamingModel
from overt.models import AnthropicModel, GoogleModel, OpenAIModel, OpenAIResponsesModel
from tests.wire.aimock import KEY

__all__ = ("ADAPTERS", "Adapter", "each_adapter")

Make: TypeAlias = Callable[[str, str, str], StreamingModel]


@dataclass(frozen=True)
class Adapter:
    """One adapter: its provider's name, and how it is made from model, base URL and key."""

    provider: str
    make: Make

    def at(self, url: str, model: str = "some-model", *, key: str = KEY) -> StreamingModel:
        """Return a model behind a server at `url`."""
        return self.make(model, url + CLIENTS[self.provider].path, key)


ADAPTERS = [
    Adapter("openai", lambda model, url, key: OpenAIModel(model, base_url=url, api_key=key)),
    Adapter(
        "openai-responses", lambda model, url, key: OpenAIResponsesModel(model, base_url=url, api_key=key)
    ),
    Adapter("anthropic", lambda model, url, key: AnthropicModel(model, base_url=url, api_key=key)),
    Adapter("google", lambda model, url, key: GoogleModel(model, base_url=url, api_key=key)),
]

each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=[adapter.provider for adapter in ADAPTERS])
