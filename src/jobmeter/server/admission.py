"""Admission control: worker threads, and fair queues that decide which question runs next.

Every question starts in the short queue. A question that reads more than ``SHORT_ROWS`` is stopped and moves to the
long queue. Few long questions run at a time, so short questions always find a thread, a connection and a processor. In
each queue the key with the least recent use comes next. A queued question occupies no thread.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Self, TypeVar

import msgspec

from jobmeter.access.limit import Allowance, Budget
from jobmeter.access.shared_rates import SharedRates
from jobmeter.errors import LongQuestionError, ThrottledError
from jobmeter.model.time import Clock
from jobmeter.query.meter import ACCOUNT, QueryCost
from jobmeter.server.fair import FairQueue, QueueEntry

R = TypeVar("R")
T = TypeVar("T")

SHORT, LONG = 12, 4
"""Short and long questions that may run at one time, over all keys."""
SHORT_ROWS = 50_000
"""Stored rows that a short question may read. A question that reads more becomes a long one."""
EXPORTS = 4
"""Raw exports that may run at one time, over all keys. Each occupies a connection to the engine until its end."""


class Lane:
    """Thread pool for one kind of work. Call ``run`` on the event loop's thread; ``close`` on any thread."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        """Start a pool in which at most ``waiting`` calls queue for a thread; further calls are refused."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"jobmeter-{name}")
        self.most = threads + waiting
        self._busy = 0
        self.name = name

    @property
    def busy(self) -> int:
        """Number of calls that run or wait."""
        return self._busy

    async def run(
        self,
        function: Callable[[], T],
        drop: Callable[[T], object] | None = None,
        *,
        admitted: bool = False,
        skipped: Callable[[], object] = lambda: None,
    ) -> T:
        """Call the function on a thread of the lane; call ``skipped`` instead if the function never starts.

        Cancelling removes a call that still waits from the queue. A running call ends by its own time budget, and
        ``drop`` gets its result. Raises ThrottledError when too many calls wait already, unless the call was
        ``admitted``.
        """
        if not admitted and self._busy >= self.most:
            raise ThrottledError(f"the server has {self._busy} requests of this kind under way, try again", 1000)
        try:
            future = self.submit(function)
        except RuntimeError:  # the lane was closed
            skipped()
            raise
        # Only the future knows whether the thread has begun: a flag set by the function would come too late.
        future.add_done_callback(lambda done: skipped() if done.cancelled() else None)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if drop is not None:
                future.add_done_callback(lambda done: _drop(done, drop))
            raise

    def submit(self, function: Callable[[], T]) -> "Future[T]":
        """Call the function on a thread of the lane when one is free. Never refuses."""
        context = contextvars.copy_context()
        future = self._pool.submit(context.run, function)
        self._busy += 1
        loop = asyncio.get_running_loop()
        # Counted down when the thread is free again, which may be after its caller was cancelled.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release) if not loop.is_closed() else None)
        return future

    def close(self) -> None:
        """Let running calls end and drop the waiting calls."""
        self._pool.shutdown(cancel_futures=True)

    def _release(self) -> None:
        self._busy -= 1


class Ticket:
    """Permission to run one question. It ends with the question's answer, which may take long to send."""

    def __init__(self, admission: "Admission", waiting: "QueuedQuestion[Any]") -> None:
        self._admission = admission
        self._waiting = waiting
        self._seconds = 0.0
        self._over = False

    def work(self, function: Callable[[], R]) -> R:
        """Call the function and charge its cost to this question."""
        began = self._admission.clock.monotonic()
        token = ACCOUNT.set(self._waiting.spent)
        try:
            return function()
        finally:
            ACCOUNT.reset(token)
            self._seconds += self._admission.clock.monotonic() - began

    def run_and_end(self, function: Callable[[], R]) -> R:
        """Call the function, charge its cost and end the ticket."""
        try:
            return self.work(function)
        finally:
            self.end()

    def lift_row_limit(self) -> None:
        """Lift the row limit: the rest of the question's work is limited by its date range or by other bounds."""
        self._waiting.spent.short_rows = None

    def end(self) -> None:
        """Charge for the question and admit the next one. A second call does nothing."""
        if not self._over:
            self._admission.count(self._waiting.key, self._waiting.spent, self._seconds)
        self.give_up()

    def give_up(self) -> None:
        """Admit the next question without charging. Does nothing after the end."""
        if not self._over:
            self._over = True
            self._waiting.queue.leave(self._waiting.key)


class QueuedQuestion(msgspec.Struct, Generic[R], frozen=True):
    """Question that waits in the queue. ``run`` answers it and ends its ticket."""

    queue: FairQueue
    key: str
    run: Callable[[Ticket], R]
    spent: QueryCost


