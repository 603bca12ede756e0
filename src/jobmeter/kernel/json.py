"""Counts the objects, arrays and values of a JSON text in one pass (``json.c``)."""

import numpy as np

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import point_to

_SHAPE = bind("jobmeter_json_shape", [DATA, SIZE, PLACE, SIZE], SIZE)


def count(data: bytes, depths: int) -> tuple[list[int], int]:
    """Count the objects and arrays that begin at each depth, and the commas between values.

    Levels deeper than ``depths`` count at the last one.
    """
    counts = np.zeros(depths, np.int64)
    commas: int = _SHAPE(data, len(data), point_to(counts), depths)
    return counts.tolist(), commas
