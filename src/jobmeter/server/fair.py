"""Fair queueing over keys: the key with the least recent use is next."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice

import msgspec

from jobmeter.errors import ThrottledError
from jobmeter.model.time import Clock

WAITING = 512
"""Queued questions of one key; more are refused."""
HALF_LIFE_SECONDS = 10.0
"""Half-life of a key's recorded use in seconds. A key that rests gains no more than a fresh start."""
KEYS = 10_000
"""Idle keys whose use is remembered. Beyond that the key idle for longest is dropped."""


class QueueEntry(msgspec.Struct, eq=False):
    """Entry of the queue. ``admit`` is called once on admission, on any thread, and must not block."""

    key: str
    admit: Callable[[], None]
    admitted: bool = False


class _Account(msgspec.Struct):
    """Use of a key until ``at``, which decays over time, and the starts of its running work."""

    used: float = 0.0
    at: float = 0.0
    began: list[float] = msgspec.field(default_factory=list)
    waiting: deque[QueueEntry] = msgspec.field(default_factory=deque)


class FairQueue:
    """Fair queue with at most ``slots`` running pieces of work, and ``of_a_key`` per key. Thread-safe.

    Use is measured in seconds, including work that still runs. A key with slow work waits for keys with quick work.
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
        """Take a slot for work that can begin now; ``leave`` releases it. False if the work has to wait."""
        with self._lock:
            account = self._account(key)
            if account.waiting or self._running >= self._slots or len(account.began) >= self._of_a_key:
                return False
            self._begin(account)
            return True

    def count_running(self, key: str) -> int:
        """Return the number of running pieces of work of a key."""
        with self._lock:
            return len(self._account(key).began)

    @property
    def slots_in_use(self) -> int:
        """Number of slots in use."""
        return self._running

    @property
    def waiting(self) -> int:
        """Number of pieces of work that wait."""
        with self._lock:
            return sum(len(account.waiting) for account in self._backlog.values())

    def wait(self, entry: QueueEntry) -> None:
        """Wait for a slot. Raises ThrottledError when too many pieces of work of the key wait already."""
        with self._lock:
            account = self._account(entry.key)
            if len(account.waiting) >= WAITING:
                raise ThrottledError(f"{WAITING} questions of this key are already queued, try again", 1000)
            account.waiting.append(entry)
            self._backlog[entry.key] = account
            admitted = self._admit_waiting()
        _call(admitted)

    def leave(self, key: str) -> None:
        """Release the slot of a finished piece of work."""
        with self._lock:
            account = self._account(key)
            now = self._clock.monotonic()
            account.used = self._compute_use(account, now) - sum(now - began for began in account.began)
            # It does not matter which of the key's starts is removed: their times are summed.
            account.used += now - account.began.pop(0)
            account.at = now
            self._running -= 1
            admitted = self._admit_waiting()
        _call(admitted)

    def give_up(self, entry: QueueEntry) -> None:
        """Stop waiting; release a slot that was assigned meanwhile."""
        with self._lock:
            if not entry.admitted:
                account = self._backlog[entry.key]
                account.waiting.remove(entry)
                if not account.waiting:
                    del self._backlog[entry.key]
                return
        self.leave(entry.key)

    def _account(self, key: str) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            self._forget_idle(len(self._accounts) + 1 - KEYS)
            account = self._accounts[key] = _Account(at=self._clock.monotonic())
        self._accounts.move_to_end(key)
        return account

    def _forget_idle(self, count: int) -> None:
        """Drop the ``count`` accounts that were idle for longest; no account for a count of 0 or below."""
        if count > 0:
            idle = (key for key, one in self._accounts.items() if not (one.began or one.waiting))
            for key in list(islice(idle, count)):
                del self._accounts[key]

    def _begin(self, account: _Account) -> None:
        account.began.append(self._clock.monotonic())
        self._running += 1

    def _admit_waiting(self) -> list[QueueEntry]:
        """Admit waiting work, the least used keys first, and take slots for it."""
        found: list[QueueEntry] = []
        now = self._clock.monotonic()
        while self._running < self._slots:
            ready = [one for one in self._backlog.values() if len(one.began) < self._of_a_key]
            if not ready:
                break
            account = min(ready, key=lambda one: (self._compute_use(one, now), len(one.began)))
            entry = account.waiting.popleft()
            if not account.waiting:
                del self._backlog[entry.key]
            entry.admitted = True
            self._begin(account)
            found.append(entry)
        return found

    def _compute_use(self, account: _Account, now: float) -> float:
        left: float = account.used * 0.5 ** ((now - account.at) / HALF_LIFE_SECONDS)
        return left + sum(now - began for began in account.began)


def _call(admitted: list[QueueEntry]) -> None:
    for entry in admitted:
        entry.admit()
