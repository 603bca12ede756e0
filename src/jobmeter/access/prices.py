"""Prices of calls: the built-in table, an operator's overrides, and the bill of a month's calls.

Amounts are decimal numbers from the file to the answer, never binary ones.
"""

import tomllib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.errors import ConfigurationError

_MOST_BYTES = 1024 * 1024
_UNLIMITED = "unlimited"
_FIELDS = frozenset({"free", "input", "output"})


class Charge(StrEnum):
    """Which of an operation's two prices a call costs."""

    INPUT = "input"
    OUTPUT = "output"
    BOTH = "both"


class Pricing(StrEnum):
    """Pricing of an operation."""

    PRICED = "priced"
    FREE = "free"
    """Free, for any number of calls."""
    UNPRICED = "unpriced"
    """Calls beyond the free ones have an unknown price."""


class Price(msgspec.Struct, frozen=True):
    """Prices of an operation: ``free`` calls per account and month (None: all of them), and its two prices per call."""

    free: int | None = 0
    input: Decimal | None = None
    output: Decimal | None = None


class Bill(msgspec.Struct, frozen=True):
    """Bill for an operation's calls in a month.

    ``free`` are the free calls and ``free_left`` the remaining ones, None if all calls are free. ``unit`` is the price
    of a further call and ``cost`` the total. Both are None if a price is needed but unknown.
    """

    pricing: Pricing
    free: int | None
    free_left: int | None
    unit: Decimal | None
    cost: Decimal | None


class Prices(msgspec.Struct, frozen=True):
    """Price table. Keys of ``operations`` are an operation's name, or ``API/operation``: ``native/getJob``.

    ``devices`` has the price of a device hour, by the name of the device type or a part of it.
    """

    currency: str
    charge: Charge
    operations: Mapping[str, Price]
    devices: Mapping[str, Decimal] = msgspec.field(default_factory=dict)

    def price_device_hour(self, name: str) -> Decimal | None:
        """Price of a device hour for that type, by the longest matching name; None if unknown."""
        low = name.casefold()
        fitting = [one for one in self.devices if one.casefold() in low]
        return self.devices[max(fitting, key=len)] if low and fitting else None

    def get_price(self, api: str, operation: str) -> Price:
        """Price of an operation."""
        return self.operations.get(f"{api}/{operation}") or self.operations.get(operation) or Price()

    def bill(self, api: str, operation: str, calls: int) -> Bill:
        """Bill for ``calls`` calls in a month."""
        price = self.get_price(api, operation)
        if price.free is None:
            return Bill(Pricing.FREE, None, None, Decimal(0), Decimal(0))
        billed, left = max(0, calls - price.free), max(0, price.free - calls)
        unit = self._unit(price)
        if unit is None:
            return Bill(Pricing.UNPRICED, price.free, left, None, None if billed else Decimal(0))
        return Bill(Pricing.PRICED, price.free, left, unit, unit * billed)

    def _unit(self, price: Price) -> Decimal | None:
        chosen = {Charge.INPUT: (price.input,), Charge.OUTPUT: (price.output,)}.get(
            self.charge, (price.input, price.output)
        )
        return None if None in chosen else sum((one for one in chosen if one is not None), Decimal(0))


def load_prices(path: str = "") -> Prices:
    """Load the built-in table with the overrides of an operator's file, if given.

    Raises ConfigurationError naming the file and the entry that is wrong.
    """
    shipped = files("jobmeter.access").joinpath("prices.toml").read_text(encoding="utf-8")
    table = _parse_toml(shipped, "prices")
    if path:
        own = _parse_toml(_read(path), path)
        unknown = set(own) - {"currency", "charge", "operations", "devices"}
        if unknown or not all(isinstance(own.get(name, {}), dict) for name in ("operations", "devices")):
            raise ConfigurationError(
                f"{path}: unknown entries {sorted(unknown)}: use currency, charge, [operations.NAME] and [devices]"
            )
        table = {**table, **own, "operations": {**table["operations"], **own.get("operations", {})}}
    place = path or "prices"
    currency, charge = table["currency"], table["charge"]
    if not isinstance(currency, str) or not currency.isalpha() or len(currency) != 3:
        raise ConfigurationError(f"{place}: currency must be three letters such as CNY")
    if charge not in set(Charge):
        raise ConfigurationError(f"{place}: charge must be one of {', '.join(Charge)}")
    operations = {name: _price(entry, f"{place}: {name}") for name, entry in table["operations"].items()}
    return Prices(currency, Charge(charge), operations, _devices(table.get("devices", {}), place))


def _devices(table: Mapping[str, object], place: str) -> Mapping[str, Decimal]:
    amounts = {name: _amount(value, f"{place}: devices: {name}") for name, value in table.items() if name}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _price(entry: object, place: str) -> Price:
    if not isinstance(entry, dict) or set(entry) - _FIELDS:
        raise ConfigurationError(f"{place} may only contain {', '.join(sorted(_FIELDS))}")
    free = entry.get("free", 0)
    if free == _UNLIMITED:
        return Price(None)
    if isinstance(free, bool) or not isinstance(free, int) or not 0 <= free < 2**53:
        raise ConfigurationError(f"{place}: free must be a number of calls, or {_UNLIMITED!r}")
    return Price(free, *(_amount(entry.get(name), f"{place}: {name}") for name in ("input", "output")))


def _amount(value: object, place: str) -> Decimal | None:
    if value is None:
        return None
    try:
        amount = Decimal(-1) if isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount < 10**12:
        raise ConfigurationError(f"{place} must be an amount of money, 0 or more, such as 0.001")
    return amount


def _parse_toml(text: str, place: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{place} is not valid TOML: {error}") from error


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigurationError(f"{path} is larger than {_MOST_BYTES} bytes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the prices in {path} cannot be read: {error}") from error
