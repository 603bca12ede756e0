"""HTML for notebooks: tables and small charts, with all text escaped."""

from collections.abc import Collection, Iterable, Sequence
from html import escape

from jobmeter.cli.output import format_time

Points = Sequence[tuple[float, float]]
"""Pairs of time and value."""

TIMES = ("time", "created", "start", "end", "first", "last", "first_seen", "last_seen")
"""Columns that are times in epoch milliseconds."""
_WIDTH, _HEIGHT = 160, 24
_PLAIN = 'stroke="currentColor" stroke-width="1"'
_FAINT = 'stroke="currentColor" stroke-width="0.5" opacity="0.4"'
_MARKED = 'stroke="#d62728" stroke-width="1.5"'


def build_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table from cells that are already HTML."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def escape_text(value: object) -> str:
    """Escape a text for HTML."""
    return escape(str(value))


def format_cell(name: str, value: object) -> str:
    """Format a value of a column for HTML: times in UTC, missing values empty."""
    if value is None:
        return ""
    return escape_text(format_time(value) if name in TIMES and isinstance(value, int) else value)


def draw_curve(points: Points, start: float, end: float) -> str:
    """Draw points as a line from 0 (or the lowest value, if below) to the highest; empty without points."""
    return draw_curves([points], start, end)


def draw_curves(
    lines: Sequence[Points],
    start: float,
    end: float,
    scale: tuple[float, float] | None = None,
    marked: Collection[int] = (),
) -> str:
    """Draw lines on one scale, by default from 0 (or the lowest value) to the highest. ``marked`` ones are red.

    Returns an empty text without points.
    """
    values = [value for points in lines for _, value in points]
    if not values:
        return ""
    low, high = scale or (min(0.0, *values), max(0.0, *values))
    length, height = max(end - start, 1.0), (high - low) or 1.0

    def line(points: Points, style: str) -> str:
        drawn = " ".join(
            f"{(at - start) / length * _WIDTH:.1f},{_HEIGHT - 1 - (value - low) / height * (_HEIGHT - 2):.1f}"
            for at, value in points
        )
        return f'<polyline points="{drawn}" fill="none" {style}/>'

    # Marked lines are drawn last, above the others.
    order = sorted(range(len(lines)), key=lambda at: at in marked)
    drawn = "".join(line(lines[at], _MARKED if at in marked else _PLAIN if len(lines) == 1 else _FAINT) for at in order)
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{drawn}</svg>'
