"""What a JSON text opens at each depth, and how many values it has, counted in one pass (``json.c``)."""

import numpy as np

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import pointer

_SHAPE = bind("jobmeter_json_shape", [DATA, SIZE, PLACE, SIZE], SIZE)


def count(data: bytes, depths: int) -> tuple[list[int], int] | None:
    """How many objects and arrays begin at each depth (deeper ones at the last), and the commas between values.

    None where there is no library.
    """
    if _SHAPE is None:
        return None
    counts = np.zeros(depths, np.int64)
    commas: int = _SHAPE(data, len(data), pointer(counts), depths)
    return counts.tolist(), commas
