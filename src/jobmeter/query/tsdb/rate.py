"""Rates: change per second from one point of a series to the next.

https://opentsdb.net/docs/build/html/api_http/query/index.html#rate-options.
"""

import msgspec
import numpy as np

from jobmeter.query.tsdb.columns import SeriesColumns

LONG_MAX = 2**63 - 1


class RateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Rate options. ``counter``: a value below its predecessor rolled over at ``counter_max``, or was reset.

    Then a rate above ``reset_value`` (unless 0) becomes 0, and with ``drop_resets`` is dropped.
    """

    counter: bool = False
    counter_max: float = LONG_MAX
    reset_value: float = 0
    drop_resets: bool = False


def compute_rates(columns: SeriesColumns, options: RateOptions) -> SeriesColumns:
    """Compute the rates, each at the time of the later point; a series' first point has none."""
    if len(columns) < 2:
        return columns.filter(np.zeros(len(columns), np.bool_))
    same = columns.index[1:] == columns.index[:-1]
    seconds = (columns.time[1:] - columns.time[:-1])[same] / 1000.0
    before, after = columns.value[:-1][same], columns.value[1:][same]
    change = after - before
    index, time = columns.index[1:][same], columns.time[1:][same]
    if not options.counter:
        return SeriesColumns(index, time, change / seconds)
    fell = change < 0
    value = np.where(fell, options.counter_max - before + after, change) / seconds
    if options.reset_value > 0:
        value = np.where(fell & (value > options.reset_value), 0.0, value)
    found = SeriesColumns(index, time, value)
    return found.filter(~fell) if options.drop_resets else found
