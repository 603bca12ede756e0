"""How much one key may take: calls a second, and stored rows and seconds of work a minute.

Calls are counted by a token bucket for each (key, operation), or (account, operation). The cost of a query is known at
its end: a key may start one while it has any allowance left, and waits afterwards until an overdraft is refilled.
"""

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from jobmeter.errors import ConfigurationError, ThrottledError
from jobmeter.model.time import Clock

MOST_BUCKETS = 100_000
MOST_KEYS = 10_000
"""Keys whose allowance is tracked; beyond that the least recently used is dropped."""
_MINUTE = 60.0
EVERY = "*"
"""The name under which the rate of all other operations stands."""
_RATE = re.compile(r"\s*([A-Za-z0-9:._-]+|\*)\s*=\s*(\d+(?:\.\d+)?)\s*(?::\s*(\d+))?\s*(?:/\s*(key|account))?\s*")


class Per(StrEnum):
    """Whose calls a rate counts together."""

    KEY = "key"
    ACCOUNT = "account"


class Rate(msgspec.Struct, frozen=True):
    """A token bucket: ``per_second`` calls in the long run, ``burst`` of them at once.

    ``per`` None: that of the operation's own rate, else ``Per.KEY``.
    """

    per_second: float
    burst: int
    per: Per | None = None


class _Bucket(msgspec.Struct):
    level: float
    moment: float


class RateLimiter:
    """Counts calls against rates; an operation without a rate is not limited. Safe to use from any thread."""

    def __init__(self, clock: Clock, rates: Mapping[str, Rate] | None = None, most: int = MOST_BUCKETS) -> None:
        """``rates`` by operation, ``*`` for all others. At most ``most`` buckets are cached, the latest used ones."""
        self._clock = clock
        self._rates = dict(rates or {})
        self._most = most
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def take(self, key: str, operation: str, documented: Rate | None = None, account: str = "") -> None:
        """Count one call of a key; ``documented`` is the operation's own rate, where the settings name none.

        ``account`` is the one that the key belongs to, for rates of a whole account. Raises ThrottledError, without
        counting the call, when it exceeds the rate.
        """
        rate = self._rates.get(operation) or self._rates.get(EVERY) or documented
        if rate is None:
            return
        per = rate.per or (documented.per if documented else None) or Per.KEY
        name = (f"{per}:{account if per is Per.ACCOUNT else key}", operation)
        now = self._clock.monotonic()
        with self._lock:
            bucket = self._buckets.setdefault(name, _Bucket(rate.burst, now))
            self._buckets.move_to_end(name)
            bucket.level = min(rate.burst, bucket.level + max(0.0, now - bucket.moment) * rate.per_second)
            bucket.moment = now
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
            if bucket.level >= 1:
                bucket.level -= 1
                return
            wait_ms = max(1, math.ceil((1 - bucket.level) / rate.per_second * 1000))
        raise ThrottledError(
            f"{operation} may be called {rate.per_second:g} times a second by one {per}, {rate.burst} at once", wait_ms
        )


def parse_rates(text: str) -> dict[str, Rate]:
    """Rates from ``GetJobMetrics=50:100,DeleteResourceLog=20/account,*=200``.

    That is calls a second, how many at once (by default one second's), and whose calls count together.

    Raises ConfigurationError.
    """
    rates: dict[str, Rate] = {}
    for part in filter(str.strip, text.split(",")):
        match = _RATE.fullmatch(part)
        if match is None or not float(match[2]) > 0 or match[3] == "0":
            raise ConfigurationError(
                f"rate limit {part.strip()[:64]!r} is not like GetJobMetrics=50:100, A=20/account or *=200"
            )
        per_second = float(match[2])
        burst = int(match[3]) if match[3] else max(1, math.ceil(per_second))
        rates[match[1]] = Rate(per_second, burst, Per(match[4]) if match[4] else None)
    return rates


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a key: ``rows`` and ``seconds`` a minute, 0 without a limit; the others concurrently.

    ``concurrent`` is for short questions and for long ones each; see ``jobmeter.server.admission``.
    """

    rows: int = 0
    seconds: int = 0
    concurrent: int = 4
    exports: int = 2


class Allowance:
    """An allowance per minute for each key. Safe to use from any thread."""

    def __init__(self, clock: Clock, per_minute: int, what: str, most: int = MOST_KEYS) -> None:
        """``what`` names it in a refusal: ``stored rows``. Nothing is limited by 0 a minute."""
        self._clock = clock
        self._per_minute = per_minute
        self._what = what
        self._most = most
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, key: str) -> None:
        """Raises ThrottledError when the key has nothing left."""
        if not self._per_minute:
            return
        with self._lock:
            left = self._now(key)
        if left <= 0:
            wait = max(1, math.ceil((1 - left) * _MINUTE * 1000 / self._per_minute))
            raise ThrottledError(f"the queries of a key may cost {self._per_minute} {self._what} a minute", wait)

    def spend(self, key: str, amount: float) -> None:
        """Count what a query cost."""
        if not self._per_minute or not amount:
            return
        with self._lock:
            self._left[key] = (self._now(key) - amount, self._clock.monotonic())
            self._left.move_to_end(key)
            if len(self._left) > self._most:
                self._left.popitem(last=False)

    def _now(self, key: str) -> float:
        entry = self._left.get(key)
        if entry is None:
            return float(self._per_minute)
        left, moment = entry
        return min(self._per_minute, left + max(0.0, self._clock.monotonic() - moment) * self._per_minute / _MINUTE)


def parse_budget(text: str) -> Budget:
    """A budget from ``rows=2000000000,seconds=600,concurrent=4,exports=2``, every part of which may be left out.

    Raises ConfigurationError.
    """
    values: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in Budget.__struct_fields__ or name in values or not _whole(number):
            raise ConfigurationError(
                f"query budget {part.strip()[:64]!r} is not like rows=2000000000, seconds=600, concurrent=4"
            )
        values[name] = int(number)
    return Budget(**values)


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0
