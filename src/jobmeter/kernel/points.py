"""Writes points as JSON text, without a Python object for each (``points.c``)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import PLACE, SIZE, bind
from jobmeter.kernel.library import place
from jobmeter.kernel.powers import find_powers_place
from jobmeter.kernel.scratch import align

_ARGUMENTS = [PLACE, PLACE, SIZE, PLACE, SIZE, PLACE, SIZE, PLACE]
_POINTS = bind("jobmeter_points", _ARGUMENTS, SIZE)
_FEW_POINTS = bind("jobmeter_points", _ARGUMENTS, SIZE, short=True)
_LONGEST = 64
"""Characters reserved for each point and each line."""
_FEW = 2_000
"""Most points that a short call writes."""


def encode(
    ends: Sequence[int] | NDArray[np.int64],
    time: NDArray[np.int64] | None,
    value: NDArray[np.float64],
    *,
    as_text: bool = False,
) -> list[bytes]:
    """Return for each line the JSON list of its pairs ``[time, value]``. A value that is not finite becomes null.

    ``ends`` gives the end of each line in ``time`` and ``value``. Without times the lists hold
    values alone. ``as_text``: the pairs have Prometheus' form, seconds and the value as a text; times are required.
    Raises ValueError if the last line ends elsewhere than the columns.
    """
    count = len(value)
    value = align(value, np.float64)
    stops, out = np.array(ends, np.int64), np.empty(_LONGEST * (count + len(ends)), np.uint8)
    write = _FEW_POINTS if count <= _FEW else _POINTS
    size = -1
    if len(time) == count if time is not None else not as_text:
        times = None if time is None else place(align(time, np.int64))
        size = write(place(value), times, count, place(stops), len(ends), find_powers_place(), as_text, place(out))
    if size < 0:
        raise ValueError("the lines do not end where times and values do")
    text, bounds = out[:size].tobytes(), [0, *stops.tolist()]
    return [text[begin:end] for begin, end in pairwise(bounds)]
