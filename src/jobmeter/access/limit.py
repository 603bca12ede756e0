"""How often an operation may be called: a token bucket for each (key, operation), or (account, operation)."""

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobmeter.errors import ConfigurationError, ThrottledError
from jobmeter.model.time import Clock

MOST_BUCKETS = 100_000
EVERY = "*"
"""The name under which the rate of all other operations stands."""
_RATE = re.compile(r"\s*([A-Za-z0-9:._-]+|\*)\s*=\s*(\d+(?:\.\d+)?)\s*(?::\s*(\d+))?\s*(?:/\s*(key|account))?\s*")


class Per(StrEnum):
    """Whose calls a rate counts together."""

    KEY = "key"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_second`` calls in the long run, ``burst`` of them at once.

    ``per`` None: as the operation's own rate has it, else of each key.
    """

    per_second: float
    burst: int
    per: Per | None = None


@dataclass(slots=True)
class _Bucket:
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

        ``account`` is the one that the key belongs to, for rates of a whole account. Raises ThrottledError, and counts
        nothing, when it is one too many.
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
