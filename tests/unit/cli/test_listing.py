import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from jobmeter.cli.output import build_fitted_table

COLUMNS = ("id", "name", "state", "user")
ROWS = [("train-resnet-20261120-a1b2c3", "resnet", "Running", "lin"), ("b", "x" * 30, "Failed", "")]


def shown(width, rows=ROWS, **more):
    file = io.StringIO()
    Console(file=file, width=width).print(build_fitted_table(width, COLUMNS, rows, **more))
    return file.getvalue()


def test_a_wide_terminal_has_every_column():
    text = shown(100, spare=("user", "name"))
    assert text.splitlines()[0].split() == ["id", "name", "state", "user"]
    assert "room" not in text


def test_a_narrow_one_has_none_of_those_that_can_be_spared_and_says_so():
    text = shown(60, spare=("user", "name"))
    assert text.splitlines()[0].split() == ["id", "state"]
    assert ROWS[0][0] in text
    assert "hidden columns: name, user" in text


def test_where_no_table_fits_rows_are_stacked():
    text = shown(24, spare=("user",))
    assert text.splitlines()[:2] == ["train-resnet-20261120-a1", "b2c3"]
    assert "  name   resnet" in text.splitlines()


@given(
    st.integers(10, 120),
    st.lists(st.tuples(*[st.text("abc-漢 ", max_size=40)] * 4), min_size=1, max_size=4),
    st.lists(st.sampled_from(COLUMNS[1:]), unique=True),
    st.sampled_from(["", "name"]),
)
def test_nothing_is_cut_and_nothing_is_wider_than_the_terminal(width, rows, spare, folded):
    text = shown(width, rows, spare=spare, folded=folded)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "…" not in text
    together = "".join(text.split())
    for row in rows:
        assert "".join(row[0].split()) in together or cell_len(row[0]) > width


@pytest.mark.parametrize("width", [40, 200])
def test_a_long_text_is_folded(width):
    text = shown(width, [("a", "word " * 60, "Running", "lin")], folded="name", spare=("user", "state"))
    assert text.count("word") == 60


def test_further_lines_of_a_stacked_cell_are_indented():
    text = shown(30, [("an-id-that-fills-it", "word " * 12, "Running", "lin")])
    assert [line for line in text.splitlines() if line.strip().startswith("word")][1:] != []
    assert all(line.startswith(" " * 9 + "word") for line in text.splitlines()[2:4])
