"""Table whose rows change in place: sorted by any column, and narrowed to the terminal if possible."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.widgets import DataTable

from jobmeter.cli.screens.draw import Cell, has_values

_PADDING = 2
_SCROLLBAR = 2


class TableColumn(NamedTuple):
    """Column; ``spare`` is the order in which a narrow terminal hides it, 0 for never."""

    name: str
    right: bool = False
    spare: int = 0


def build_columns(names: Sequence[str], right: Collection[str], spare: Sequence[str]) -> tuple[TableColumn, ...]:
    """Build columns with those names.

    Columns in ``right`` are numbers; columns in ``spare`` may be hidden, in this order.
    """
    return tuple(TableColumn(name, name in right, spare.index(name) + 1 if name in spare else 0) for name in names)


class TableRow(NamedTuple):
    """Row with its key."""

    key: str
    cells: Sequence[Cell]


def _order(cell: Cell) -> tuple[bool, float, str]:
    """Sort numbers before words; unknown values are sorted separately."""
    order = cell.order
    return (True, 0.0, order) if isinstance(order, str) else (False, order or 0.0, "")


class LiveTable(DataTable[Text]):
    """Table that is redrawn; the cursor stays on its row."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self.sorted_by: str | None = None
        self.descending = True
        self._all: Sequence[TableColumn] = ()
        self._rows: Sequence[TableRow] = ()
        self._drawn: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def missing(self) -> list[str]:
        """Hidden columns."""
        shown = self._fit_columns()
        some = [one.name for at, one in enumerate(self._all) if has_values([row.cells for row in self._rows], at)]
        return [name for name in some if name not in {one.name for one in shown}]

    def show_rows(self, columns: Sequence[TableColumn], rows: Sequence[TableRow]) -> None:
        """Show these rows; in their own order unless a column was chosen for sorting."""
        self._all, self._rows = columns, rows
        self._draw()

    def sort_next(self) -> None:
        """Sort by the next column; after the last one restore the rows' own order."""
        names = [one.name for one in self._fit_columns() if one.name]
        at = names.index(self.sorted_by) + 1 if self.sorted_by in names else 0
        self._sort_by(names[at] if at < len(names) else None)

    def reverse(self) -> None:
        """Reverse the sort order."""
        self.descending = not self.descending
        self._draw()

    def on_resize(self, _: events.Resize) -> None:
        """Redraw, because another width has room for other columns."""
        self._draw()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        name = str(event.column_key.value)
        if name == self.sorted_by:
            self.reverse()
        else:
            self._sort_by(name)

    def _sort_by(self, name: str | None) -> None:
        """Sort numbers highest first, words alphabetically."""
        at = next((at for at, one in enumerate(self._all) if one.name == name), None)
        self.sorted_by = name
        self.descending = at is not None and not any(isinstance(row.cells[at].order, str) for row in self._rows)
        self._draw()

    def _draw(self) -> None:
        columns, rows = [(column, self._all.index(column)) for column in self._fit_columns()], self._sort_rows()
        heads = tuple(self._head(column) for column, _ in columns)
        keys = tuple(row.key for row in rows)
        if (heads, keys) == self._drawn:
            for row in rows:
                for column, at in columns:
                    text = _align(column, row.cells[at].text)
                    if self.get_cell(row.key, column.name) != text:
                        self.update_cell(row.key, column.name, text, update_width=True)
        else:
            self._fill(columns, heads, rows)
            self._drawn = (heads, keys)
        # The library measures cells when it is idle. A row that it draws before stays as narrow as it was.
        for drawn, (_, at) in zip(self.ordered_columns, columns, strict=True):
            drawn.content_width = max([drawn.label.cell_len, *(row.cells[at].text.cell_len for row in rows)])

    def _fill(self, columns: Sequence[tuple[TableColumn, int]], heads: Sequence[str], rows: Sequence[TableRow]) -> None:
        chosen, scrolled = self.chosen, self.scroll_offset
        self.clear(columns=True)
        for (column, _), head in zip(columns, heads, strict=True):
            self.add_column(_align(column, Text(head)), key=column.name)
        for row in rows:
            self.add_row(*(_align(column, row.cells[at].text) for column, at in columns), key=row.key)
        keys = [row.key for row in rows]
        # A table that nobody moves in begins with its first row, also after its rows were sorted otherwise.
        if chosen in keys and self.has_focus:
            self.move_cursor(row=keys.index(chosen), scroll=False)
            self.scroll_to(y=scrolled.y, animate=False)

    @property
    def chosen(self) -> str | None:
        """Key of the row under the cursor."""
        if not self.is_valid_coordinate(self.cursor_coordinate):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def _sort_rows(self) -> list[TableRow]:
        at = next((at for at, one in enumerate(self._all) if one.name == self.sorted_by), None)
        if at is None:
            return list(self._rows)
        present = [row for row in self._rows if row.cells[at].order is not None]
        present.sort(key=lambda row: _order(row.cells[at]), reverse=self.descending)
        return present + [row for row in self._rows if row.cells[at].order is None]

    def _fit_columns(self) -> list[TableColumn]:
        """Columns with values that fit the terminal."""
        rows = [row.cells for row in self._rows]
        shown = [one for at, one in enumerate(self._all) if not one.spare or has_values(rows, at)]
        room = (self.size.width or self.app.size.width) - _SCROLLBAR
        widths = {
            one.name: _PADDING + max([cell_len(one.name) + 2, *(row[at].text.cell_len for row in rows)])
            for at, one in enumerate(self._all)
        }
        for one in sorted((one for one in shown if one.spare), key=lambda one: one.spare):
            if sum(widths[column.name] for column in shown) <= room:
                break
            shown.remove(one)
        return shown

    def _head(self, column: TableColumn) -> str:
        if column.name != self.sorted_by:
            return column.name
        return f"{column.name} {'▼' if self.descending else '▲'}"


def _align(column: TableColumn, text: Text) -> Text:
    shown = text.copy()
    shown.justify = "right" if column.right else "left"
    return shown
