"""Readable values with units."""

from collections.abc import Sequence


def quantity(value: float | None, unit: str) -> str:
    """Format a value with its unit: ``1.4 GiB``, ``0.53 cores``, ``61.2%``, ``3.1 MB/s``; a dash if absent."""
    if value is None:
        return "-"
    if unit == "1":
        return f"{value * 100:.1f}%"
    if unit == "By":
        return _scaled(value, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    if unit in {"By/s", "Hz"}:
        name = "B/s" if unit == "By/s" else "Hz"
        return _scaled(value, 1000.0, (name, f"k{name}", f"M{name}", f"G{name}", f"T{name}"))
    if unit == "{core}":
        return f"{value:.2f} cores"
    named = unit.replace("{", "").replace("}", "").replace("Cel", "°C")
    return f"{value:.6g} {named}".rstrip()


def _scaled(value: float, base: float, units: Sequence[str]) -> str:
    place = 0
    # Round first: 1,048,550 B are 1.0 MiB, not 1024.0 KiB.
    while abs(round(value, 1 if place else 0)) >= base and place < len(units) - 1:
        value /= base
        place += 1
    return f"{value:.0f} {units[0]}" if place == 0 else f"{value:.1f} {units[place]}"
