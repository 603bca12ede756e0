"""Looks up functions of the compiled library by name."""

import ctypes
from collections.abc import Callable
from typing import Any

from jobmeter.kernel.library import KERNEL, require

Function = Callable[..., Any]
SIZE = ctypes.c_int64
PLACE = ctypes.c_void_p
DATA = ctypes.c_char_p


def bind(name: str, arguments: list[Any], result: Any = None, *, short: bool = False) -> Function:  # noqa: ANN401 - types of ctypes
    """Return the function. Without a library its calls raise ConfigurationError.

    ``short`` marks a function that takes microseconds: it keeps the GIL. Any other function releases the GIL. Its
    caller may then wait for the GIL for a whole switch interval.
    """
    library = KERNEL.short_calls if short else KERNEL.library
    if library is None:
        return lambda *_: require()
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    found: Function = function
    return found
