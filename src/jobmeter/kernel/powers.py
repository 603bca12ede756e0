"""The powers of ten with which the kernel prints numbers (``shortest.h``)."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.library import place

_POWERS = -292, 325
"""Lowest exponent, and exclusive upper bound of the exponents."""


@cache
def make_powers() -> NDArray[np.uint64]:
    """Return the first 128 bits of each power of ten, rounded up: the lower 64 bits, then the upper."""
    words: list[int] = []
    for exponent in range(*_POWERS):
        # Position of the highest bit: the logarithm to base 2, rounded down.
        highest = (exponent * 1741647) >> 19
        above = 10 ** max(exponent, 0) << max(127 - highest, 0)
        below = 10 ** max(-exponent, 0) << max(highest - 127, 0)
        power = -(-above // below)
        words += (power & (1 << 64) - 1, power >> 64)
    return np.array(words, np.uint64)


@cache  # making the pointer takes as long as printing some numbers
def find_powers_place() -> Any:  # noqa: ANN401 - as ctypes has it
    """Return the address of the powers, for a call of the kernel."""
    return place(make_powers())
