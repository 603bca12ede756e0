"""The powers of ten by which the kernel prints numbers (``shortest.h``)."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.library import place

_POWERS = -292, 325
"""The lowest, and the end."""


@cache  # there is one
def powers() -> NDArray[np.uint64]:
    """The first 128 bits of each power of ten, rounded up, the lower half of them first."""
    words: list[int] = []
    for exponent in range(*_POWERS):
        # Where the highest bit lies: the logarithm to base 2, rounded down.
        highest = (exponent * 1741647) >> 19
        above = 10 ** max(exponent, 0) << max(127 - highest, 0)
        below = 10 ** max(-exponent, 0) << max(highest - 127, 0)
        power = -(-above // below)
        words += (power & (1 << 64) - 1, power >> 64)
    return np.array(words, np.uint64)


@cache  # making it takes as long as printing some numbers
def powers_place() -> Any:  # noqa: ANN401 - as ctypes has it
    """Where they lie, for a call of the kernel."""
    return place(powers())
