"""Threads that answer, and whose question is next: expensive questions of some keys leave room for those of others.

A question begins as a short one. One that turns out to read much is stopped and waits among the long ones, of which
few are under way at a time: however many there are, short ones find a thread, a connection and the processor. Among
either kind the key with the least recent use is next. Waiting work occupies no thread.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Self, TypeVar

import msgspec

from jobmeter.access.limit import Allowance, Budget
from jobmeter.errors import LongQuestionError, ThrottledError
from jobmeter.model.time import Clock
from jobmeter.query.meter import ACCOUNT, Spent
from jobmeter.server.fair import FairQueue, Place

R = TypeVar("R")
T = TypeVar("T")

SHORT, LONG = 12, 4
"""Questions of either kind under way at one time, of all keys together."""
SHORT_ROWS = 50_000
"""Stored rows that a short question may read; one that reads more is a long one."""
EXPORTS = 4
"""Raw exports at one time, of all keys together: each occupies a connection to the engine until its end."""


class Lane:
    """Threads for one kind of work. ``run`` belongs to the event loop's thread; ``close`` to any."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        """``waiting`` is how many calls may wait for a thread before more are refused."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"jobmeter-{name}")
        self._most = threads + waiting
        self._busy = 0
        self.name = name

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._busy

    async def run(
        self,
        function: Callable[[], T],
        drop: Callable[[T], object] | None = None,
        *,
        admitted: bool = False,
        skipped: Callable[[], object] = lambda: None,
    ) -> T:
        """Call the function on a thread of the lane; ``skipped`` where it is never called after all.

        Cancelling takes a call that still waits out of the queue; one that runs ends by its own time budget, and
        ``drop`` gets what it gives. Raises ThrottledError when too many wait already, unless it
        was ``admitted``.
        """
        if not admitted and self._busy >= self._most:
            raise ThrottledError(f"the server has {self._busy} requests of this kind under way, try again", 1000)
        try:
            future = self.submit(function)
        except RuntimeError:  # the lane was closed
            skipped()
            raise
        # The future alone says whether the thread has begun: no flag that the function sets does so in time.
        future.add_done_callback(lambda done: skipped() if done.cancelled() else None)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if drop is not None:
                future.add_done_callback(lambda done: _drop(done, drop))
            raise

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Call the function on a thread of the lane when one is free; it is never refused."""
        context = contextvars.copy_context()
        future = self._pool.submit(context.run, function)
        self._busy += 1
        loop = asyncio.get_running_loop()
        # Counted down when the thread is free again, which is later than a cancelled caller thinks.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done) if not loop.is_closed() else None)
        return future

    def close(self) -> None:
        """Let running calls end and drop those that wait."""
        self._pool.shutdown(cancel_futures=True)

    def _done(self) -> None:
        self._busy -= 1


class Slot:
    """A question of a key that is under way. It is over at the end of its answer, which may be long."""

    def __init__(self, admission: "Admission", waiting: "Waiting[Any]") -> None:
        self._admission = admission
        self._waiting = waiting
        self._seconds = 0.0
        self._over = False

    def work(self, function: Callable[[], R]) -> R:
        """Call the function, on the account of this question."""
        began = self._admission.clock.monotonic()
        token = ACCOUNT.set(self._waiting.spent)
        try:
            return function()
        finally:
            ACCOUNT.reset(token)
            self._seconds += self._admission.clock.monotonic() - began

    def whole(self, function: Callable[[], R]) -> R:
        """As ``work``, where that is all of it."""
        try:
            return self.work(function)
        finally:
            self.end()

    def lasting(self) -> None:
        """What is left of it is bounded otherwise: it may read what it likes."""
        self._waiting.spent.short_rows = None

    def end(self) -> None:
        """Charge for the question, and let the next one go. A no-op the second time."""
        if not self._over:
            self._admission.count(self._waiting.key, self._waiting.spent, self._seconds)
        self.give_up()

    def give_up(self) -> None:
        """Let the next question go: this one did not begin. A no-op once it is over."""
        if not self._over:
            self._over = True
            self._waiting.queue.leave(self._waiting.key)


class Waiting(msgspec.Struct, Generic[R], frozen=True):
    """A question that has to wait for its turn in the queue; ``go`` answers it, and ends the turn."""

    queue: FairQueue
    key: str
    go: Callable[[Slot], R]
    spent: Spent


class MemoryAttempt:
    """A block that tries a question from memory. Its cost is counted at its end.

    Where ``answered`` is False then the question goes on on a worker, and its cost is counted there.
    """

    __slots__ = ("_admission", "_began", "_key", "_spent", "_token", "answered")

    def __init__(self, admission: "Admission", key: str, spent: Spent) -> None:
        self._admission = admission
        self._key = key
        self._spent = spent
        self.answered = True

    def __enter__(self) -> Self:
        """Open the account of the question."""
        self._began = self._admission.clock.monotonic()
        self._token = ACCOUNT.set(self._spent)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Close it."""
        ACCOUNT.reset(self._token)
        if self.answered or failed is not None:
            self._admission.count(self._key, self._spent, self._admission.clock.monotonic() - self._began)


