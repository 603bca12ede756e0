"""Contains failures of the measurement, which must not harm the command."""

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Guard:
    """Calls functions that may fail, and reports the first failure of each kind of work. Safe from any thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned: set[str] = set()

    def __call__(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """The result of the work; ``otherwise`` when it fails."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the command runs on whatever is wrong with its measuring
            _log.debug("%s failed", what, exc_info=True)
            if what not in self._warned:
                self._warned.add(what)
                self._say(f"{what} failed ({type(error).__name__}: {error}), which does not affect the command")
            return otherwise
