"""Whose question is next: one key may have so many under way at a time, and its further ones wait without a thread.

So the expensive questions of one key leave threads and connections to the others.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jobmeter.access.budget import Allowance, Budget
from jobmeter.errors import ThrottledError
from jobmeter.model.time import Clock
from jobmeter.query.spent import ACCOUNT, Spent
from jobmeter.server.work import Lane

R = TypeVar("R")

WAITING = 512
"""Questions of one key that may wait; more are refused."""
EXPORTS = 4
"""Raw exports at one time, of all keys together: each holds a connection to the engine until its end."""


def _drop(result: object) -> None:
    """What nobody waits for and holds nothing."""


def _unheard(rows: int, seconds: float) -> None:
    """What nobody counts."""


class Turn:
    """A question of a key that is under way. It is over at the end of its answer, which may be long."""

    def __init__(self, turns: "Turns", key: str, spent: Spent) -> None:
        self.begun = False
        self._turns = turns
        self._key = key
        self._spent = spent
        self._seconds = 0.0
        self._over = False

    def work(self, function: Callable[[], R]) -> R:
        """Call the function, on the account of this question."""
        self.begun = True
        began = self._turns.clock.monotonic()
        token = ACCOUNT.set(self._spent)
        try:
            return function()
        finally:
            ACCOUNT.reset(token)
            self._seconds += self._turns.clock.monotonic() - began

    def whole(self, function: Callable[[], R]) -> R:
        """As ``work``, where that is all of it."""
        try:
            return self.work(function)
        finally:
            self.end()

    def end(self) -> None:
        """Let the key's next question go. A no-op the second time."""
        if not self._over:
            self._over = True
            self._turns.ended(self._key, self._spent.rows, self._seconds)


@dataclass(frozen=True, slots=True)
class Waiting(Generic[R]):
    """A question that has to wait for its turn; ``go`` answers it, and ends the turn."""

    key: str
    go: Callable[[Turn], R]
    spent: Spent


class Turns:
    """Questions under way, by key. Safe to use from any thread; ``wait`` belongs to an event loop's."""

    def __init__(self, clock: Clock, budget: Budget, told: Callable[[int, float], None] = _unheard) -> None:
        """``told`` gets the stored rows and the seconds of each question that is over."""
        self.clock = clock
        self._told = told
        self._most = budget.concurrent
        self._rows = Allowance(clock, budget.rows, "stored rows")
        self._seconds = Allowance(clock, budget.seconds, "seconds")
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[_Place]] = {}

    def check(self, key: str) -> None:
        """Raises ThrottledError when the key has spent what it may spend in a minute."""
        self._rows.check(key)
        self._seconds.check(key)

    def account(self) -> Spent:
        """The account of a request that begins now."""
        return Spent(self.clock.monotonic())

    def recall(self, key: str, spent: Spent, function: Callable[[], R | None]) -> R | None:
        """Call a function that answers from memory, without a turn. Where it gives None, its cost is counted later."""
        began = self.clock.monotonic()
        token = ACCOUNT.set(spent)
        over = True
        try:
            found = function()
            over = found is not None
            return found
        finally:
            ACCOUNT.reset(token)
            if over:
                self._count(key, spent.rows, self.clock.monotonic() - began)

    def begin(self, key: str, spent: Spent, go: Callable[[Turn], R]) -> R | Waiting[R]:
        """What ``go`` gives, where it is the key's turn; else what is to be waited for."""
        with self._lock:
            if self._running.get(key, 0) >= self._most:
                return Waiting(key, go, spent)
            self._running[key] = self._running.get(key, 0) + 1
        return go(Turn(self, key, spent))

    async def wait(self, key: str, spent: Spent) -> Turn:
        """The key's next turn. Raises ThrottledError when too many wait already."""
        place = _Place(asyncio.get_running_loop())
        with self._lock:
            if self._running.get(key, 0) < self._most:
                self._running[key] = self._running.get(key, 0) + 1
                return Turn(self, key, spent)
            queue = self._waiting.setdefault(key, deque())
            if len(queue) >= WAITING:
                raise ThrottledError(f"this key has {WAITING + self._most} questions under way, try again", 1000)
            queue.append(place)
        try:
            await place.turn
        except asyncio.CancelledError:
            self._leave(key, place)
            raise
        return Turn(self, key, spent)

    def ended(self, key: str, rows: int, seconds: float) -> None:
        """A question is over that cost so much; whoever waits longest is next."""
        self._count(key, rows, seconds)
        with self._lock:
            self._hand_on(key)

    def _count(self, key: str, rows: int, seconds: float) -> None:
        self._rows.spend(key, rows)
        self._seconds.spend(key, seconds)
        self._told(rows, seconds)

    def _hand_on(self, key: str) -> None:
        queue = self._waiting.get(key)
        if queue:
            queue.popleft().call()
            if not queue:
                del self._waiting[key]
            return
        left = self._running[key] - 1
        if left:
            self._running[key] = left
        else:
            del self._running[key]

    def _leave(self, key: str, place: "_Place") -> None:
        with self._lock:
            if place.called:
                self._hand_on(key)
                return
            queue = self._waiting[key]
            queue.remove(place)
            if not queue:
                del self._waiting[key]


async def in_turn(
    turns: Turns, lane: Lane, work: Callable[[], R | Waiting[R]], unwanted: Callable[[R | Waiting[R]], None] = _drop
) -> R:
    """Work on the lane, and when it has to wait for its turn, go on there when that comes.

    ``unwanted`` gets what came of it when the caller was cancelled meanwhile.
    """
    result = await lane.kept(work, unwanted)
    if not isinstance(result, Waiting):
        return result
    turn = await turns.wait(result.key, result.spent)
    go = result.go
    try:
        return await lane.kept(lambda: go(turn), unwanted)
    finally:
        if not turn.begun:
            turn.end()


class _Place:
    """A place in a queue. Its turn comes on the event loop that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turn: asyncio.Future[None] = loop.create_future()
        self.called = False
        self._loop = loop

    def call(self) -> None:
        self.called = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: None if self.turn.done() else self.turn.set_result(None))


class Seats:
    """Raw exports under way: few at one time, fewer of one key. Safe to use from any thread."""

    def __init__(self, of_a_key: int, most: int = EXPORTS) -> None:
        self._of_a_key = of_a_key
        self._most = most
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}

    def take(self, key: str) -> Callable[[], None]:
        """Take one; gives what gives it back, once. Raises ThrottledError when none is free."""
        with self._lock:
            own = self._taken.get(key, 0)
            if own >= self._of_a_key:
                raise ThrottledError(f"this key has {own} raw exports under way, try again", 2000)
            if sum(self._taken.values()) >= self._most:
                raise ThrottledError(f"the server has {self._most} raw exports under way, try again", 2000)
            self._taken[key] = own + 1
        given = iter((key,))

        def give_back() -> None:
            with self._lock:
                for name in given:
                    self._taken[name] -= 1
                    if not self._taken[name]:
                        del self._taken[name]

        return give_back
