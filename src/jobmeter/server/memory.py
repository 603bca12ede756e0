"""Returns unused memory of the C library to the system."""

import ctypes

INTERVAL_SECONDS = 60.0


class Tidying:
    """See ``Work``. Once a minute: after an import or a burst of samples the C library retains hundreds of MiB.

    A few milliseconds, without the interpreter's lock. Nothing where the C library is not glibc.
    """

    name = "tidy"
    interval = INTERVAL_SECONDS

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def round(self) -> None:
        """Give back what is free now."""
        if self._trim is not None:
            self._trim(0)
