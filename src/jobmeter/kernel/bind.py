"""Functions of the compiled library by their names."""

import ctypes
from collections.abc import Callable
from typing import Any

from jobmeter.kernel.library import LIBRARY, SHORT_CALLS

Function = Callable[..., Any]
SIZE = ctypes.c_int64
PLACE = ctypes.c_void_p
DATA = ctypes.c_char_p


def bind(name: str, arguments: list[Any], result: Any = None, *, short: bool = False) -> Function | None:  # noqa: ANN401 - types of ctypes
    """The function, or None where there is no library, or one from before the function was written.

    ``short``: it takes microseconds. Other threads run during a call of any other function, and whoever called it
    then waits for them, for up to the interval after which a thread lets others run.
    """
    function = getattr(SHORT_CALLS if short else LIBRARY, name, None)
    if function is None:
        return None
    function.argtypes, function.restype = arguments, result
    found: Function = function
    return found
