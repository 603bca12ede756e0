"""Functions of the compiled library by their names."""

import ctypes
from collections.abc import Callable
from typing import Any

from jobmeter.kernel.library import LIBRARY

Function = Callable[..., Any]
SIZE = ctypes.c_int64
PLACE = ctypes.c_void_p
DATA = ctypes.c_char_p


def bind(name: str, arguments: list[Any], result: Any = None) -> Function | None:  # noqa: ANN401 - types of ctypes
    """The function, or None where there is no library, or one from before the function was written."""
    function = getattr(LIBRARY, name, None)
    if function is None:
        return None
    function.argtypes, function.restype = arguments, result
    found: Function = function
    return found
