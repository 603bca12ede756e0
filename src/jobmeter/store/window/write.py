"""Samples into the pages: those that follow all others of their series, without a look at each from here."""

from jobmeter.kernel import append as kernel
from jobmeter.model.batch import Int64s, SampleColumns
from jobmeter.store.window.pages import Pages
from jobmeter.store.window.rows import Rows


class Writer:
    """Adds to pages. ``rows`` as they are now: when they have grown it takes another one."""

    def __init__(self, pages: Pages, rows: Rows) -> None:
        self.first_page = rows.first_page
        self._stock = pages.stock
        self._at = kernel.places_of(
            [
                *(pages.distance, pages.value, pages.base, pages.following, pages.filled, pages.free),
                *(rows.first_page, rows.last_page, rows.last, rows.since),
            ]
        )  # the arrays stay where they are for as long as this object is used

    def append(self, known: Int64s, columns: SampleColumns, keep_from: int) -> SampleColumns:
        """Add samples to their rows (``known`` by index, -1 for none); gives those that this is not enough for."""
        if not kernel.AVAILABLE:
            return columns
        left = kernel.append(self._at, self._stock, known, (columns.index, columns.time, columns.value), keep_from)
        return SampleColumns(columns.index[left], columns.time[left], columns.value[left])
