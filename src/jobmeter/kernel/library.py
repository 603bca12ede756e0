"""Finds and loads the compiled library."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.kernel.abi import compute_number

if TYPE_CHECKING:  # an installation without NumPy can report the missing library, too
    import numpy as np
    from numpy.typing import NDArray

_FOLDER = Path(__file__).parent


class Kernel(msgspec.Struct, frozen=True):
    """The compiled library; None with the reason why it is ``missing``."""

    library: ctypes.CDLL | None
    missing: str = ""
    short_calls: ctypes.PyDLL | None = None
    """A second handle of the library, whose calls keep the GIL."""


def load(folder: Path, choice: str) -> Kernel:
    """Load the library built from the sources in a folder.

    ``choice`` is the value of JOBMETER_KERNEL: empty, or the path of a library built from the same sources.
    """
    path = Path(choice) if choice else folder / "_kernel.so"
    if not path.exists():
        return Kernel(None, "it was not built: this is the wheel without it, or there was no C compiler")
    try:
        library = ctypes.CDLL(str(path))
        library.jobmeter_abi.restype = ctypes.c_int64
        fits = library.jobmeter_abi() == compute_number(folder)
    except (OSError, AttributeError) as error:
        return Kernel(None, f"it cannot be loaded: {error}")
    if not fits:
        return Kernel(None, "it was built from other sources: install again")
    return Kernel(library, short_calls=ctypes.PyDLL(str(path)))


KERNEL = load(_FOLDER, os.environ.get("JOBMETER_KERNEL", ""))


def require() -> None:
    """Check that the library was loaded. Raises ConfigurationError if it was not."""
    if KERNEL.missing:
        raise ConfigurationError(
            f"the compiled kernel is missing: {KERNEL.missing}. A server needs it; agents and clients do not. "
            "Install the wheel for this platform, or install from the source where there is a C compiler"
        )


def read_interface() -> int:
    """Return the interface number of the loaded library."""
    require()
    assert KERNEL.library is not None  # noqa: S101 - checked above
    return int(KERNEL.library.jobmeter_abi())


place: Callable[[Any], Any] = (ctypes.c_char * 0).from_buffer
"""Function that returns the address of a contiguous, writable array; quicker than ``point_to``."""


def point_to(array: "NDArray[np.generic]") -> ctypes.c_void_p:
    """Return a pointer to the numbers of a contiguous array, which lives at least as long as the pointer."""
    place = ctypes.c_void_p(array.ctypes.data)
    # Without this reference, an array made in the call's argument list would be freed before the function begins.
    place.array = array  # type: ignore[attr-defined]
    return place
