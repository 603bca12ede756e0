"""How a run went."""

from dataclasses import dataclass

from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.launch.figures import Figures
from jobmeter.collect.process.memory import MemoryMeasure
from jobmeter.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run went. ``status`` is None where the command runs on, or its exit status is unknown.

    ``undelivered`` says why samples wait in the spool, empty when everything was acknowledged.

    ``lines`` of output were passed on to the server, ``lines_dropped`` were not; both None when none were to be taken.
    ``set_aside`` says what the server refused, empty for nothing. ``counted_by`` says by what means CPU time and memory
    were measured, empty when they were not. ``remaining`` are processes of the command that outlive it.
    """

    status: int | None
    state: JobState
    reason: str
    start_ms: int
    end_ms: int
    figures: Figures
    undelivered: str
    lines: int | None = None
    lines_dropped: int | None = None
    set_aside: str = ""
    counted_by: str = ""
    remaining: frozenset[int] = frozenset()


def counted_by(means: str, jobs: JobsCollector) -> str:
    """Return the means by which CPU time was counted, and how memory was measured where that was by process."""
    measures = sorted({measure for measure in jobs.memory.measures.values() if measure is not MemoryMeasure.GROUP})
    return "; memory as ".join([means, *measures])
