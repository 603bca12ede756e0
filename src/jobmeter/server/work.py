"""Where blocking work runs: a bounded number of threads and a bounded queue before them."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from jobmeter.errors import ThrottledError

T = TypeVar("T")


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
        self, function: Callable[[], T], drop: Callable[[T], object] | None = None, *, admitted: bool = False
    ) -> T:
        """Call the function on a thread of the lane.

        Cancelling takes a call that still waits out of the queue; one that runs ends by its own time budget, and
        ``drop`` gets what it gives. Raises ThrottledError when too many wait already, unless it was ``admitted``.
        """
        if not admitted and self._busy >= self._most:
            raise ThrottledError(f"the server has {self._busy} requests of this kind under way, try again", 1000)
        future = self.submit(function)
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


def _drop(done: "Future[T]", drop: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        drop(done.result())
