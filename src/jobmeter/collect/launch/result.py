"""How a run went."""

from dataclasses import dataclass

from jobmeter.collect.launch.figures import Figures
from jobmeter.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run went. ``status`` is None where the command runs on, or its exit status is unknown.

    ``undelivered`` says why samples wait in the spool, empty when everything was acknowledged.

    ``lines`` of output were passed on to the server, ``lines_dropped`` were not; both None when none were to be taken.
    ``set_aside`` says what the server refused, empty for nothing. ``counted_by`` says by what means CPU time was
    counted, empty when it was not. ``remaining`` are processes of the command that outlive it.
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
