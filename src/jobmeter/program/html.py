"""HTML for notebooks: tables and small charts, with all text escaped."""

from collections.abc import Iterable, Sequence
from html import escape

_WIDTH, _HEIGHT = 160, 24


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table from cells that are already HTML."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(value: object) -> str:
    """Escape a text for HTML."""
    return escape(str(value))


def curve(points: Sequence[tuple[float, float]], start: float, end: float) -> str:
    """Draw points as a line from 0 (or the lowest value, if below) to the highest; empty without points."""
    if not points:
        return ""
    values = [value for _, value in points]
    low, high = min(0.0, *values), max(0.0, *values)
    length, height = max(end - start, 1.0), (high - low) or 1.0
    drawn = " ".join(
        f"{(at - start) / length * _WIDTH:.1f},{_HEIGHT - 1 - (value - low) / height * (_HEIGHT - 2):.1f}"
        for at, value in points
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<polyline points="{drawn}" fill="none" stroke="currentColor" stroke-width="1"/></svg>'
    )
