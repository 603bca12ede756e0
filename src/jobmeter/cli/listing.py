"""Listings that fit the terminal: columns are hidden or rows are stacked, but no text is truncated."""

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from jobmeter.cli.output import cell, cell_of, hanging, table

_GAP = 3
"""Characters between two columns."""
_LEAST_FOLDED = 28
"""Least width of a folded column."""


def fitted(
    width: int,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    spare: Sequence[str] = (),
    folded: str = "",
) -> RenderableType:
    """Build a table of at most ``width`` characters, or a block of lines per row if no table fits.

    ``spare`` are columns that may be hidden, in this order; a line below names the hidden ones. Cells of the column
    ``folded`` may span several lines. Cells are text, see ``table``.
    """
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
    shown = table(
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
) -> None:
    """Print rows in a form that fits the console."""
    out.print(fitted(out.width, columns, rows, right=right, spare=spare, folded=folded))


def _need(column: str, cells: Sequence[str], folded: bool) -> int:
    widest = max((cell_len(text) for text in cells), default=0)
    return max(cell_len(column), min(widest, _LEAST_FOLDED) if folded else widest)


def _stack_cells(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Format each row as its first cell, and a line for each further non-empty cell, further lines indented."""
    widest = max(map(cell_len, columns[1:]), default=0)
    indent = widest + 4 if widest + 4 <= width // 2 else 2
    lines: list[Text] = []
    for row in rows:
        lines.append(Text.from_markup(f"[bold]{cell(row[0])}[/]", overflow="fold"))
        for column, text in zip(columns[1:], row[1:], strict=True):
            if text not in {"", "-"}:
                label = Text.from_markup(f"  {column:<{widest}}  ", overflow="fold")
                lines.append(hanging(label, Text.from_markup(cell_of(column, text)), indent, width))
    return Group(*lines)
