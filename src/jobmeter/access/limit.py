"""Limits of a key: calls per second, and stored rows and seconds of work per minute.

A token bucket for each (key, operation), or (account, operation), counts calls. The cost of a query is known at its
end: a key may start a query while it has any allowance left, and afterwards waits until an overdraft is refilled.
"""

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from jobmeter.access.shared_rates import SharedRates
from jobmeter.errors import ConfigurationError, ThrottledError
from jobmeter.model.time import Clock
from jobmeter.model.token_bucket import TokenBucket, wait_ms

MOST_BUCKETS = 100_000
MOST_KEYS = 10_000
"""Keys whose allowance is tracked. Beyond that the least recently used is dropped."""
_MINUTE = 60.0
EVERY = "*"
"""Name for the rate of all other operations."""
_RATE = re.compile(r"\s*([A-Za-z0-9:._-]+|\*)\s*=\s*(\d+(?:\.\d+)?)\s*(?::\s*(\d+))?\s*(?:/\s*(key|account))?\s*")


class Per(StrEnum):
    """Subject of a rate: a key or an account."""

    KEY = "key"
    ACCOUNT = "account"


class Rate(msgspec.Struct, frozen=True):
    """Token bucket: ``per_second`` calls in the long run, at most ``burst`` at once.

    ``per`` None: as in the operation's own rate, else ``Per.KEY``.
    """

    per_second: float
    burst: int
    per: Per | None = None


class RateLimiter:
    """Counts calls against rates. An operation without a rate is not limited. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        rates: Mapping[str, Rate] | None = None,
        most: int = MOST_BUCKETS,
        shared: SharedRates | None = None,
    ) -> None:
        """``rates`` by operation, ``*`` for all others. At most ``most`` buckets are cached; the latest used stay.

        With ``shared`` all servers share the rates.
        """
        self._shared = shared
        self._clock = clock
        self._rates = dict(rates or {})
        self._most = most
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def find_rate(self, operation: str, documented: Rate | None = None) -> Rate | None:
        """Return the rate of an operation; None if it is not limited."""
        return self._rates.get(operation) or self._rates.get(EVERY) or documented

    def must_wait(self, operation: str, documented: Rate | None = None) -> bool:
        """Return True if ``take`` has to ask the registry."""
        return _is_shared(self._shared) and self.find_rate(operation, documented) is not None

    def take(self, key: str, operation: str, documented: Rate | None = None, account: str = "") -> None:
        """Count one call of a key; ``documented`` is the operation's own rate, used if the settings have none.

        ``account`` is the key's account, for rates per account. Raises ThrottledError, without counting the call, if it
        exceeds the rate.
        """
        rate = self.find_rate(operation, documented)
        if rate is None:
            return
        per = rate.per or (documented.per if documented else None) or Per.KEY
        name = (f"{per}:{account if per is Per.ACCOUNT else key}", operation)
        now = self._clock.monotonic()
        with self._lock:
            bucket = self._buckets.get(name)
            if bucket is None:
                bucket = self._buckets[name] = TokenBucket(rate.per_second, rate.burst, now)
            self._buckets.move_to_end(name)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
            wait = 0 if bucket.take(1, now) else bucket.wait_ms()
        if not wait and self._shared is not None and not self._shared.is_alone:
            wait = self._shared.take(" ".join(name), rate.per_second, rate.burst)
            if wait:
                with self._lock:
                    bucket.level += 1
        if not wait:
            return
        raise ThrottledError(
            f"{operation} is limited to {rate.per_second:g} calls per second for each {per}, {rate.burst} at once",
            wait,
        )


def parse_rates(text: str) -> dict[str, Rate]:
    """Parse rates like ``GetJobMetrics=50:100,DeleteResourceLog=20/account,*=200``.

    Each has calls per second, calls at once (default: one second's) and the subject. Raises ConfigurationError.
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
    """Budget of a key: ``rows`` and ``seconds`` per minute, 0 without a limit; the others are concurrent.

    ``concurrent`` applies to short and to long questions separately; see ``jobmeter.server.admission``.
    """

    rows: int = 0
    seconds: int = 0
    concurrent: int = 4
    exports: int = 2


class Allowance:
    """Allowance per minute for each key. Thread-safe."""

    def __init__(
        self, clock: Clock, per_minute: int, what: str, most: int = MOST_KEYS, shared: SharedRates | None = None
    ) -> None:
        """``what`` names the unit in a refusal, such as ``stored rows``. ``per_minute`` 0 means no limit.

        With ``shared`` the allowance is that of all servers together.
        """
        self._shared = shared
        self._clock = clock
        self._per_minute = per_minute
        self._what = what
        self._most = most
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    @property
    def must_wait(self) -> bool:
        """True if ``check`` has to ask the registry."""
        return _is_shared(self._shared) and self._per_minute > 0

    def check(self, key: str) -> None:
        """Raise ThrottledError if the key has nothing left."""
        if not self._per_minute:
            return
        per_second = self._per_minute / _MINUTE
        with self._lock:
            bucket = self._buckets.get(key)
            level = self._per_minute if bucket is None else bucket.fill(self._clock.monotonic())
        if level > 0 and self._shared is not None and not self._shared.is_alone:
            level = self._shared.read_level(self._name(key), per_second, self._per_minute)
        if level > 0:
            return
        wait = wait_ms(level, per_second)
        raise ThrottledError(f"the queries of a key may cost {self._per_minute} {self._what} a minute", wait)

    def spend(self, key: str, amount: float) -> None:
        """Charge the cost of a query."""
        if not self._per_minute or not amount:
            return
        now = self._clock.monotonic()
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = TokenBucket(self._per_minute / _MINUTE, self._per_minute, now)
            bucket.fill(now)
            bucket.level -= amount
            if self._shared is not None:
                self._shared.spend(self._name(key), bucket.per_second, bucket.burst, amount)
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)

    def _name(self, key: str) -> str:
        return f"{self._what}:{key}"


def _is_shared(shared: SharedRates | None) -> bool:
    return shared is not None and not shared.is_alone


def parse_budget(text: str) -> Budget:
    """Parse a budget like ``rows=2000000000,seconds=600,concurrent=4,exports=2``; every part is optional.

    Raises ConfigurationError.
    """
    values: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in Budget.__struct_fields__ or name in values or not _is_positive_integer(number):
            raise ConfigurationError(
                f"query budget {part.strip()[:64]!r} is not like rows=2000000000, seconds=600, concurrent=4"
            )
        values[name] = int(number)
    return Budget(**values)


def _is_positive_integer(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0
