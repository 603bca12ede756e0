"""Values and times of many Sample messages at once."""

import numpy as np

from jobmeter.model.batch import Float64s, Int64s
from jobmeter.wire.remote_write.scalar import sample
from jobmeter.wire.remote_write.walk import Octets

_VALUE, _TIME = 0x09, 0x10
_VALUE_BYTES = 9
_LONGEST = 10
_EIGHT = np.arange(8)


def read(data: bytes, octets: Octets, at: Int64s, end: Int64s) -> tuple[Float64s, Int64s]:
    """Float64[n] and int64[n] of the messages at those places. ``octets`` is ``data``, padded.

    The usual form (a value or none, then a time) is read for all of them at once, any other one by itself. Raises
    InvalidRequestError.
    """
    valued = octets[at] == _VALUE
    valued &= end - at >= _VALUE_BYTES
    value = np.zeros(len(at))
    places = at[valued]
    value[valued] = octets[(places + 1)[:, None] + _EIGHT].view("<f8").ravel()
    number = at + _VALUE_BYTES * valued
    digits = end - number - 1
    # A time of 0 is not sent at all.
    timed = (octets[np.minimum(number, len(octets) - 1)] == _TIME) & (digits > 0) & (digits <= _LONGEST)
    odd = ~(timed | (digits == -1))
    time, wrong = _numbers(octets, number + 1, np.where(timed, digits, 0))
    for place in np.flatnonzero(odd | wrong).tolist():
        value[place], time[place] = sample(data, int(at[place]), int(end[place]))
    return value, time


def _numbers(octets: Octets, at: Int64s, digits: Int64s) -> tuple[Int64s, "np.typing.NDArray[np.bool_]"]:
    """Varints of known lengths (0 for none), and which of them do not have that length or no 64 bits."""
    total = np.zeros(len(at), np.uint64)
    wrong = np.zeros(len(at), np.bool_)
    for place in range(int(digits.max(initial=0))):
        there = digits > place
        byte = octets[np.where(there, at + place, 0)]
        wrong |= there & ((byte >= 128) != (digits > place + 1))
        if place == _LONGEST - 1:
            wrong |= there & (byte > 1)
        total |= np.where(there, (byte & 127).astype(np.uint64) << np.uint64(7 * place), np.uint64(0))
    return total.view(np.int64), wrong
