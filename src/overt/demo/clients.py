"""The providers whose clients the demo can run through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import overt.models
from overt.demo.team import MODEL
from overt.errors import DefinitionError
from overt.message import Model

__all__ = ("CLIENTS", "KEY", "Client", "connect")

KEY = "any-key-will-do"


@dataclass(frozen=True, slots=True)
class Client:
    """A provider's client.

    Attributes:
        model: Its class in `overt.models`.
        package: The distribution that has the client.
        extra: The extra that brings it.
        path: What its base URL ends with.
    """

    model: str
    package: str
    extra: str
    path: str = ""

    def installed(self) -> str:
        """Return the version of the package.

        Raises:
            DefinitionError: It is not installed.
        """
        try:
            return version(self.package)
        except PackageNotFoundError as error:
            raise DefinitionError(
                f"the package {self.package!r} is missing: pip install 'overt[{self.extra}]'"
            ) from error


CLIENTS: Mapping[str, Client] = {
    "openai": Client("OpenAIModel", "openai", "openai", "/v1"),
    "openai-responses": Client("OpenAIResponsesModel", "openai", "openai", "/v1"),
    "anthropic": Client("AnthropicModel", "anthropic", "anthropic"),
    "google": Client("GoogleModel", "google-genai", "google"),
}


def connect(provider: str, url: str) -> Model:
    """Return a model that reaches a provider at `url`, through that provider's own client.

    Raises:
        DefinitionError: The client is not installed.
    """
    client = CLIENTS[provider]
    client.installed()
    make: Any = getattr(overt.models, client.model)
    made: Model = make(MODEL, base_url=url + client.path, api_key=KEY)
    return made
