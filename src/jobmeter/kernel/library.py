"""Finds and loads the compiled library."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.abi import number

_FOLDER = Path(__file__).parent
_OFF = {"off", "0", "no"}


class Kernel(msgspec.Struct, frozen=True):
    """The compiled library, or None with the reason why there is no usable one."""

    library: ctypes.CDLL | None
    missing: str = ""
    short_calls: ctypes.PyDLL | None = None
    """A second handle of the library, whose calls keep the GIL."""


def load(folder: Path, choice: str) -> Kernel:
    """Load the library built from the sources in a folder.

    ``choice`` is the value of JOBMETER_KERNEL: empty, ``off``, or the path of a library built from the same sources.
    """
    if choice.lower() in _OFF:
        return Kernel(None, "JOBMETER_KERNEL is off")
    path = Path(choice) if choice else folder / "_kernel.so"
    if not path.exists():
        return Kernel(None, "it was not built: this is the wheel without it, or there was no C compiler")
    try:
        library = ctypes.CDLL(str(path))
        library.jobmeter_abi.restype = ctypes.c_int64
        fits = library.jobmeter_abi() == number(folder)
    except (OSError, AttributeError) as error:
        return Kernel(None, f"it cannot be loaded: {error}")
    if not fits:
        return Kernel(None, "it was built from other sources: install again")
    return Kernel(library, short_calls=ctypes.PyDLL(str(path)))


KERNEL = load(_FOLDER, os.environ.get("JOBMETER_KERNEL", ""))
LIBRARY, SHORT_CALLS = KERNEL.library, KERNEL.short_calls


place: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""Return the address of a contiguous, writable array; quicker than ``pointer``."""


def pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    """Return a pointer to the numbers of a contiguous array, which lives at least as long as the pointer."""
    place = ctypes.c_void_p(array.ctypes.data)
    # Without this reference, an array made in the call's argument list would be freed before the function begins.
    place.array = array  # type: ignore[attr-defined]
    return place
