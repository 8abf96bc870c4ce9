"""What model calls cost: a table of the host's, or the prices the package `genai-prices` keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Protocol

from pydantic import Field

from overt._frozen import Frozen
from overt.core.ledger import MONEY
from overt.errors import DefinitionError
from overt.message import Usage

__all__ = ("GenAIPrices", "Price", "PriceTable", "PricedCall", "Prices")

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedCall:
    """One model call as it is priced.

    Attributes:
        provider: Who was asked, such as `"openai"`; empty where the model does not say.
        model: The model that was asked for.
        replied: What the provider calls the model that replied, often with a date behind it; may be empty.
        usage: What the call used.
        at: When it ended (aware).
    """

    provider: str
    model: str
    replied: str = ""
    usage: Usage
    at: datetime


class Prices(Protocol):
    """What prices model calls: any object with this method."""

    def price(self, call: PricedCall) -> Decimal | None:
        """Return what a call costs in USD, `None` where that is not known. Called once a call, so it has to be quick.

        It is asked about a call without any tokens too, to find out whether a model has a price at all.
        """
        ...


class Price(Frozen):
    """What one model costs, in USD per million tokens. Each token is priced once."""

    input: Decimal = Field(ge=0, allow_inf_nan=False)
    """For input that came neither from the provider's cache nor went into it."""
    output: Decimal = Field(ge=0, allow_inf_nan=False)
    cached: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    """For input read from the cache; `None`: as `input`."""
    cache_write: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    """For input written into the cache; `None`: as `input`."""
    reasoning: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    """For output spent on reasoning; `None`: as `output`."""

    def of(self, usage: Usage) -> Decimal:
        """Return what a call's tokens cost in USD."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        reasoning = min(usage.reasoning_tokens, usage.output_tokens)
        with localcontext(MONEY):
            total = (
                self.input * (usage.input_tokens - cached - written)
                + (self.input if self.cached is None else self.cached) * cached
                + (self.input if self.cache_write is None else self.cache_write) * written
                + self.output * (usage.output_tokens - reasoning)
                + (self.output if self.reasoning is None else self.reasoning) * reasoning
            )
            return total / _MILLION


class PriceTable:
    """Prices a host gives.

    A model is looked up as `"provider:model"`, then as `"model"`; first by the name it was asked under, then by the
    one the provider replied with.

    Args:
        prices: Prices by name of the model, with or without its provider before it.
        otherwise: Asked about what is not in the table, for instance `GenAIPrices()`.

    Raises:
        DefinitionError: A name is empty, or a price is none.
    """

    def __init__(self, prices: Mapping[str, Price], *, otherwise: Prices | None = None) -> None:
        for name, price in prices.items():
            if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's
                raise DefinitionError(f"PriceTable: {name!r} is no name of a model")
            if not isinstance(price, Price):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
                raise DefinitionError(
                    f"PriceTable: the price of {name!r} has to be a Price(input=…, output=…), "
                    f"not {type(price).__name__}"
                )
        self._prices = dict(prices)
        self._otherwise = otherwise

    def price(self, call: PricedCall) -> Decimal | None:
        """Return what a call costs in USD, `None` where the table has no price of its model."""
        for name in (call.model, call.replied):
            if name:
                found = self._prices.get(f"{call.provider}:{name}") or self._prices.get(name)
                if found is not None:
                    return found.of(call.usage)
        return None if self._otherwise is None else self._otherwise.price(call)


class GenAIPrices:
    """Prices of the package `genai-prices` (extra `prices`), as of the release that is installed.

    Nothing is fetched. It knows cached and written input, tiers and prices that change with the day; where the
    provider bills otherwise (a contract, a region), a `PriceTable` says so.

    Raises:
        DefinitionError: The package is not installed.
    """

    def __init__(self) -> None:
        try:
            import genai_prices
        except ModuleNotFoundError as error:
            raise DefinitionError(
                f"GenAIPrices needs the package {error.name!r}: pip install 'overt[prices]'"
            ) from error
        self._prices = genai_prices

    def price(self, call: PricedCall) -> Decimal | None:
        """Return what a call costs in USD, `None` where the package has no price of its model."""
        usage = self._prices.Usage(
            input_tokens=call.usage.input_tokens,
            output_tokens=call.usage.output_tokens,
            cache_read_tokens=call.usage.cached_tokens or None,
            cache_write_tokens=call.usage.cache_write_tokens or None,
        )
        for name in (call.replied, call.model):
            if name:
                try:
                    with localcontext(MONEY):
                        found = self._prices.calc_price(
                            usage,
                            model_ref=name,
                            provider_id=call.provider or None,
                            genai_request_timestamp=call.at,
                        )
                except LookupError:
                    continue
                return found.total_price
        return None
