"""Checks of a node by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.base import Owner
from jobmeter.collect.checks import system
from jobmeter.collect.checks.processes import check_processes
from jobmeter.collect.checks.runner import CheckRunner
from jobmeter.model.task import CheckStatus, TaskCheck

PATIENCE = 8.0
"""Seconds that one check may take."""
_SKEW = 1.0


class NodeChecks:
    """Runs the requested checks. A check that still hangs is not started again.

    A check has parts, each in its own thread; the check of accelerators has one for each vendor. ``difference`` returns
    the lead in seconds of the wall clock over the samples' time. ``owner_of`` returns the replica of a process by its
    number.
    """

    def __init__(
        self,
        accelerators: Sequence[AcceleratorCollector[Any]],
        difference: Callable[[], float],
        patience: float = PATIENCE,
        *,
        owner_of: Callable[[int], Owner | None] = lambda _pid: None,
    ) -> None:
        self._runner: CheckRunner[tuple[str, int], TaskCheck] = CheckRunner(
            patience,
            lambda key, error: TaskCheck(key[0], CheckStatus.UNAVAILABLE, f"the check failed: {error}"[:1_000]),
            lambda key, text: TaskCheck(key[0], CheckStatus.WARNING, text),
        )
        self.checks: Mapping[str, Sequence[Callable[[], list[TaskCheck]]]] = {
            "disks": [system.check_disks],
            "links": [system.check_links],
            "gpus": [partial(check_accelerators, one, accelerators) for one in accelerators],
            "clock": [lambda: check_clock(difference())],
            "tasks": [system.check_tasks],
            "processes": [partial(check_processes, owner_of)],
            "kernel_log": [system.check_kernel_log],
            "memory": [system.check_memory],
        }

    def make(self, names: Sequence[str]) -> list[TaskCheck]:
        """Run the checks of those names and return their results. Unknown names are ignored."""
        parts = {(name, at): part for name in names for at, part in enumerate(self.checks.get(name, ()))}
        return self._runner.run(parts)


def check_clock(offset: float) -> list[TaskCheck]:
    """Check the wall clock against the sample clock, by its lead in seconds."""
    status = CheckStatus.WARNING if abs(offset) > _SKEW else CheckStatus.OK
    text = f"the wall clock is {offset:+.3f} s from the time of samples"
    return [TaskCheck("clock", status, text, {"offset_seconds": round(offset, 3)})]
