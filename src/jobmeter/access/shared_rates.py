"""Rates and query budgets of several servers together, in buckets of the registry."""

import threading
from collections.abc import Sequence
from contextlib import suppress

from jobmeter.errors import UnavailableError
from jobmeter.model.time import Clock
from jobmeter.model.token_bucket import wait_ms
from jobmeter.registry.batched import Batched
from jobmeter.registry.rates import Draw, GrantedTokens, RateTable

FLUSH_SECONDS = 0.25
"""Interval in seconds at which a server reports the costs of its questions."""
_FORGET_SECONDS = 60.0


class SharedRates:
    """Buckets that all servers share while there are several. Thread-safe.

    While the registry does not answer, every request is granted here: each server then limits only its own calls.
    """

    def __init__(self, clock: Clock, table: RateTable) -> None:
        """Other servers may grant calls, until ``use_alone`` is called."""
        self.is_alone = False
        """True while no other server grants calls: the buckets of this process are enough."""
        self._clock = clock
        self._table = table
        self._lock = threading.Lock()
        self._unsent: dict[str, Draw] = {}
        self._draw: Batched[Draw, GrantedTokens] = Batched(self._drawn)
        self._forget_at = clock.monotonic() + _FORGET_SECONDS

    def use_alone(self, alone: bool) -> None:
        """Use the registry only while there are other servers. See ``EngineUse.watch``."""
        self.is_alone = alone

    def take(self, name: str, per_second: float, burst: float) -> int:
        """Take a token. Return 0 if it was granted, else the time in milliseconds until there is one."""
        with suppress(UnavailableError):
            granted, level = self._draw(Draw(name, per_second, burst, wanted=1))
            return 0 if granted else wait_ms(level, per_second)
        return 0

    def read_level(self, name: str, per_second: float, burst: float) -> float:
        """Return the level of a bucket; the burst while the registry does not answer."""
        with suppress(UnavailableError):
            self.flush()
            return self._draw(Draw(name, per_second, burst)).level
        return burst

    def spend(self, name: str, per_second: float, burst: float, amount: float) -> None:
        """Charge a bucket with the next ``flush``. Never waits."""
        if self.is_alone:
            return
        with self._lock:
            before = self._unsent.get(name)
            self._unsent[name] = Draw(name, per_second, burst, spent=amount + (before.spent if before else 0))

    def flush(self) -> None:
        """Charge the buckets. Raises UnavailableError if the registry does not answer; the next call tries again."""
        with self._lock:
            unsent, self._unsent = self._unsent, {}
        if not unsent:
            return
        try:
            self._table.draw(unsent.values())
        except UnavailableError:
            for one in unsent.values():
                self.spend(one.name, one.per_second, one.burst, one.spent)
            raise

    def work(self) -> None:
        """Charge the buckets, and delete full ones once a minute."""
        self.flush()
        if not self.is_alone and self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + _FORGET_SECONDS
            self._table.forget_full()

    def _drawn(self, draws: Sequence[Draw]) -> list[GrantedTokens]:
        """Draw for several calls. The earliest calls get the tokens that a bucket grants."""
        together: dict[str, Draw] = {}
        for one in draws:
            before = together.get(one.name)
            wanted = one.wanted + (before.wanted if before else 0)
            together[one.name] = Draw(one.name, one.per_second, one.burst, wanted)
        found = self._table.draw(together.values())
        left = {name: drawn.granted for name, drawn in found.items()}
        results = []
        for one in draws:
            granted = min(one.wanted, left[one.name])
            left[one.name] -= granted
            results.append(GrantedTokens(granted, found[one.name].level))
        return results
