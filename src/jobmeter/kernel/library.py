"""Finding and loading the compiled library."""

import ctypes
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ABI = 1
"""Raised with every change of a function's arguments: a library of another age is not used."""
_FILE = Path(__file__).with_name("_kernel.so")


def load() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits."""
    if os.environ.get("JOBMETER_KERNEL", "").lower() in {"off", "0", "no"}:
        return None
    try:
        library = ctypes.CDLL(str(_FILE))
        library.jobmeter_abi.restype = ctypes.c_int64
        fits = library.jobmeter_abi() == ABI
    except (OSError, AttributeError):
        return None
    return library if fits else None


LIBRARY = load()


def pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    """Where the array's numbers begin. The array must be contiguous; it lives for as long as what this gives."""
    place = ctypes.c_void_p(array.ctypes.data)
    # Else an array that is made in the very call would be gone before the function begins.
    place.array = array  # type: ignore[attr-defined]
    return place
