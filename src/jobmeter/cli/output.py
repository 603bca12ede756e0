"""Output of verbs: tables, numbers with units, small charts, JSON for programs.

A terminal gets a table with colour (unless ``NO_COLOR`` is set). Other outputs get plain text that is never truncated.
"""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import IO, Literal

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from jobmeter.cli.terminal import make_json_printable, make_printable, make_text_printable, unwrap_stream
from jobmeter.model.quantity import format_quantity
from jobmeter.model.time import HOUR, MINUTE, SECOND, format_iso

BARS = "▁▂▃▄▅▆▇█"
_BROKEN_PIPE_STATUS = 141
_WIDE = 1_000
"""Width of plain output, so that it never wraps."""
_ROOMY, _NARROWEST = 120, 40

STATE = "state"
"""Heading of a column of states."""
_STATE_STYLES = {
    "Running": "green",
    "Succeeded": "cyan",
    "Failed": "bold red",
    "Stopped": "yellow",
    "Queued": "magenta",
    "Unknown": "dim",
}


class GuardedConsole(Console):
    """Console that filters text by ``make_text_printable`` but keeps its own colours and movements."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with filtered text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=make_text_printable(segment.text))


def build_console(stream: IO[str] | None = None) -> Console:
    """Build a console: with the terminal's width and colours, or wide and plain."""
    file = unwrap_stream(stream or sys.stdout)
    if isinstance(file, TextIOWrapper):
        # An encoding without block characters prints question marks instead of failing.
        file.reconfigure(errors="replace")
    return GuardedConsole(
        file=file, width=None if file.isatty() else _WIDE, highlight=False, soft_wrap=not file.isatty()
    )


@contextmanager
def handle_closed_pipe() -> Iterator[None]:
    """Exit with status 141, without a traceback, if the reader of standard output is gone."""
    try:
        yield
    except BrokenPipeError:
        # The buffer is discarded too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_BROKEN_PIPE_STATUS)


def print_json(value: object, stream: IO[str] | None = None) -> None:
    """Print indented JSON in UTF-8; a struct as it is sent."""
    text = make_json_printable(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    (stream or sys.stdout).write(text + "\n")


def build_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), folded: str = ""
) -> Table:
    """Build a table of cells that are already text. Columns in ``right`` are numbers; ``folded`` may be long.

    Cells are untrusted: nothing in them is interpreted as markup or as a control character.
    """
    numbers = set(right)
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        shown.add_column(column, justify=justify, no_wrap=column != folded, overflow="fold")
    for row in rows:
        shown.add_row(*(format_cell(column, text) for column, text in zip(columns, row, strict=True)))
    return shown


def escape_cell(text: str) -> str:
    """Escape the text as markup, without characters that a terminal would act on."""
    return escape(make_printable(text))


def format_cell(column: str, text: str) -> str:
    """Format a cell of a table as markup: in a column ``state`` with the state's colour."""
    return format_state(text) if column == STATE else escape_cell(text)


def format_state(state: str) -> str:
    """Format a state as markup, in its colour. Only for a state: a job may have the name ``Failed``."""
    style = _STATE_STYLES.get(state)
    return f"[{style}]{state}[/]" if style else escape_cell(state)


def print_hanging(out: Console, label: str, text: str, indent: int, tail: str = "") -> None:
    """Print a label and a text, both markup, on one line; a terminal indents the further lines of a long text.

    A ``tail``, markup, follows the text; where the last line has no room for it, it begins a line.
    """
    if out.soft_wrap:
        out.print(f"{label}{text} {tail}".rstrip())
        return
    texts = [Text.from_markup(one) for one in (text, tail) if one]
    out.print(wrap_hanging(Text.from_markup(label), texts[0] if texts else Text(), indent, out.width, *texts[1:]))


def wrap_hanging(label: Text, text: Text, indent: int, width: int, *tail: Text) -> Text:
    """Wrap a label and a text into lines of at most ``width`` characters. Lines after the first one are indented."""
    wrapping, room = build_console(), max(width - indent, 1)
    lines = text.wrap(wrapping, room)
    for end in tail:
        if lines[-1].cell_len + 1 + end.cell_len <= room:
            lines[-1] += Text(" ") + end
        else:
            lines.extend(end.wrap(wrapping, room))
    return label + Text("\n" + " " * indent).join(lines)


