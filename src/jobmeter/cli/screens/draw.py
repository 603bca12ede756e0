"""Cells of the screens: bars, sparklines, states, each with its sort key."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from jobmeter.cli.output import Curve, draw_sparkline, format_state
from jobmeter.cli.resource_columns import MISSING, Joined
from jobmeter.cli.terminal import make_printable

_EIGHTHS = " ▏▎▍▌▋▊▉█"
USE_STYLE, MEMORY_STYLE, FAR_STYLE = "cyan", "magenta", "bold yellow"


class Cell(NamedTuple):
    """Text of a cell, and the sort value of its column (None: unknown, always last)."""

    text: Text
    order: float | str | None = None


def format_words(text: str, order: float | str | None = None, style: str = "") -> Cell:
    """Format untrusted text without control characters."""
    shown = Text(make_printable(text))
    if style:
        shown.stylize(style)
    return Cell(shown, text.casefold() if order is None else order)


def draw_state(text: str) -> Cell:
    """Format a state in its colour."""
    return Cell(Text.from_markup(format_state(text)), text.casefold())


def format_number(value: Joined) -> Cell:
    """Format a quantity with its unit."""
    return Cell(Text(value.text, "dim" if value.text == MISSING else ""), value.value)


def draw_bar(value: Joined, width: int, style: str = USE_STYLE) -> Cell:
    """Draw a ratio as a bar of ``width`` characters with its figure."""
    if value.value is None:
        return Cell(Text(MISSING, "dim"))
    full = min(max(value.value, 0.0), 1.0) * width
    whole = int(full)
    blocks = "█" * whole + (_EIGHTHS[int((full - whole) * 8)] if whole < width else "")
    shown = Text(f"{blocks:<{width}}", style)
    shown.append(f" {value.text:>6}", "default")
    return Cell(shown, value.value)


def draw_spark(curve: Curve | None, width: int, top: float) -> Text:
    """Draw values on a scale from 0 to ``top``; a blank is a time without a measurement."""
    return Text("") if curve is None else Text(draw_sparkline(curve, width, top), USE_STYLE)


def get_newest(curve: Curve | None) -> float | None:
    """Return the last value."""
    return curve.points[-1][1] if curve is not None and curve.points else None


def has_values(rows: Sequence[Sequence[Cell]], at: int) -> bool:
    """True if any row has a value in that column."""
    return any(row[at].text.plain not in {"", MISSING} for row in rows)
