"""Parts of the stored data that the telemetry engine could not read."""

from dataclasses import dataclass, field

from jobmeter.model.time import TimeRange, format_iso


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedPart:
    """A part of a table that cannot be read, wholly or partly: answers lack its rows.

    ``table`` is ``journal`` for a file of samples that were not in the engine yet. ``span`` has the times of the part's
    rows, ``jobs`` the lowest and the highest of their job keys, ``rows`` their number; None if unknown. With
    ``at_most`` the number is an upper bound. ``place`` is for the operator alone: the folder of the remaining files.
    """

    table: str
    name: str
    reason: str
    rows: int | None = None
    at_most: bool = False
    span: TimeRange | None = None
    jobs: tuple[int, int] | None = None
    place: str = field(default="", repr=False)

    def may_concern(self, job: int) -> bool:
        """Return True if it may have had rows of that job key."""
        return self.jobs is None or self.jobs[0] <= job <= self.jobs[1]

    @property
    def summary(self) -> str:
        """Describe the part without any path: ``samples 20455_2_2_0 (broken-on-start), 10000 rows from ... to ...``."""
        rows = "" if self.rows is None else f", {'at most ' if self.at_most else ''}{self.rows} rows"
        span = "" if self.span is None else f" from {format_iso(self.span.start_ms)} to {format_iso(self.span.end_ms)}"
        return f"{self.table} {self.name} ({self.reason}){rows}{span}"
