"""The end of the process: reported by a signal, and not to be blocked by anything.

A thread may wait for an engine, a lock or a client that never comes back; joining it, here or at the interpreter's own
exit, would wait as long. So a thread that waits for nothing else ends the process when the grace time is over, and the
system's alarm clock does should that thread not get its turn. What was acknowledged is durable before its answer:
nothing of it is lost.
"""

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Self

_log = logging.getLogger("jobmeter.server")

OVERDUE_STATUS = 1
"""Exit status of a process whose grace time was over before it was done."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ALARM_SECONDS = 5.0
"""How long after the grace time the system ends the process, whatever its interpreter does."""
_ANSWERING = 0.75
"""The part of the grace time that requests under way have; the rest is for closing."""


class Stopping:
    """SIGTERM and SIGINT begin the end; a second one ends the process now. A context of the main thread.

    Safe to use from any thread. Leaving the context begins the end too, and bounds the interpreter's own exit.
    """

    def __init__(
        self, grace_seconds: float, under_way: Callable[[], str] = str, leave: Callable[[int], Any] = os._exit
    ) -> None:
        """``under_way`` describes for the log what still runs when the time is over."""
        self.under_way = under_way
        self._grace_seconds = grace_seconds
        self._leave = leave
        self._lock = threading.Lock()
        self._begun = False
        self._callbacks: list[Callable[[], object]] = []
        self._deadline = float("inf")
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="jobmeter-stopping", daemon=True).start()
        # Whichever thread the system interrupts writes the signal's number there. A handler in Python would wait for
        # the main thread, which may wait for something else.
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin the end; a no-op the second time."""
        os.write(self._writing, b"\0")

    def then(self, callback: Callable[[], object]) -> None:
        """Call it when the end begins, on another thread; now, if it has begun."""
        with self._lock:
            if not self._begun:
                self._callbacks.append(callback)
                return
        callback()

    def seconds_left(self) -> float:
        """How long requests under way may still take; endless before the end began."""
        return max(0.0, self._deadline - (1 - _ANSWERING) * self._grace_seconds - time.monotonic())

    def _watch(self) -> None:
        signals = [number for number in os.read(self._reading, 1) if number]
        self._deadline = time.monotonic() + self._grace_seconds
        signal.setitimer(signal.ITIMER_REAL, self._grace_seconds + _ALARM_SECONDS)
        with self._lock:
            self._begun = True
        for callback in self._callbacks:
            callback()
        while (left := self._deadline - time.monotonic()) > 0:
            if select.select([self._reading], [], [], left)[0]:
                signals += [number for number in os.read(self._reading, 1) if number]
                if len(signals) > 1:
                    self._leave(128 + signals[-1])
        self._overdue()

    def _overdue(self) -> None:
        threads = sorted(one.name for one in threading.enumerate() if one is not threading.current_thread())
        _log.warning(
            "not done %g seconds after the signal to stop, ending now: %s; threads %s. Acknowledged data is durable.",
            self._grace_seconds,
            self.under_way() or "nothing under way",
            ", ".join(threads),
        )
        logging.shutdown()
        self._leave(OVERDUE_STATUS)
