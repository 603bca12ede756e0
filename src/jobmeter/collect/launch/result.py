"""Result of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.launch.figures import RunFigures
from jobmeter.collect.process.memory import MemoryMeasure
from jobmeter.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a run. ``status`` is absent if the command still runs, or its exit status is unknown.

    ``undelivered`` is the reason why samples wait in the spool, empty if everything was acknowledged. ``lost`` counts
    samples that were dropped or refused, by reason. ``lines`` counts output lines sent to the server, ``lines_dropped``
    dropped ones; both are absent if output is not stored. ``set_aside`` describes quarantined data, empty without any.
    ``counted_by`` is the way of measuring CPU time and memory, empty if they were not measured. ``remaining`` are
    processes of the command that outlive it.
    """

    status: int | None
    state: JobState
    reason: str
    start_ms: int
    end_ms: int
    figures: RunFigures
    undelivered: str
    lines: int | None = None
    lines_dropped: int | None = None
    set_aside: str = ""
    lost: Mapping[str, int] = field(default_factory=dict)
    counted_by: str = ""
    remaining: frozenset[int] = frozenset()


def describe_accounting(means: str, jobs: JobsCollector) -> str:
    """Describe how CPU time was counted, and how memory was measured if by process."""
    measures = sorted({measure for measure in jobs.memory.measures.values() if measure is not MemoryMeasure.GROUP})
    return "; memory as ".join([means, *measures])
