"""Merges samples of any age into the pages of their series, many series at a time."""

import numpy as np

from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Float64s, Int64s, mark_first_rows, mark_last_rows
from jobmeter.store.window.pages import FURTHEST, NO_PAGE, Pages, SeriesRows


def merge(pages: Pages, rows: SeriesRows, own: Int64s, index: Int64s, time: Int64s, value: Float64s) -> Int64s:
    """Merge samples into the pages of ``own``, which are distinct rows. Of two samples at one time the new one wins.

    Samples are sorted by (index, time), each pair once; each index, a position in ``own``, has some. Only the pages
    that they belong to are written, and the page behind them for the overflow. Returns the rows for which there are too
    few pages; these are unchanged.
    """
    head = mark_first_rows(index)
    earliest, latest = time[head], time[np.roll(head, -1)]
    begin = pages.find_page(rows.first_page[own], rows.last_page[own], earliest)
    position, written = pages.follow_chains(begin, latest)
    of, old_time, old_value = pages.read_content(written)
    index, time, value = sort_samples(
        np.concatenate([position[of], index]), np.concatenate([old_time, time]), np.concatenate([old_value, value])
    )
    starts = find_page_starts(index, time)
    more = np.bincount(index[starts], minlength=len(own)) - np.bincount(position, minlength=len(own))
    fits = np.cumsum(more) <= pages.left
    if not fits.all():
        there, chosen = fits[position], fits[index]
        position, written = position[there], written[there]
        index, time, value = index[chosen], time[chosen], value[chosen]
        starts = find_page_starts(index, time)

    with rows.marks.mark_writing(own[fits]):
        behind = np.full(len(own), NO_PAGE, np.int32)
        behind[position] = pages.following[written]  # of several pages of a chain the last one wins
        pages.give_back(written[written != begin[position]])
        whose = index[starts]
        head = mark_first_rows(whose)
        tail = np.roll(head, -1)
        into = np.where(head, begin[whose], NO_PAGE)
        fresh = into == NO_PAGE
        into[fresh] = pages.take(int(np.count_nonzero(fresh)))
        pages.store(into, starts, time, value)
        pages.following[into] = np.where(tail, behind[whose], np.roll(into, -1))
        rows.first_page[own[whose[head & fresh]]] = into[head & fresh]
        newest = tail & (behind[whose] == NO_PAGE)
        rows.last_page[own[whose[newest]]] = into[newest]
        rows.last[own] = np.maximum(rows.last[own], latest)
    return own[~fits]


def sort_samples(index: Int64s, time: Int64s, value: Float64s) -> tuple[Int64s, Int64s, Float64s]:
    """Sort by (index, time). Of equal samples the last one stays."""
    step = np.diff(index)
    if np.all((step > 0) | ((step == 0) & (np.diff(time) > 0))):
        return index, time, value
    low = int(time.min())
    span = int(time.max()) - low + 1
    # A single number for both sorts ten times as fast: sorted runs are merged.
    fits = (int(index.max()) + 1) * span < 2**63
    order = np.argsort(index * span + (time - low), kind="stable") if fits else np.lexsort((time, index))
    index, time, value = index[order], time[order], value[order]
    last = mark_last_rows(index, time)
    return index[last], time[last], value[last]


def find_page_starts(index: Int64s, time: Int64s) -> Int64s:
    """Return the page starts among samples sorted by (index, time), int64[k]; a page has one index."""
    starts = mark_first_rows(index)
    # The samples of a page must not be too far apart in time.
    stretch = (time - time[starts][np.cumsum(starts) - 1]) // (FURTHEST + 1)
    starts[1:] |= stretch[1:] != stretch[:-1]
    begin = np.flatnonzero(starts)
    rank = np.arange(len(time)) - np.repeat(begin, np.diff(np.append(begin, len(time))))
    return np.flatnonzero(rank % PAGE == 0)