def format_count(number: int, what: str) -> str:
    """Format ``1 row``, ``1,200 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_time(time_ms: int | None) -> str:
    """Format a time as ``2026-11-20 15:33:56`` in UTC; a dash if unknown."""
    return "-" if time_ms is None else format_iso(time_ms // SECOND * SECOND).replace("T", " ").removesuffix("Z")


def format_duration(length_ms: int | None) -> str:
    """Format ``2d 3h``, ``1h 04m``, ``30m``, ``3m 20s``, ``25.3s``, ``210ms``; a dash if unknown.

    Rounded to the smaller unit before it is split, so that 3,599.7 s are ``1h`` and not ``60m``.
    """
    if length_ms is None:
        return "-"
    if length_ms < SECOND:
        return f"{length_ms}ms"
    tenths = _round_to_unit(length_ms, SECOND // 10)
    if tenths < 600:
        return f"{tenths / 10:.1f}".removesuffix(".0") + "s"
    seconds, minutes, hours = (_round_to_unit(length_ms, unit) for unit in (SECOND, MINUTE, HOUR))
    if seconds < 3_600:
        return _format_two_units(seconds, 60, "m", "02d", "s")
    if minutes < 1_440:
        return _format_two_units(minutes, 60, "h", "02d", "m")
    return _format_two_units(hours, 24, "d", "d", "h")


def _round_to_unit(length_ms: int, unit_ms: int) -> int:
    """Round to whole units, half up."""
    return (length_ms + unit_ms // 2) // unit_ms


def _format_two_units(count: int, per: int, large: str, form: str, small: str) -> str:
    whole, rest = divmod(count, per)
    return f"{whole}{large} {rest:{form}}{small}" if rest else f"{whole}{large}"


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of one series over time, (bucket start in epoch ms, value), with the range and step of their query."""

    points: Sequence[tuple[int, float]]
    start: int
    end: int
    step: int

    def average(self, width: int) -> list[float | None]:
        """Return the mean of the points in each of ``width`` equal parts of the range; None without points."""
        length = max(self.end - self.start, 1)
        sums, counts = [0.0] * width, [0] * width
        for time, value in self.points:
            if time >= self.end or time + self.step <= self.start:
                continue
            first = max(time - self.start, 0) * width // length
            last = (min(time + self.step, self.end) - self.start) * width // length
            for place in range(min(first, width - 1), min(max(last, first + 1), width)):
                sums[place] += value
                counts[place] += 1
        return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def draw_sparkline(curve: Curve, width: int = 32, highest: float = 0.0) -> str:
    """Draw values over time in ``width`` characters, from 0 (or the lowest value, if below) to the highest.

    A blank is a time without a measurement. ``highest`` is the top of a scale shared by several sparklines.
    """
    means = curve.average(width)
    low, high = _bounds([*means, highest])
    return "".join(" " if mean is None else BARS[round((mean - low) / (high - low) * 7)] for mean in means)


def compute_sparkline_width(out: Console) -> int:
    """Return the width of a sparkline in a table on that console."""
    return 32 if out.width >= _ROOMY else 12


def draw_chart(
    curve: Curve,
    unit: str,
    *,
    height: int = 6,
    width: int = 72,
    room: int = _WIDE,
    highest: float | None = None,
    ends: tuple[str, str] | None = None,
) -> str:
    """Draw a block chart of a series, with its highest and lowest value and the ends of its range.

    It is ``width`` characters wide, or less to fit with its labels into ``room``. ``highest`` is the top of a scale
    shared by several charts. ``ends`` are labels that replace the times below.
    """
    peak = max((value for _, value in curve.points), default=0.0) if highest is None else highest
    width = max(_NARROWEST, min(width, room - len(format_quantity(peak, unit)) - 6))
    means = curve.average(width)
    low, high = _bounds(means if highest is None else [*means, highest])
    levels = [0 if mean is None else round((mean - low) / (high - low) * (height * 8 - 1)) + 1 for mean in means]
    labels = {height - 1: format_quantity(high, unit), 0: format_quantity(low, unit)}
    margin = max(len(label) for label in labels.values())
    lines = []
    for row in range(height - 1, -1, -1):
        blocks = "".join(_block(level - row * 8) for level in levels)
        lines.append(f"{labels.get(row, ''):>{margin}} ┤{blocks}".rstrip())
    first, last = ends or (format_time(curve.start), format_time(curve.end))
    lines.append(f"{'':>{margin}}  {first}{last:>{width - len(first)}}")
    return "\n".join(lines)


