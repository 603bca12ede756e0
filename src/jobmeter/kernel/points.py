"""Points as JSON text, without a Python object for each."""

from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import place

_POINTS = bind("jobmeter_points", [DATA, SIZE, PLACE, PLACE, SIZE, PLACE, SIZE, PLACE], SIZE)
AVAILABLE = _POINTS is not None
_OF_A_POINT = 26
"""Characters around a value: a comma, brackets, a time of at most 20 digits, and what ends a line."""


def encode(ends: Sequence[int], time: NDArray[np.int64], value: NDArray[np.float64]) -> list[bytes]:
    """For each line the JSON list of its pairs ``[time, value]``; what is not finite becomes null.

    ``ends`` is where each line ends in the other two, which are contiguous. Raises ValueError where it ends elsewhere
    than they do.
    """
    assert _POINTS is not None  # noqa: S101 - callers look at AVAILABLE
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    lines = len(ends)
    room = len(text) + _OF_A_POINT * len(time) + 2 * lines
    bounds, stops, out = np.array((0, *ends), np.int64), np.empty(lines, np.int64), bytearray(room)
    fits = len(time) == len(value) == (ends[-1] if lines else 0)
    size = -1
    if fits:
        size = _POINTS(text, len(text), place(time), place(bounds), lines, place(out), room, place(stops))
    if size < 0:
        raise ValueError("the lines do not end where times and values do")
    whole, last = bytes(out), 0
    found: list[bytes] = []
    for end in stops.tolist():
        found.append(whole[last:end])
        last = end
    return found
