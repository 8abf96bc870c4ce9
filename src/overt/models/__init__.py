"""Models by name, and the adapters for providers. Importing this loads no provider's package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from overt.errors import DefinitionError
from overt.message import Model, ModelRequest, ModelResponse, ModelSettings

if TYPE_CHECKING:
    from overt.models.anthropic import AnthropicModel
    from overt.models.google import GoogleModel
    from overt.models.openai import OpenAIModel
    from overt.models.openai_responses import OpenAIResponsesModel
    from overt.models.pydantic_ai import PydanticAIModel

__all__ = (
    "AnthropicModel",
    "GoogleModel",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "OpenAIModel",
    "OpenAIResponsesModel",
    "PydanticAIModel",
    "register",
    "resolve",
)

_PROVIDERS = {
    "anthropic": ("AnthropicModel", "anthropic", "anthropic"),
    "google": ("GoogleModel", "google", "google"),
    "openai": ("OpenAIModel", "openai", "openai"),
    "openai-responses": ("OpenAIResponsesModel", "openai_responses", "openai"),
    "pydantic-ai": ("PydanticAIModel", "pydantic_ai", "pydantic-ai"),
}
"""Class, its module, and the extra that brings its client; by what stands before the colon."""
_factories: dict[str, Callable[[str], Model]] = {}


def resolve(name: str) -> Model:
    """Make the model that `"provider:name"` stands for.

    The first colon divides: `"openai:ft:gpt-5-mini:acme"` is the model `ft:gpt-5-mini:acme`. What the provider needs
    from the environment is looked for here, so a missing key is told before anything runs.

    ```python
    from overt.errors import DefinitionError
    from overt.models import resolve

    try:
        resolve("gpt-5-mini")
    except DefinitionError as error:
        print(error)
        #> model 'gpt-5-mini': write it as "provider:name", for instance "openai:gpt-5-mini"
    ```

    Args:
        name: Provider and model, such as `"openai:gpt-5-mini"`.

    Returns:
        A new model. Models of one provider share their connections as far as they run in one event loop.

    Raises:
        DefinitionError: Not of this form, an unknown provider, a provider whose package is not installed, no key, or a
            factory of your own (`register`) made something else than a model.
    """
    provider, colon, rest = name.partition(":")
    if not colon or not provider or not rest.strip():
        raise DefinitionError(
            f'model {name!r}: write it as "provider:name", for instance "openai:gpt-5-mini"'
        )
    factory = _factories.get(provider)
    if factory is not None:
        given = cast("object", factory(rest))
        if not isinstance(given, Model):
            raise DefinitionError(
                f"model {name!r}: the factory registered for {provider!r} made a {type(given).__name__}, "
                "which has no name and generate"
            )
        return given
    if provider not in _PROVIDERS:
        known = ", ".join(sorted({*_PROVIDERS, *_factories}))
        raise DefinitionError(
            f"model {name!r}: unknown provider {provider!r}. Known are: {known}; "
            f"others are added with overt.models.register({provider!r}, factory)"
        )
    kind, _, extra = _PROVIDERS[provider]
    try:
        made: Any = _load(kind)(rest)
    except ModuleNotFoundError as error:
        raise DefinitionError(
            f"model {name!r} needs the package {error.name!r}: pip install 'overt[{extra}]'"
        ) from error
    made.check()
    return cast("Model", made)


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


def _load(kind: str) -> Any:
    """Return the class of an adapter, which loads its provider's client."""
    module = next(module for name, module, _ in _PROVIDERS.values() if name == kind)
    return getattr(import_module(f"overt.models.{module}"), kind)


def __getattr__(name: str) -> object:
    extra = next((extra for kind, _, extra in _PROVIDERS.values() if name == kind), None)
    if extra is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        raise DefinitionError(
            f"overt.models.{name} needs the package {error.name!r}: pip install 'overt[{extra}]'"
        ) from error
