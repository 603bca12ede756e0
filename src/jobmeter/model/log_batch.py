"""Log lines as columns: their form from a request's body to the engine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, overload

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Bools, Int64s, Uint8s, Uint32s
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.series import compute_job_key, compute_node_key

LEVEL_CODES = {level: code for code, level in enumerate(Level, 1)}
"""Levels as numbers, worse levels higher; 0 is for a line without a level."""
LEVELS: dict[int, Level | None] = {0: None, **{code: level for level, code in LEVEL_CODES.items()}}


class LogSource(NamedTuple):
    """Common fields of many lines: all but time, level and text.

    See ``LogLine``.
    """

    project: str
    job: str
    replica: str
    attempt: int
    node: str
    stream: str
    facility: str
    severity: int | None
    tag: str

    @property
    def key(self) -> int:
        """Store key of the lines; see ``LogLine.key``."""
        return compute_node_key(self.project, self.node) if self.facility else compute_job_key(self.project, self.job)


@dataclass(frozen=True, eq=False)
class LogBatch(Sequence[LogLine]):
    """``n`` lines of ``len(sources)`` sources, in order; as a sequence it builds each line on demand.

    ``source``: uint32[n], the position of a line's source in ``sources``. ``time_ns``: int64[n]. ``level``: uint8[n], a
    value of ``LEVEL_CODES`` or 0. ``texts``: the n texts. Immutable.
    """

    sources: Sequence[LogSource]
    source: Uint32s
    time_ns: Int64s
    level: Uint8s
    texts: Sequence[str] = field(repr=False)

    @classmethod
    def from_lines(cls, lines: Iterable[LogLine]) -> "LogBatch":
        """Convert lines to columns; a batch is returned unchanged.

        Raises InvalidRequestError (field ``time``): see ``make_times``.
        """
        if isinstance(lines, LogBatch):
            return lines
        given = list(lines)
        places: dict[LogSource, int] = {}
        numbers = [places.setdefault(_source(line), len(places)) for line in given]
        levels = [0 if line.level is None else LEVEL_CODES[line.level] for line in given]
        return cls(
            tuple(places),
            np.array(numbers, np.uint32),
            make_times([line.time_ns for line in given]),
            np.array(levels, np.uint8),
            [line.text for line in given],
        )

    @classmethod
    def concatenate(cls, batches: "Sequence[LogBatch]") -> "LogBatch":
        """Concatenate batches."""
        if len(batches) < 2:
            return batches[0] if batches else cls.from_lines(())
        sources = [source for one in batches for source in one.sources]
        before = accumulate((len(one.sources) for one in batches), initial=0)
        return cls(
            sources,
            np.concatenate([one.source + np.uint32(first) for one, first in zip(batches, before, strict=False)]),
            np.concatenate([one.time_ns for one in batches]),
            np.concatenate([one.level for one in batches]),
            [text for one in batches for text in one.texts],
        )

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> LogLine: ...
    @overload
    def __getitem__(self, place: slice) -> "LogBatch": ...
    def __getitem__(self, place: int | slice) -> "LogLine | LogBatch":
        if isinstance(place, slice):
            source, time_ns, level = self.source[place], self.time_ns[place], self.level[place]
            return LogBatch(self.sources, source, time_ns, level, self.texts[place])
        return _line(
            self.sources[self.source[place]], int(self.time_ns[place]), int(self.level[place]), self.texts[place]
        )

    def __iter__(self) -> Iterator[LogLine]:
        columns = self.source.tolist(), self.time_ns.tolist(), self.level.tolist(), self.texts
        for source, time_ns, level, text in zip(*columns, strict=True):
            yield _line(self.sources[source], time_ns, level, text)

    @cached_property
    def characters(self) -> int:
        """Total characters of all texts."""
        return sum(map(len, self.texts))

    def select(self, chosen: Bools) -> "LogBatch":
        """Select lines, in order."""
        return self if chosen.all() else self.take(np.flatnonzero(chosen))

    def take(self, places: Int64s) -> "LogBatch":
        """Select the lines at these places, in this order."""
        texts = [self.texts[place] for place in places.tolist()]
        return LogBatch(self.sources, self.source[places], self.time_ns[places], self.level[places], texts)

    def select_sources(self, chosen: Sequence[bool]) -> "LogBatch":
        """Select the lines of some sources: ``chosen`` has a flag for each."""
        return self if all(chosen) else self.select(np.array(chosen, np.bool_)[self.source])

    def list_source_spans(self) -> Iterator[tuple[LogSource, int, int]]:
        """Yield each source with lines, and its first and last time."""
        first = np.full(len(self.sources), np.iinfo(np.int64).max)
        last = np.full(len(self.sources), -1)
        np.minimum.at(first, self.source, self.time_ns)
        np.maximum.at(last, self.source, self.time_ns)
        for source, earliest, latest in zip(self.sources, first.tolist(), last.tolist(), strict=True):
            if latest >= earliest:
                yield source, earliest, latest


def make_times(values: Sequence[int]) -> Int64s:
    """Convert times in nanoseconds to a column. Raises InvalidRequestError (``time``) for values beyond 64 bits."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise make_time_error(next(value for value in values if not -(2**63) <= value < 2**63)) from None


def make_time_error(time_ns: int) -> InvalidRequestError:
    """Build the error for a time beyond 64 bits."""
    return InvalidRequestError(f"time {time_ns} is not between 1970 and 2100 in nanoseconds since the epoch", "time")


def _source(line: LogLine) -> LogSource:
    names = line.project, line.job, line.replica, line.attempt, line.node, line.stream
    return LogSource(*names, line.facility, line.severity, line.tag)


def _line(source: LogSource, time_ns: int, level: int, text: str) -> LogLine:
    return LogLine(
        time_ns=time_ns,
        text=text,
        job=source.job,
        project=source.project,
        replica=source.replica,
        attempt=source.attempt,
        node=source.node,
        stream=source.stream,
        level=LEVELS[level],
        facility=source.facility,
        severity=source.severity,
        tag=source.tag,
    )
