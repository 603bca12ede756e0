"""The contract of schedulers: polled once an interval for changes of their jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobmeter.model.record import Records
from jobmeter.model.sample import Sample


class Scheduler(Protocol):
    """One cluster's scheduler. Called by one thread."""

    def poll(self, now_ms: int) -> Records:
        """Records of changes since the last call that succeeded; may be empty.

        Raises UnavailableError when the scheduler does not answer. Missed changes are returned later. Each further
        poll then waits longer, unless the error says when to poll again.
        """
        ...

    def problem(self) -> str:
        """Why the records of the last ``poll`` lack something although it succeeded; empty where they are whole."""
        return ""

    def measure(self, now_ms: int) -> list[Sample]:  # noqa: ARG002 - for those that measure their jobs, where no agent can
        """Current samples, each at ``now_ms``, of the jobs that the last ``poll`` found; none unless it measures them.

        A value that cannot be read is absent. Raises UnavailableError when the scheduler does not answer.
        """
        return []

    def close(self) -> None:
        """End what runs for it. It is not called again."""
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command line that one kind of scheduler takes besides the common ones."""

    name: str
    metavar: str
    help: str
    envvar: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of scheduler.

    ``make`` takes the cluster's name, the values of ``options`` by their names (None: not given), and a folder for its
    state across restarts (None: no state is stored). It raises ConfigurationError where the scheduler cannot be queried
    from here.
    """

    summary: str
    make: Callable[[str, Mapping[str, str | None], Path | None], Scheduler]
    options: Sequence[Option] = ()
