"""Readable values with units."""

from collections.abc import Sequence

_PREFIXES = ("", "k", "M", "G", "T")
_PREFIXED = frozenset({"W", "Wh", "J"})
"""Units that take a decimal prefix."""
_EXACT = 1e6
"""Size from which a value without a unit has no decimals."""


def format_quantity(value: float | None, unit: str) -> str:
    """Format a value with its unit: ``1.4 GiB``, ``0.53 cores``, ``61.2%``, ``3.1 MiB/s``, ``77.3 kW``.

    Bytes and bytes per second have binary prefixes. An absent value is a dash.
    """
    if value is None:
        return "-"
    if unit == "1":
        return f"{value * 100:.1f}%"
    base, per, time = unit.partition("/")
    if base == "By":
        return _scale(value, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB")) + per + time
    if base == "Hz":
        return _scale(value, 1000.0, [f"{prefix}Hz" for prefix in _PREFIXES]) + per + time
    if base in _PREFIXED:
        place = 0
        while abs(value) >= 999.5 and place < len(_PREFIXES) - 1:
            value, place = value / 1000.0, place + 1
        return f"{_digits(value)} {_PREFIXES[place]}{base}{per}{time}"
    if unit == "{core}":
        return f"{value:.2f} cores"
    named = unit.replace("{", "").replace("}", "").replace("Cel", "°C")
    figure = _digits(value) if named or abs(value) >= _EXACT else f"{value:.6g}"
    return f"{figure} {named}".rstrip()


def _digits(value: float) -> str:
    """Format a figure with three digits, and a whole number from 100 on: ``0.123``, ``62.4``, ``1,235``."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _scale(value: float, base: float, units: Sequence[str]) -> str:
    place = 0
    # Round first: 1,048,550 B are 1.0 MiB, not 1024.0 KiB.
    while abs(round(value, 1 if place else 0)) >= base and place < len(units) - 1:
        value /= base
        place += 1
    return f"{value:.0f} {units[0]}" if place == 0 else f"{value:.1f} {units[place]}"
