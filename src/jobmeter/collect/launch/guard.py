"""What measures a command must not harm it: no failure of it gets through."""

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Guard:
    """Calls what may fail, and says once of each kind of work that it failed. Safe from any thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._warned: set[str] = set()

    def __call__(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """What the work gives; ``otherwise`` when it fails."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - the command runs on whatever is wrong with its measuring
            _log.debug("%s failed", what, exc_info=True)
            if what not in self._warned:
                self._warned.add(what)
                self._say(f"{what} failed ({type(error).__name__}: {error}), which does not affect the command")
            return otherwise