class Admission:
    """Questions under way and waiting, by key. Safe to use from any thread; ``wait`` belongs to an event loop's."""

    def __init__(self, clock: Clock, budget: Budget, report: Callable[[int, float], object] = lambda *_: None) -> None:
        """``report`` gets the stored rows and the seconds of each question that is over."""
        self.clock = clock
        self._report = report
        self._rows = Allowance(clock, budget.rows, "stored rows")
        self._seconds = Allowance(clock, budget.seconds, "seconds")
        self._short = FairQueue(SHORT, budget.concurrent, clock)
        self._long = FairQueue(LONG, budget.concurrent, clock)

    def check(self, key: str) -> None:
        """Raises ThrottledError when the key has spent what it may spend in a minute."""
        self._rows.check(key)
        self._seconds.check(key)

    def account(self) -> Spent:
        """The account of a request that begins now."""
        return Spent(self.clock.monotonic())

    def from_memory(self, key: str, spent: Spent) -> "MemoryAttempt":
        """The block in which a question is tried from memory, without a turn."""
        return MemoryAttempt(self, key, spent)

    def begin(self, key: str, spent: Spent, go: Callable[[Slot], R]) -> R | Waiting[R]:
        """What ``go`` gives, where the question can be answered now; else what is to be waited for."""
        waiting = Waiting(self._short, key, go, spent)
        if not self._short.enter(key):
            return waiting
        return self.go_on(waiting, self._turn(waiting))

    def go_on(self, waiting: Waiting[R], turn: Slot) -> R | Waiting[R]:
        """What the question gives whose turn has come; what is to be waited for, where it turns out to be long."""
        try:
            return waiting.go(turn)
        except LongQuestionError:
            return Waiting(self._long, waiting.key, waiting.go, waiting.spent)

    async def wait(self, waiting: Waiting[R]) -> Slot:
        """The question's turn. Raises ThrottledError when too many of its key wait already."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        place = Place(waiting.key, lambda: _resolve(loop, turn))
        waiting.queue.wait(place)
        try:
            await turn
        except asyncio.CancelledError:
            waiting.queue.give_up(place)
            raise
        return self._turn(waiting)

    def _turn(self, waiting: Waiting[R]) -> Slot:
        # The time that it waited is not its own.
        waiting.spent.since = self.clock.monotonic()
        waiting.spent.short_rows = SHORT_ROWS if waiting.queue is self._short else None
        return Slot(self, waiting)

    def count(self, key: str, spent: Spent, seconds: float) -> None:
        """Charge the key for what a question cost since it was charged last."""
        rows, spent.counted = spent.rows - spent.counted, spent.rows
        self._rows.spend(key, rows)
        self._seconds.spend(key, seconds)
        self._report(rows, seconds)


async def admitted_run(
    admission: Admission,
    lane: Lane,
    work: Callable[[], R | Waiting[R]],
    unwanted: Callable[[R | Waiting[R]], object] = lambda _: None,
    during: Callable[[Callable[[], R | Waiting[R]]], R | Waiting[R]] = lambda part: part(),
) -> R:
    """Work on the lane, and each time it has to wait for its turn, go on there when that comes.

    ``unwanted`` gets what came of it when the caller was cancelled meanwhile: a thread works to its end, and its key
    pays for that. ``during`` calls each part of the work, on its thread.
    """
    result = await lane.run(partial(during, work), unwanted)
    while isinstance(result, Waiting):
        turn = await admission.wait(result)
        part = partial(during, partial(admission.go_on, result, turn))
        result = await lane.run(part, unwanted, admitted=True, skipped=turn.give_up)
    return result


def _drop(done: "Future[T]", drop: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        drop(done.result())


def _resolve(loop: asyncio.AbstractEventLoop, turn: "asyncio.Future[None]") -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if turn.done() else turn.set_result(None))


class ConcurrencyLimiter:
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
