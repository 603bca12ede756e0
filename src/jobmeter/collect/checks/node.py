"""Checks of a node by name, each in its own thread, so that a hanging check affects no others."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Thread
from typing import Any

from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.checks import system
from jobmeter.model.task import Check, CheckStatus
from jobmeter.model.time import SystemClock

PATIENCE = 8.0
"""Seconds that one check may take."""
_SKEW = 1.0


class NodeChecks:
    """Runs the requested checks. A check that still hangs is not started again.

    A check has one or more parts, each in its own thread: of the accelerators one for each vendor. ``difference``
    returns the lead in seconds of the wall clock over the samples' time.
    """

    def __init__(
        self,
        accelerators: Sequence[AcceleratorCollector[Any]],
        difference: Callable[[], float],
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._clock = SystemClock()
        self._running: dict[tuple[str, int], Thread] = {}
        self.checks: Mapping[str, Sequence[Callable[[], list[Check]]]] = {
            "disks": [system.check_disks],
            "links": [system.check_links],
            "gpus": [partial(check_accelerators, one, accelerators) for one in accelerators],
            "clock": [lambda: check_clock(difference())],
            "tasks": [system.check_tasks],
            "kernel_log": [system.check_kernel_log],
            "memory": [system.check_memory],
        }

    def make(self, names: Sequence[str]) -> list[Check]:
        """Run the checks of those names and return their results; unknown names are ignored."""
        return [found for name in dict.fromkeys(names) for found in self._check(name, self.checks.get(name, ()))]

    def _check(self, name: str, parts: Sequence[Callable[[], list[Check]]]) -> list[Check]:
        """Start the parts of a check, and wait for all of them together."""
        deadline = self._clock.monotonic() + self._patience
        finishes = [self._start(name, at, part) for at, part in enumerate(parts)]
        return [found for finish in finishes for found in finish(deadline - self._clock.monotonic())]

    def _start(self, name: str, at: int, part: Callable[[], list[Check]]) -> Callable[[float], list[Check]]:
        """Start a part of a check. Return what waits for some seconds and returns its results."""
        before = self._running.get((name, at))
        if before is not None and before.is_alive():
            hangs = [Check(name, CheckStatus.WARNING, "the check of an earlier task still hangs")]
            return lambda _seconds: hangs
        found: list[Check] = []

        def work() -> None:
            try:
                found.extend(part())
            except Exception as error:  # noqa: BLE001 - a check may fail in any way and must not take others along
                found.append(Check(name, CheckStatus.UNAVAILABLE, f"the check failed: {error}"[:1_000]))

        def finish(seconds: float) -> list[Check]:
            thread.join(max(seconds, 0.0))
            if thread.is_alive():
                return [Check(name, CheckStatus.WARNING, f"the check did not come back within {self._patience:.0f} s")]
            return found

        thread = self._running[name, at] = Thread(target=work, name=f"check {name} {at}", daemon=True)
        thread.start()
        return finish


def check_clock(offset: float) -> list[Check]:
    """Check the wall clock against the sample clock, by its lead in seconds."""
    status = CheckStatus.WARNING if abs(offset) > _SKEW else CheckStatus.OK
    text = f"the wall clock is {offset:+.3f} s from the time of samples"
    return [Check("clock", status, text, {"offset_seconds": round(offset, 3)})]
