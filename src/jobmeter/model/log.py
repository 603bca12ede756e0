"""Log lines: what the processes of a job wrote."""

import msgspec

from jobmeter.model.event import Level


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line at ``time_ns`` (epoch nanoseconds), without its line end.

    A line is known by (project, job, replica, attempt, stream, time, text): sent again, it counts once. A sender gives
    lines of one stream strictly growing times, so that their order stays. ``level`` None: the line does not say.
    """

    time_ns: int
    text: str
    job: str
    project: str = "default"
    replica: str = ""
    attempt: int = 0
    node: str = ""
    stream: str = "stdout"
    level: Level | None = None


class LogPage(msgspec.Struct, frozen=True):
    """Lines in the order that was asked for.

    ``total`` lines with ``total_bytes`` of text match in all (None: not asked). Lines of equal time keep the order of
    (replica, attempt, stream, text).
    """

    lines: list[LogLine]
    total: int | None = None
    total_bytes: int | None = None
