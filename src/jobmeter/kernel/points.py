"""Points as JSON text, without a Python object for each."""

import ctypes
from collections.abc import Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from jobmeter.kernel.library import LIBRARY

AVAILABLE = LIBRARY is not None
_OF_A_POINT = 26
"""Characters around a value: a comma, brackets, a time of at most 20 digits, and what ends a line."""


def encode(times: Sequence[NDArray[np.int64]], values: Sequence[NDArray[np.float64]]) -> list[memoryview]:
    """For each line the JSON list of its pairs ``[time, value]``; values must be finite."""
    assert LIBRARY is not None  # noqa: S101 - callers look at AVAILABLE
    if not times:
        return []
    time, value = np.concatenate(times), np.concatenate(values)
    bounds = np.zeros(len(times) + 1, np.int64)
    np.cumsum([len(one) for one in times], out=bounds[1:])
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    room = len(text) + _OF_A_POINT * len(time) + 2 * len(times)
    out, ends = np.empty(room, np.uint8), np.empty(len(times), np.int64)
    size = _points(
        text, len(text), time.ctypes.data, bounds.ctypes.data, len(times), out.ctypes.data, room, ends.ctypes.data
    )
    if size < 0:
        raise ValueError("the values are not finite numbers")
    whole = out.data
    stops = ends.tolist()
    return [whole[start:end] for start, end in zip([0, *stops], stops, strict=False)]


if LIBRARY is not None:
    _points = LIBRARY.jobmeter_points
    _points.restype = ctypes.c_int64
    _where, _whole = ctypes.c_void_p, ctypes.c_int64
    _points.argtypes = [ctypes.c_char_p, _whole, _where, _where, _whole, _where, _whole, _where]
