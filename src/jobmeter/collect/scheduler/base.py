"""Contract of schedulers, which are polled once per interval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobmeter.model.record import Records
from jobmeter.model.sample import Sample


class Scheduler(Protocol):
    """Scheduler of one cluster. Called by one thread."""

    def poll(self, now_ms: int) -> Records:
        """Return records of changes since the last successful call; may be empty.

        Raises UnavailableError if the scheduler does not answer; then changes are returned later. Each further poll
        waits longer, unless the error tells when to poll again.
        """
        ...

    def describe_problem(self) -> str:
        """Return the reason why the last successful ``poll`` is incomplete; empty if it is complete."""
        return ""

    def measure(self, now_ms: int) -> list[Sample]:  # noqa: ARG002 - for those that measure their jobs, where no agent can
        """Return current samples, each at ``now_ms``, of the jobs of the last ``poll``; empty unless it measures jobs.

        A value that cannot be read is absent. Raises UnavailableError if the scheduler does not answer.
        """
        return []

    def close(self) -> None:
        """Stop its threads and processes. No other call follows."""
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """Command-line option of one kind of scheduler."""

    name: str
    metavar: str
    help: str
    envvar: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerKind:
    """Kind of scheduler.

    ``make`` gets the cluster's name, the values of ``options`` by name, with underscores (None: not given), and a
    folder for its state (None: no state is stored). It raises ConfigurationError if the scheduler cannot be reached
    from here.
    """

    summary: str
    make: Callable[[str, Mapping[str, str | None], Path | None], Scheduler]
    options: Sequence[Option] = ()
