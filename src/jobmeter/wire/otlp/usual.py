"""The usual form of a data point of one number: times, a value, then attributes and no more."""

from jobmeter.wire.otlp.written import AS_DOUBLE, AS_INT, ATTRIBUTES, MOST_OWN

BEFORE = 17
"""Bytes between the begin of a time and the attributes that follow time and value."""
_START, _TIME = 0x11, 0x19
_VALUES = frozenset({AS_DOUBLE, AS_INT})
_LONG = 128


def usual(data: bytes, begin: int, end: int) -> int:
    """Where the attributes of a data point in the usual form begin; -1 for another one."""
    at = begin + 9 if end - begin >= 27 and data[begin] == _START else begin
    if end - at < 18 or data[at] != _TIME or data[at + 9] not in _VALUES:
        return -1
    own = at = at + 18
    if end - own > MOST_OWN:
        return -1
    while at < end:
        if data[at] != ATTRIBUTES or at + 1 >= end or data[at + 1] >= _LONG:
            return -1
        at += 2 + data[at + 1]
    return own if at == end else -1