class MemoryAttempt:
    """Context manager that tries a question from memory and charges its cost at the end.

    With ``answered`` False the question continues on a worker thread, which charges the cost.
    """

    __slots__ = ("_admission", "_began", "_key", "_spent", "_token", "answered")

    def __init__(self, admission: "Admission", key: str, spent: QueryCost) -> None:
        self._admission = admission
        self._key = key
        self._spent = spent
        self.answered = True

    def __enter__(self) -> Self:
        """Open the question's account."""
        self._began = self._admission.clock.monotonic()
        self._token = ACCOUNT.set(self._spent)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Close the account. Charge the cost unless the question continues on a worker thread."""
        ACCOUNT.reset(self._token)
        if self.answered or failed is not None:
            self._admission.count(self._key, self._spent, self._admission.clock.monotonic() - self._began)


class Admission:
    """Running and queued questions by key. Thread-safe, except ``wait``, which belongs to the event loop."""

    def __init__(
        self,
        clock: Clock,
        budget: Budget,
        report: Callable[[int, float], object] = lambda *_: None,
        shared: SharedRates | None = None,
    ) -> None:
        """``report`` gets the stored rows and the seconds of each finished question.

        With ``shared`` all servers share the rows and seconds of the budget.
        """
        self.clock = clock
        self._report = report
        self._rows = Allowance(clock, budget.rows, "stored rows", shared=shared)
        self._seconds = Allowance(clock, budget.seconds, "seconds", shared=shared)
        self.short = FairQueue(SHORT, budget.concurrent, clock)
        self.long = FairQueue(LONG, budget.concurrent, clock)

    @property
    def must_wait(self) -> bool:
        """True if ``check`` has to ask the registry."""
        return self._rows.must_wait or self._seconds.must_wait

    def check(self, key: str) -> None:
        """Raise ThrottledError if the key has used up its budget for the current minute."""
        self._rows.check(key)
        self._seconds.check(key)

    def open_account(self) -> QueryCost:
        """Open a cost account for a request that begins now."""
        return QueryCost(self.clock.monotonic())

    def attempt_from_memory(self, key: str, spent: QueryCost) -> "MemoryAttempt":
        """Return a context manager that tries a question from memory, outside the queues."""
        return MemoryAttempt(self, key, spent)

    def begin(self, key: str, spent: QueryCost, run: Callable[[Ticket], R]) -> R | QueuedQuestion[R]:
        """Answer the question now if the queue admits it; else return it for ``wait``."""
        waiting = QueuedQuestion(self.short, key, run, spent)
        if not self.short.enter(key):
            return waiting
        return self.run_queued(waiting, self._ticket(waiting))

    def run_queued(self, waiting: QueuedQuestion[R], ticket: Ticket) -> R | QueuedQuestion[R]:
        """Answer an admitted question. Returns it for the long queue when it turns out to be long."""
        try:
            return waiting.run(ticket)
        except LongQuestionError:
            return QueuedQuestion(self.long, waiting.key, waiting.run, waiting.spent)

    async def wait(self, waiting: QueuedQuestion[R]) -> Ticket:
        """Wait in the queue until the question is admitted.

        Raises ThrottledError when its key has too many in the queue.
        """
        loop = asyncio.get_running_loop()
        admitted: asyncio.Future[None] = loop.create_future()
        entry = QueueEntry(waiting.key, lambda: _resolve(loop, admitted))
        waiting.queue.wait(entry)
        try:
            await admitted
        except asyncio.CancelledError:
            waiting.queue.give_up(entry)
            raise
        return self._ticket(waiting)

    def _ticket(self, waiting: QueuedQuestion[R]) -> Ticket:
        # The time in the queue does not count as use.
        waiting.spent.since = self.clock.monotonic()
        waiting.spent.short_rows = SHORT_ROWS if waiting.queue is self.short else None
        return Ticket(self, waiting)

    def count(self, key: str, spent: QueryCost, seconds: float) -> None:
        """Charge the key for the question's cost since the last charge."""
        rows, spent.counted = spent.rows - spent.counted, spent.rows
        self.charge(key, rows, seconds)

    def charge(self, key: str, rows: int, seconds: float) -> None:
        """Charge the key for stored rows and seconds of a question."""
        self._rows.spend(key, rows)
        self._seconds.spend(key, seconds)
        self._report(rows, seconds)


async def run_admitted(
    admission: Admission,
    lane: Lane,
    work: Callable[[], R | QueuedQuestion[R]],
    unwanted: Callable[[R | QueuedQuestion[R]], object] = lambda _: None,
    during: Callable[[Callable[[], R | QueuedQuestion[R]]], R | QueuedQuestion[R]] = lambda part: part(),
) -> R:
    """Run the work on the lane; each time it has to queue, wait and continue when it is admitted.

    ``unwanted`` gets the result if the caller was cancelled meanwhile: the thread still finishes the work, and the key
    is charged. ``during`` wraps each part of the work, on the worker's thread.
    """
    result = await lane.run(partial(during, work), unwanted)
    while isinstance(result, QueuedQuestion):
        ticket = await admission.wait(result)
        part = partial(during, partial(admission.run_queued, result, ticket))
        result = await lane.run(part, unwanted, admitted=True, skipped=ticket.give_up)
    return result


def _drop(done: "Future[T]", drop: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        drop(done.result())


def _resolve(loop: asyncio.AbstractEventLoop, admitted: "asyncio.Future[None]") -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if admitted.done() else admitted.set_result(None))


class ConcurrencyLimiter:
    """Limit on concurrent raw exports: a few in all, fewer for each key. Does not block. Thread-safe."""

    def __init__(self, of_a_key: int, clock: Clock, most: int = EXPORTS) -> None:
        self._of_a_key = of_a_key
        self._most = most
        self._queue = FairQueue(most, of_a_key, clock)

    def take(self, key: str) -> Callable[[], None]:
        """Take a permit and return the function that releases it. Raises ThrottledError when none is free."""
        if not self._queue.enter(key):
            own = self._queue.count_running(key)
            of_whom = f"this key has {own}" if own >= self._of_a_key else f"the server has {self._most}"
            raise ThrottledError(f"{of_whom} raw exports under way, try again", 2000)
        given = iter((key,))

        def give_back() -> None:
            for name in given:
                self._queue.leave(name)

        return give_back
