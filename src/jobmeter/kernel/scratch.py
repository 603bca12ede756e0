"""Scratch buffers of each thread: allocating memory for every call would cost more than the call's work."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

_MOST_BYTES = 2 * 2**20
_LOCAL = threading.local()


def scratch(name: str, kind: type[T], count: int) -> NDArray[T]:
    """Return at least ``count`` uninitialised numbers, valid until this thread requests ``name`` again.

    Buffers over 2 MiB are not reused.
    """
    buffer: NDArray[T] | None = getattr(_LOCAL, name, None)
    if buffer is None or len(buffer) < count:
        buffer = np.empty(count, kind)
        if buffer.nbytes <= _MOST_BYTES:
            setattr(_LOCAL, name, buffer)
    return buffer
