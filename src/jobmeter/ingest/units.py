"""Unit conversion that keeps two-decimal values two-decimal: results are rounded to 12 significant digits.

A percentage divided by 100 in binary carries noise in its last bits, which costs a column codec several bytes a value;
rounded, it is again the number that a person would write.
"""

import numpy as np

from jobmeter.model.batch import Float64s

DIGITS = 12
_EXACT = 22  # 10**22 is the largest power of ten that a double holds exactly


def round_significant(values: Float64s) -> Float64s:
    """Each value as the double nearest to its decimal form of 12 significant digits. Infinities and NaN pass."""
    result = values.astype(np.float64)
    usual = np.isfinite(result) & (result != 0)
    magnitude = np.zeros(result.shape, np.int64)
    magnitude[usual] = np.floor(np.log10(np.abs(result[usual]))).astype(np.int64)
    shift = DIGITS - 1 - magnitude
    # A whole number below 2**53 divided or multiplied by an exact power of ten rounds once: to the nearest double.
    small, large = usual & (shift >= 0) & (shift <= _EXACT), usual & (shift < 0) & (shift >= -_EXACT)
    power = 10.0 ** np.abs(shift).clip(0, _EXACT)
    result[small] = np.rint(result[small] * power[small]) / power[small]
    result[large] = np.rint(result[large] / power[large]) * power[large]
    for at in np.flatnonzero(usual & ~small & ~large).tolist():
        result[at] = float(f"{result[at]:.{DIGITS - 1}e}")
    return result