def _bounds(means: Sequence[float | None]) -> tuple[float, float]:
    present = [mean for mean in means if mean is not None]
    low, high = min((0.0, *present)), max((0.0, *present))
    return low, high if high > low else low + 1.0


def _block(level: int) -> str:
    return " " if level <= 0 else BARS[min(level, 8) - 1]


_GAP = 3
"""Characters between two columns."""
_EMPTY = frozenset({"", "-"})
"""Cells without a value."""
_LEAST_FOLDED = 28
"""Least width of a folded column."""


def build_fitted_table(
    width: int,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    spare: Sequence[str] = (),
    folded: str = "",
    optional: Collection[str] = (),
) -> RenderableType:
    """Build a table of at most ``width`` characters, or a block of lines per row if no table fits.

    ``optional`` columns are left out if all their cells are empty or a dash. ``spare`` are columns that may be hidden,
    in this order; a line below names the hidden ones. Cells of the column ``folded`` may span several lines. Cells are
    text, see ``build_table``.
    """
    filled = [
        at for at, name in enumerate(columns) if name not in optional or any(row[at] not in _EMPTY for row in rows)
    ]
    columns, rows = [columns[at] for at in filled], [[row[at] for at in filled] for row in rows]
    shown_columns, missing = list(range(len(columns))), []
    needs = [_need(column, [row[at] for row in rows], column == folded) for at, column in enumerate(columns)]
    for name in (*spare, ""):
        if sum(needs[at] for at in shown_columns) + _GAP * (len(shown_columns) - 1) <= width:
            break
        if not name:
            return _stack_cells(columns, rows, width)
        if name in columns:
            shown_columns.remove(columns.index(name))
            missing.append(name)
    shown = build_table(
        [columns[at] for at in shown_columns], [[row[at] for at in shown_columns] for row in rows], right, folded=folded
    )
    if not missing:
        return shown
    named = [column for column in columns if column in missing]
    return Group(shown, Text(f"hidden columns: {', '.join(named)}", style="dim"))


def show_listing(
    out: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    spare: Sequence[str] = (),
    folded: str = "",
    optional: Collection[str] = (),
    empty: str = "",
) -> None:
    """Print rows in a form that fits the console, or the sentence ``empty`` without rows."""
    if empty and not rows:
        out.print(empty, markup=False)
    else:
        out.print(
            build_fitted_table(out.width, columns, rows, right=right, spare=spare, folded=folded, optional=optional)
        )


def _need(column: str, cells: Sequence[str], folded: bool) -> int:
    widest = max((cell_len(text) for text in cells), default=0)
    return max(cell_len(column), min(widest, _LEAST_FOLDED) if folded else widest)


def _stack_cells(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Format each row as its first cell, and a line for each further non-empty cell, further lines indented."""
    widest = max(map(cell_len, columns[1:]), default=0)
    indent = widest + 4 if widest + 4 <= width // 2 else 2
    lines: list[Text] = []
    for row in rows:
        lines.append(Text.from_markup(f"[bold]{escape_cell(row[0])}[/]", overflow="fold"))
        for column, text in zip(columns[1:], row[1:], strict=True):
            if text not in _EMPTY:
                label = Text.from_markup(f"  {column:<{widest}}  ", overflow="fold")
                lines.append(wrap_hanging(label, Text.from_markup(format_cell(column, text)), indent, width))
    return Group(*lines)
