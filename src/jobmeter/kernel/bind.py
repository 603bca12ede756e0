"""Looks up functions of the compiled library by name."""

import ctypes
from collections.abc import Callable
from typing import Any

from jobmeter.kernel.library import LIBRARY, SHORT_CALLS

Function = Callable[..., Any]
SIZE = ctypes.c_int64
PLACE = ctypes.c_void_p
DATA = ctypes.c_char_p


def bind(name: str, arguments: list[Any], result: Any = None, *, short: bool = False) -> Function | None:  # noqa: ANN401 - types of ctypes
    """Return the function. None if there is no library, or if the library is older than the function.

    ``short`` marks a function that takes microseconds: it keeps the GIL. Any other function releases the GIL. Its
    caller may then wait for the GIL for a whole switch interval.
    """
    function = getattr(SHORT_CALLS if short else LIBRARY, name, None)
    if function is None:
        return None
    function.argtypes, function.restype = arguments, result
    found: Function = function
    return found
