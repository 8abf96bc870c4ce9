"""Models by name, and the adapters for providers. Importing this loads no provider's package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from overt.errors import DefinitionError
from overt.message import Model, ModelRequest, ModelResponse, ModelSettings

if TYPE_CHECKING:
    from overt.models.openai import OpenAIModel

__all__ = (
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "OpenAIModel",
    "register",
    "resolve",
)

_EXTRAS = {"openai": "openai"}
_factories: dict[str, Callable[[str], Model]] = {}


def resolve(name: str) -> Model:
    """Make the model that `"provider:name"` stands for.

    The first colon divides: `"openai:ft:gpt-5-mini:acme"` is the model `ft:gpt-5-mini:acme`. What the provider needs
    from the environment is looked for here, so a missing key is told before anything runs.

    Args:
        name: Provider and model, such as `"openai:gpt-5-mini"`.

    Returns:
        A new model. Models of one provider share their connections as far as they run in one event loop.

    Raises:
        DefinitionError: Not of this form, an unknown provider, a provider whose package is not installed, or no key.
    """
    provider, colon, rest = name.partition(":")
    if not colon or not provider or not rest.strip():
        raise DefinitionError(
            f'model {name!r}: write it as "provider:name", for instance "openai:gpt-5-mini"'
        )
    factory = _factories.get(provider)
    if factory is not None:
        return factory(rest)
    if provider not in _EXTRAS:
        known = ", ".join(sorted({*_EXTRAS, *_factories}))
        raise DefinitionError(
            f"model {name!r}: unknown provider {provider!r}. Known are: {known}; "
            f"others are added with overt.models.register({provider!r}, factory)"
        )
    try:
        from overt.models.openai import OpenAIModel
    except ModuleNotFoundError as error:
        extra = _EXTRAS[provider]
        raise DefinitionError(
            f"model {name!r} needs the package {error.name!r}: pip install 'overt[{extra}]'"
        ) from error
    made = OpenAIModel(rest)
    made.check()
    return made


def register(provider: str, factory: Callable[[str], Model]) -> None:
    """Let `resolve` know a provider of your own, or replace one.

    Args:
        provider: What stands before the colon.
        factory: Makes the model from what stands after it; called at every `resolve`.

    Raises:
        DefinitionError: `provider` is empty or has a colon.
    """
    if not provider.strip() or ":" in provider:
        raise DefinitionError(f"provider {provider!r}: a name without a colon is needed")
    _factories[provider] = factory


def __getattr__(name: str) -> object:
    if name == "OpenAIModel":
        return import_module("overt.models.openai").OpenAIModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
