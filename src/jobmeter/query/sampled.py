"""Lines of a job with the times of the samples behind their points: what a rule needs to judge by samples.

A bucket's start says neither when its samples were taken nor how many there were. Coverage, durations and gaps are
computed from the samples' own times instead.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.question import Question
from jobmeter.query.frame import Frame
from jobmeter.query.gaps import Presence
from jobmeter.query.layout import Layout
from jobmeter.query.request import Line, MetricQuery


class SampledLine(msgspec.Struct, frozen=True, eq=False):
    """A line of an answer, and when the samples behind each of its points were taken."""

    line: Line
    presence: Presence


class SampledQuestion(msgspec.Struct, Question[Sequence[SampledLine]], frozen=True, eq=False):
    """The lines that answer a query, each with the times of its samples."""

    query: MetricQuery


class Sampling:
    """The times of the samples in a frame, for each of the lines that its entries are laid out in."""

    def __init__(self, frame: Frame, layout: Layout) -> None:
        self._frame = frame
        self._layout = layout
        self._bounds = np.searchsorted(frame.columns.index, np.arange(len(frame.shape.entries) + 1)).tolist()
        self._entries: dict[str, dict[int, list[int]]] = {}
        self._known: dict[bytes, Presence] = {}

    def of(self, metric: str, line: int, time: Int64s) -> Presence:
        """Return when the samples of a line were taken; ``time`` are the starts of the buckets that have a point.

        Of several series in one bucket (attempts of a replica, parts) the one with the most samples counts. Lines that
        were sampled alike, as most metrics of a member are, share one object.
        """
        found = self._of(metric, line, time)
        return self._known.setdefault(found.key, found)

    def _of(self, metric: str, line: int, time: Int64s) -> Presence:
        columns = self._frame.columns
        own = [slice(self._bounds[at], self._bounds[at + 1]) for at in self._of_line(metric).get(line, ())]
        rows: slice | Int64s = own[0] if len(own) == 1 else np.concatenate([np.r_[one] for one in own] or [time[:0]])
        found = Presence(columns.first_time[rows], columns.last_time[rows], columns.count[rows].astype(np.int64))
        start = columns.time[rows]
        if len(own) > 1:
            found = Presence.joined(found.first, found.last, found.count, self._frame.step_ms)
            start = found.first // self._frame.step_ms * self._frame.step_ms
        if len(start) == len(time):
            return found
        return _at(time, start, found)

    def _of_line(self, metric: str) -> dict[int, list[int]]:
        """Return the entries whose samples a metric of each line is made from."""
        if metric not in self._entries:
            by_line: dict[int, list[int]] = {}
            shape, line = self._frame.shape, self._layout.line
            for source in _sources(metric):
                added: dict[int, list[int]] = {}
                for at in range(*shape.range_of(source)):
                    added.setdefault(int(line[shape.member[at]]), []).append(at)
                by_line = {**added, **by_line}  # what was measured itself goes before what it could be derived from
            self._entries[metric] = by_line
        return self._entries[metric]


def _at(time: Int64s, start: Int64s, found: Presence) -> Presence:
    """Return the presence in the buckets at ``time``; a bucket that is not found has one sample at its start."""
    place = np.minimum(np.searchsorted(start, time), max(len(start) - 1, 0))
    if not len(start):
        return Presence(time, time, np.ones(len(time), np.int64))
    there = start[place] == time
    return Presence(
        np.where(there, found.first[place], time),
        np.where(there, found.last[place], time),
        np.where(there, found.count[place], 1),
    )


def _sources(metric: str) -> Iterator[str]:
    """Yield the metric itself, and after it the one by whose samples it is known where nobody measured it."""
    row = CATALOG[metric]
    yield metric
    if row.rate_of:
        yield row.rate_of
    elif row.ratio or row.difference:
        usage = row.ratio[0] if row.ratio else (row.difference or ("", ""))[1]
        yield from _sources(usage)
