"""Fair queueing over keys: the key with the least recent use is next."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice

import msgspec

from jobmeter.errors import ThrottledError
from jobmeter.model.time import Clock

WAITING = 512
"""Pieces of work of one key that may wait; more are refused."""
HALF_LIFE_SECONDS = 10.0
"""What a key used counts half after so long: a key that rests gains no more than a fresh start."""
KEYS = 10_000
"""Idle keys whose use is remembered; beyond that the one idle for longest is dropped."""


class Place(msgspec.Struct, eq=False):
    """A place in the queue; ``admit`` is called once when its turn has come, on any thread, and must not wait."""

    key: str
    admit: Callable[[], None]
    admitted: bool = False


class _Account(msgspec.Struct):
    """What a key used until ``at``, halved as time passes; when each of its pieces of work under way began."""

    used: float = 0.0
    at: float = 0.0
    began: list[float] = msgspec.field(default_factory=list)
    waiting: deque[Place] = msgspec.field(default_factory=deque)


class FairQueue:
    """At most ``slots`` pieces of work at one time, ``of_a_key`` of one key. Safe to use from any thread.

    Seconds count, those of work under way included: a key whose work takes long waits for those whose takes little.
    """

    def __init__(self, slots: int, of_a_key: int, clock: Clock) -> None:
        self._slots = slots
        self._of_a_key = of_a_key
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._backlog: dict[str, _Account] = {}

    def enter(self, key: str) -> bool:
        """Take a slot for work that can begin now; ``leave`` gives it back. False where it has to wait."""
        with self._lock:
            account = self._account(key)
            if account.waiting or self._running >= self._slots or len(account.began) >= self._of_a_key:
                return False
            self._begin(account)
            return True

    def wait(self, place: Place) -> None:
        """Wait for a slot. Raises ThrottledError when too many of the key do already."""
        with self._lock:
            account = self._account(place.key)
            if len(account.waiting) >= WAITING:
                raise ThrottledError(f"{WAITING} questions of this key wait already, try again", 1000)
            account.waiting.append(place)
            self._backlog[place.key] = account
            admitted = self._admitted()
        _call(admitted)

    def leave(self, key: str) -> None:
        """A piece of work is over."""
        with self._lock:
            account = self._account(key)
            now = self._clock.monotonic()
            account.used = self._used(account, now) - sum(now - began for began in account.began)
            # Which of the key's it was makes no difference: the time of all of them counts.
            account.used += now - account.began.pop(0)
            account.at = now
            self._running -= 1
            admitted = self._admitted()
        _call(admitted)

    def give_up(self, place: Place) -> None:
        """Stop waiting; a slot assigned meanwhile is released."""
        with self._lock:
            if not place.admitted:
                account = self._backlog[place.key]
                account.waiting.remove(place)
                if not account.waiting:
                    del self._backlog[place.key]
                return
        self.leave(place.key)

    def _account(self, key: str) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            self._forget_idle(len(self._accounts) + 1 - KEYS)
            account = self._accounts[key] = _Account(at=self._clock.monotonic())
        self._accounts.move_to_end(key)
        return account

    def _forget_idle(self, count: int) -> None:
        """Drop so many accounts of those idle for longest; none for a count of 0 or below."""
        if count > 0:
            idle = (key for key, one in self._accounts.items() if not (one.began or one.waiting))
            for key in list(islice(idle, count)):
                del self._accounts[key]

    def _begin(self, account: _Account) -> None:
        account.began.append(self._clock.monotonic())
        self._running += 1

    def _admitted(self) -> list[Place]:
        """Those whose turn has come, by what their keys used; slots are taken for them."""
        found: list[Place] = []
        now = self._clock.monotonic()
        while self._running < self._slots:
            ready = [one for one in self._backlog.values() if len(one.began) < self._of_a_key]
            if not ready:
                break
            account = min(ready, key=lambda one: (self._used(one, now), len(one.began)))
            place = account.waiting.popleft()
            if not account.waiting:
                del self._backlog[place.key]
            place.admitted = True
            self._begin(account)
            found.append(place)
        return found

    def _used(self, account: _Account, now: float) -> float:
        left: float = account.used * 0.5 ** ((now - account.at) / HALF_LIFE_SECONDS)
        return left + sum(now - began for began in account.began)


def _call(admitted: list[Place]) -> None:
    for place in admitted:
        place.admit()
