"""Special values: NaN, infinities, and the stale markers that end a series in Prometheus.

The samples of a series are finite numbers, so sums, roll-ups and vendors' answers handle only finite numbers. A special
value is a sample of a second series, whose metric is ``special.`` and the metric of the first series. All other names
of both series are equal. The sample is the code of the special value. Only PromQL and remote read merge both series.
"""

from dataclasses import replace

import numpy as np

from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.series import SPECIAL, Series

STALE = 0x7FF0000000000002
"""Bits of Prometheus' stale marker: the NaN that marks the end of a series."""
STALE_CODE, _NAN_CODE, _INFINITE_CODE, _NEGATIVE_CODE = 1.0, 2.0, 3.0, 4.0
_BITS: Int64s = np.array(
    [0x7FF8000000000001, STALE, 0x7FF8000000000001, 0x7FF0000000000000, -0x0010000000000000], np.int64
)
"""Bits of the special value of each code. An undefined code means NaN, with Prometheus' bits for NaN."""


def is_special(metric: str) -> bool:
    """Return True for a metric whose samples are codes of special values."""
    return metric.startswith(SPECIAL)


def make_special(series: Series) -> Series:
    """Return the series that holds the special values of a series."""
    return replace(series, metric=SPECIAL + series.metric)


def make_plain(series: Series) -> Series:
    """Return the series to which the special values of ``series`` belong."""
    return replace(series, metric=series.metric.removeprefix(SPECIAL))


def encode_special(values: Float64s) -> Float64s:
    """Return the codes of special values."""
    codes = np.where(values > 0, _INFINITE_CODE, _NEGATIVE_CODE)
    codes[np.isnan(values)] = _NAN_CODE
    codes[np.ascontiguousarray(values).view(np.int64) == STALE] = STALE_CODE
    return codes


def decode_special(codes: Float64s) -> Float64s:
    """Return the special values of codes."""
    known = (codes >= STALE_CODE) & (codes <= _NEGATIVE_CODE)
    found: Float64s = _BITS[np.where(known, codes, 0).astype(np.int64)].view(np.float64)
    return found
