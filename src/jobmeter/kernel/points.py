"""Points as JSON text, without a Python object for each."""

from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import pointer

_POINTS = bind("jobmeter_points", [DATA, SIZE, PLACE, PLACE, SIZE, PLACE, SIZE, PLACE], SIZE)
AVAILABLE = _POINTS is not None
_OF_A_POINT = 26
"""Characters around a value: a comma, brackets, a time of at most 20 digits, and what ends a line."""


def encode(times: Sequence[NDArray[np.int64]], values: Sequence[NDArray[np.float64]]) -> list[memoryview]:
    """For each line the JSON list of its pairs ``[time, value]``; what is not finite becomes null."""
    assert _POINTS is not None  # noqa: S101 - callers look at AVAILABLE
    if not times:
        return []
    time, value = np.concatenate(times), np.concatenate(values)
    bounds = np.zeros(len(times) + 1, np.int64)
    np.cumsum([len(one) for one in times], out=bounds[1:])
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    room = len(text) + _OF_A_POINT * len(time) + 2 * len(times)
    out, ends = np.empty(room, np.uint8), np.empty(len(times), np.int64)
    size = _POINTS(text, len(text), pointer(time), pointer(bounds), len(times), pointer(out), room, pointer(ends))
    if size < 0:
        raise ValueError("there are not as many values as times")
    whole = out.data
    stops = ends.tolist()
    return [whole[start:end] for start, end in zip([0, *stops], stops, strict=False)]
