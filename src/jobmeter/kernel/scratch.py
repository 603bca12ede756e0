"""Arrays for calls of the library; scratch buffers of each thread, because allocating them costs more than a call."""

import threading
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

_MOST_BYTES = 2 * 2**20
_LOCAL = threading.local()


def borrow_scratch(name: str, kind: type[T], count: int) -> NDArray[T]:
    """Return at least ``count`` uninitialised numbers, valid until this thread requests ``name`` again.

    Buffers over 2 MiB are not reused.
    """
    buffer: NDArray[T] | None = getattr(_LOCAL, name, None)
    if buffer is None or len(buffer) < count:
        buffer = np.empty(count, kind)
        if buffer.nbytes <= _MOST_BYTES:
            setattr(_LOCAL, name, buffer)
    return buffer


def align(numbers: NDArray[Any], kind: type[T]) -> NDArray[T]:
    """Return the numbers as a contiguous, writable array, as ``place`` needs. Copies only if necessary."""
    found = np.ascontiguousarray(numbers, kind)
    return found if found.flags.writeable else found.copy()
