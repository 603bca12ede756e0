"""Memory that a thread uses again and again: taking some anew for every call costs more than what is done in it."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

_MOST_BYTES = 2 * 2**20
_LOCAL = threading.local()


def scratch(name: str, kind: type[T], count: int) -> NDArray[T]:
    """At least ``count`` numbers of any values, which are the caller's until its thread requests ``name`` again.

    Buffers over 2 MiB are not reused.
    """
    buffer: NDArray[T] | None = getattr(_LOCAL, name, None)
    if buffer is None or len(buffer) < count:
        buffer = np.empty(count, kind)
        if buffer.nbytes <= _MOST_BYTES:
            setattr(_LOCAL, name, buffer)
    return buffer
