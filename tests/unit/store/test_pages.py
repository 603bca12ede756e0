"""Pages of samples."""

import numpy as np

from jobmeter.store.window.pages import NO_PAGE, Pages


def test_a_series_without_a_page_has_no_last_sample_whatever_was_in_memory_before() -> None:
    pages = Pages(4)
    pages.filled[:] = pages.base[:] = pages.distance[0] = 2**31 - 1  # as a used machine gives memory out
    page, _ = pages.write_new(np.array([1_000]), np.array([1.0]))

    done = pages.rewrite_last(
        np.array([NO_PAGE, page, NO_PAGE, page], np.int32),
        np.array([1_000, 1_000, 2_000, 1_000]),
        np.array([7.0, 8.0, 9.0, 10.0]),
        np.array([True, True, False, False]),
    )

    assert done.tolist() == [False, True, False, False]
    assert pages.content(page)[1].tolist() == [8.0]
