"""Putting samples of any age among those that the pages of their series hold, many series at a time."""

import numpy as np

from jobmeter.kernel.window import PAGE
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.store.window.pages import FURTHEST, NO_PAGE, Pages, Rows


def merge(pages: Pages, rows: Rows, own: Int64s, index: Int64s, time: Int64s, value: Float64s) -> Int64s:
    """Put samples into the pages of ``own``, which are different rows; of two of a time the new one wins.

    Samples are in the order of (index, time), each pair once; each index, a position in ``own``, has some. Only the
    pages among which they belong are written, and the one behind them, which takes what is too much. Gives the rows
    for which there are too few pages: these are as they were.
    """
    head = _heads(index)
    earliest, latest = time[head], time[np.roll(head, -1)]
    begin = pages.page_of(rows.first_page[own], rows.last_page[own], earliest)
    position, written = pages.chains(begin, latest)
    of, old_time, old_value = pages.content(written)
    index, time, value = in_order(
        np.concatenate([position[of], index]), np.concatenate([old_time, time]), np.concatenate([old_value, value])
    )
    starts = page_starts(index, time)
    more = np.bincount(index[starts], minlength=len(own)) - np.bincount(position, minlength=len(own))
    fits = np.cumsum(more) <= pages.left
    if not fits.all():
        there, chosen = fits[position], fits[index]
        position, written = position[there], written[there]
        index, time, value = index[chosen], time[chosen], value[chosen]
        starts = page_starts(index, time)

    behind = np.full(len(own), NO_PAGE, np.int32)
    behind[position] = pages.following[written]  # of several pages of a chain the last one wins
    pages.give_back(written[written != begin[position]])
    whose = index[starts]
    head = _heads(whose)
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


def in_order(index: Int64s, time: Int64s, value: Float64s) -> tuple[Int64s, Int64s, Float64s]:
    """Sorted by (index, time), of equal ones the last."""
    step = np.diff(index)
    if np.all((step > 0) | ((step == 0) & (np.diff(time) > 0))):
        return index, time, value
    low = int(time.min())
    span = int(time.max()) - low + 1
    # One number for both is sorted ten times as quickly: what is in order already is merged.
    fits = (int(index.max()) + 1) * span < 2**63
    order = np.argsort(index * span + (time - low), kind="stable") if fits else np.lexsort((time, index))
    index, time, value = index[order], time[order], value[order]
    last = np.append((index[1:] != index[:-1]) | (time[1:] != time[:-1]), True)
    return index[last], time[last], value[last]


def page_starts(index: Int64s, time: Int64s) -> Int64s:
    """int64[k]: where pages begin among samples in the order of (index, time); a page is of one index."""
    starts = _heads(index)
    # And it has no samples that are too far from each other.
    stretch = (time - time[starts][np.cumsum(starts) - 1]) // (FURTHEST + 1)
    starts[1:] |= stretch[1:] != stretch[:-1]
    begin = np.flatnonzero(starts)
    rank = np.arange(len(time)) - np.repeat(begin, np.diff(np.append(begin, len(time))))
    return np.flatnonzero(rank % PAGE == 0)


def _heads(index: Int64s) -> Bools:
    """bool[k]: whether it is the first of its index."""
    return np.append(True, index[1:] != index[:-1])[: len(index)]
