"""Memory that a thread uses again and again: taking some anew for every call costs more than what is done in it."""

import threading
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

_MOST_BYTES = 2 * 2**20
_LOCAL = threading.local()


def scratch(name: str, kind: type[T], count: int) -> NDArray[T]:
    """At least ``count`` numbers of any values, which are the caller's until its thread asks for ``name`` again.

    More than 2 MiB are not held on to.
    """
    held: NDArray[T] | None = getattr(_LOCAL, name, None)
    if held is None or len(held) < count:
        held = np.empty(count, kind)
        if held.nbytes <= _MOST_BYTES:
            setattr(_LOCAL, name, held)
    return held
