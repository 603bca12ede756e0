"""Budgets of keys: stored rows and seconds of work a minute, concurrent queries and exports.

What a question costs is known at its end, so a key may begin while it has anything left and owes what it took too much;
what it owes is paid by waiting.
"""

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass

from jobmeter.errors import ConfigurationError, ThrottledError
from jobmeter.model.time import Clock

MOST_KEYS = 10_000
"""Keys whose spending is remembered; beyond that the least recently used is dropped."""
_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budget of a key: ``rows`` and ``seconds`` a minute, 0 without a limit; the others concurrently.

    ``concurrent`` is for short questions and for long ones each; see ``jobmeter.server.admission``.
    """

    rows: int = 0
    seconds: int = 0
    concurrent: int = 4
    exports: int = 2


class Allowance:
    """So much a minute for each key. Safe to use from any thread."""

    def __init__(self, clock: Clock, a_minute: int, what: str, most: int = MOST_KEYS) -> None:
        """``what`` names it in a refusal: ``stored rows``. Nothing is limited by 0 a minute."""
        self._clock = clock
        self._a_minute = a_minute
        self._what = what
        self._most = most
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key: str) -> None:
        """Raises ThrottledError when the key has nothing left."""
        if not self._a_minute:
            return
        with self._lock:
            left = self._now(key)
        if left <= 0:
            wait = max(1, math.ceil((1 - left) * _MINUTE * 1000 / self._a_minute))
            raise ThrottledError(f"the questions of a key may cost {self._a_minute} {self._what} a minute", wait)

    def spend(self, key: str, amount: float) -> None:
        """Count what a question took."""
        if not self._a_minute or not amount:
            return
        with self._lock:
            self._left[key] = (self._now(key) - amount, self._clock.monotonic())
            self._left.move_to_end(key)
            if len(self._left) > self._most:
                self._left.popitem(last=False)

    def _now(self, key: str) -> float:
        entry = self._left.get(key)
        if entry is None:
            return float(self._a_minute)
        left, moment = entry
        return min(self._a_minute, left + max(0.0, self._clock.monotonic() - moment) * self._a_minute / _MINUTE)


def parse_budget(text: str) -> Budget:
    """A budget from ``rows=2000000000,seconds=600,concurrent=4,exports=2``, every part of which may be left out.

    Raises ConfigurationError.
    """
    values: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in Budget.__dataclass_fields__ or name in values or not _whole(number):
            raise ConfigurationError(
                f"query budget {part.strip()[:64]!r} is not like rows=2000000000, seconds=600, concurrent=4"
            )
        values[name] = int(number)
    return Budget(**values)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0
