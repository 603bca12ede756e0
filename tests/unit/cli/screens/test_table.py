"""Tests of the table of ``jobmeter top``: rows whose cells change in place."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from textual.app import App, ComposeResult

from jobmeter.cli.screens.draw import Cell
from jobmeter.cli.screens.table import LiveTable, TableRow, build_columns

COLUMNS = build_columns(("name", "over time"), (), ())
CELLS = st.lists(st.text("▁▅▇", max_size=40), min_size=2, max_size=2)


class TableApp(App[None]):
    """Program with one table."""

    def compose(self) -> ComposeResult:
        yield LiveTable("ranks")


def rows(texts: list[str]) -> list[TableRow]:
    return [TableRow(f"{rank}", (Cell(Text(f"{rank}"), rank), Cell(Text(one), 0))) for rank, one in enumerate(texts)]


def drawn(table: LiveTable) -> list[str]:
    return [table.render_line(y).text.rstrip() for y in range(1, 3)]


@given(st.lists(CELLS, min_size=2, max_size=4))
def test_a_row_that_is_drawn_before_the_library_measures_it_is_whole(changes: list[list[str]]) -> None:
    async def change() -> None:
        app = TableApp()
        async with app.run_test(size=(80, 10)) as pilot:
            table = app.query_one(LiveTable)
            for texts in changes:
                table.show_rows(COLUMNS, rows(texts))
                assert [line.split()[1:] for line in drawn(table)] == [[one] if one else [] for one in texts]
                await pilot.pause()
                assert [line.split()[1:] for line in drawn(table)] == [[one] if one else [] for one in texts]

    asyncio.run(change())
