"""Tests of bounds: for any input the library writes only within the given arrays."""

import numpy as np
import pytest

from jobmeter.kernel import sort_dedupe
from jobmeter.model.batch import SampleColumns
from jobmeter.model.series_table import SeriesTable
from jobmeter.store.window.pages import Pages, SeriesRows
from jobmeter.store.window.pages import PageWriter as Writer


def test_a_sample_of_no_series_is_an_error() -> None:
    writer = Writer(Pages(4), SeriesRows(SeriesTable(4)))
    columns = SampleColumns(np.array([0, 2], np.uint32), np.array([1, 2]), np.array([1.0, 2.0]))
    with pytest.raises(IndexError, match="series 2"):
        writer.append(np.array([-1, -1]), columns, 0, 1)


@pytest.mark.parametrize(
    ("slots", "counts", "error"),
    [
        ([0, 3], [1, 2], IndexError),
        ([0, -1], [1, 2], IndexError),
        ([0, 1], [1, 3], ValueError),
        ([0, 1], [4, -1], ValueError),
        ([0, 1], [3], ValueError),
    ],
)
def test_runs_that_do_not_fit_their_rows_are_an_error(slots, counts, error) -> None:
    runs = sort_dedupe.SeriesSlices(np.array(slots), np.array(counts), np.array([1, 2, 3]), np.array([1.0, 2.0, 3.0]))
    with pytest.raises(error):
        sort_dedupe.sort_dedupe([runs], 2, origin=False)


@pytest.mark.parametrize("rows", [([1, 2], [1.0, 2.0, 3.0]), ([1, 2, 3], [1.0, 2.0]), ([1, 2, 3, 4], [1.0] * 4)])
def test_rows_that_do_not_fit_their_runs_are_an_error_in_every_section(rows) -> None:
    whole = sort_dedupe.SeriesSlices(np.array([0, 1]), np.array([1, 2]), np.array([1, 2, 3]), np.ones(3))
    wrong = whole._replace(time=np.array(rows[0]), value=np.array(rows[1]))
    with pytest.raises(ValueError, match="counts of the runs"):
        sort_dedupe.sort_dedupe([whole, wrong], 2, origin=False)
