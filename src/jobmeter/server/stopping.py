"""End of the process: started by a signal, and never blocked.

A thread may wait for an engine, a lock or a client that never returns. Joining it, here or at the interpreter's own
exit, would wait as long. So a dedicated thread ends the process after the grace time, and the system's alarm clock does
if that thread is not scheduled. Acknowledged data is already durable, so nothing is lost.
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
"""Exit status of a process that exceeded its grace time."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ALARM_SECONDS = 5.0
"""Seconds after the grace time until the system ends the process, whatever its interpreter does."""
_ANSWERING = 0.75
"""Share of the grace time for running requests; the rest is for closing."""


class Stopping:
    """Context of the main thread in which SIGTERM and SIGINT begin the stop; a second signal ends the process now.

    Thread-safe. Leaving the context begins the stop too, and bounds the interpreter's own exit.
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
        # The system writes the signal's number there from any thread. A Python handler would wait for the main thread,
        # which may be blocked.
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin the stop. A second call does nothing."""
        os.write(self._writing, b"\0")

    def call_at_stop(self, callback: Callable[[], object]) -> None:
        """Call the function on another thread when the stop begins; now, if it has begun."""
        with self._lock:
            if not self._begun:
                self._callbacks.append(callback)
                return
        callback()

    @property
    def seconds_left(self) -> float:
        """Seconds left for running requests; infinite before the stop begins."""
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
        self._report_overdue()

    def _report_overdue(self) -> None:
        threads = sorted(one.name for one in threading.enumerate() if one is not threading.current_thread())
        _log.warning(
            "still running %g seconds after the stop signal, ending now: %s; threads %s. Acknowledged data is durable.",
            self._grace_seconds,
            self.under_way() or "nothing under way",
            ", ".join(threads),
        )
        logging.shutdown()
        self._leave(OVERDUE_STATUS)
