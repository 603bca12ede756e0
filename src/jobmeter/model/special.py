"""Special values: NaN, infinities, and the stale markers that end a series in Prometheus.

The samples of a series are finite, so that no sum, roll-up or vendor's answer has to handle anything else. A special
value is a sample of a second series, whose metric is ``special.`` and the metric of the first. The second series has
the other names of the first one, and the code of the special value at its time. Only PromQL and remote read put both
together again.
"""

from dataclasses import replace

import numpy as np

from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.series import SPECIAL, Series

STALE = 0x7FF0000000000002
"""The bits of the NaN by which Prometheus marks the end of a series."""
STALE_CODE, _NAN_CODE, _INFINITE_CODE, _NEGATIVE_CODE = 1.0, 2.0, 3.0, 4.0
_BITS: Int64s = np.array(
    [0x7FF8000000000001, STALE, 0x7FF8000000000001, 0x7FF0000000000000, -0x0010000000000000], np.int64
)
"""The bits of each code's value. A code that is not defined is NaN, with the bits that Prometheus uses for NaN."""


def is_special(metric: str) -> bool:
    """Return True for a metric whose samples are codes of special values."""
    return metric.startswith(SPECIAL)


def special_of(series: Series) -> Series:
    """Return the series that holds the special values of a series."""
    return replace(series, metric=SPECIAL + series.metric)


def plain_of(series: Series) -> Series:
    """Return the series to which the special values of ``series`` belong."""
    return replace(series, metric=series.metric.removeprefix(SPECIAL))


def encode_special(values: Float64s) -> Float64s:
    """Return the codes of values that are not finite."""
    codes = np.where(values > 0, _INFINITE_CODE, _NEGATIVE_CODE)
    codes[np.isnan(values)] = _NAN_CODE
    codes[np.ascontiguousarray(values).view(np.int64) == STALE] = STALE_CODE
    return codes


def decode_special(codes: Float64s) -> Float64s:
    """Return the values of codes."""
    known = (codes >= STALE_CODE) & (codes <= _NEGATIVE_CODE)
    found: Float64s = _BITS[np.where(known, codes, 0).astype(np.int64)].view(np.float64)
    return found
