"""Run checks, each in its own thread, so that a check that fails or hangs affects no other."""

from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Generic, TypeVar

from jobmeter.model.time import SystemClock

K = TypeVar("K")
C = TypeVar("C")


class CheckRunner(Generic[K, C]):
    """Runs functions that make checks, all at once, within ``patience`` seconds. For one thread.

    A function that still runs from an earlier call is not started again. ``failed`` makes the check of a function that
    raised an error, ``late`` that of one that has not returned, each by its key and a sentence.
    """

    def __init__(self, patience: float, failed: Callable[[K, str], C], late: Callable[[K, str], C]) -> None:
        self._patience = patience
        self._failed = failed
        self._late = late
        self._running: dict[K, Thread] = {}
        self._clock = SystemClock()

    def run(self, functions: Mapping[K, Callable[[], Iterable[C]]]) -> list[C]:
        """Return the checks that the functions make, in their order."""
        deadline = self._clock.monotonic() + self._patience
        results = {key: self._start(key, function) for key, function in functions.items()}
        found: list[C] = []
        for key, checks in results.items():
            if checks is None:
                found.append(self._late(key, "the check of an earlier task still hangs"))
                continue
            self._running[key].join(max(deadline - self._clock.monotonic(), 0.0))
            found += checks[:]
            if self._running[key].is_alive():
                found.append(self._late(key, f"the check did not end within {self._patience:.0f} s"))
        return found

    def _start(self, key: K, function: Callable[[], Iterable[C]]) -> list[C] | None:
        """Start a function. Return the list that its checks go into; None if it still runs from an earlier call."""
        before = self._running.get(key)
        if before is not None and before.is_alive():
            return None
        found: list[C] = []

        def work() -> None:
            try:
                found.extend(function())
            except Exception as error:  # noqa: BLE001 - a check may fail in any way and must not take others along
                found.append(self._failed(key, f"{error}"))

        self._running[key] = Thread(target=work, name=f"check {key}", daemon=True)
        self._running[key].start()
        return found
