"""Lines of a job with the times of the samples behind their points, for rules.

A bucket's start tells neither the times of its samples nor their number. Coverage, durations and gaps are computed from
the samples' own times instead.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import JobView
from jobmeter.model.question import Question
from jobmeter.query.buckets import BucketedSeries
from jobmeter.query.gaps import Presence
from jobmeter.query.layout import Layout
from jobmeter.query.request import Line, MetricQuery


class SampledLine(msgspec.Struct, frozen=True, eq=False):
    """Line of an answer with the sampling times behind each point."""

    line: Line
    presence: Presence


class SampledQuestion(msgspec.Struct, Question[Sequence[SampledLine]], frozen=True):
    """Question for the lines of a query with their sampling times.

    ``view`` is the job of the query where the caller has just read it: then nothing reads it again.
    """

    by_resource = of_job = True

    query: MetricQuery
    view: JobView | None = None


class Sampling:
    """Sampling times in a frame, by line."""

    def __init__(self, frame: BucketedSeries, layout: Layout) -> None:
        self._frame = frame
        self._layout = layout
        self._bounds = np.searchsorted(frame.columns.index, np.arange(len(frame.shape.entries) + 1)).tolist()
        self._entries: dict[str, dict[int, list[int]]] = {}
        self._known: dict[bytes, Presence] = {}

    def find_presence(self, metric: str, line: int, time: Int64s) -> Presence:
        """Return the sampling times of a line; ``time`` are the starts of the buckets that have a point.

        Of several series in one bucket (attempts of a replica, parts) the one with the most samples counts. Lines with
        equal sampling times, as for most metrics of a member, share one object.
        """
        found = self._find_presence(metric, line, time)
        return self._known.setdefault(found.key, found)

    def _find_presence(self, metric: str, line: int, time: Int64s) -> Presence:
        columns = self._frame.columns
        own = [slice(self._bounds[at], self._bounds[at + 1]) for at in self._list_line_entries(metric).get(line, ())]
        rows: slice | Int64s = own[0] if len(own) == 1 else np.concatenate([np.r_[one] for one in own] or [time[:0]])
        found = Presence(columns.first_time[rows], columns.last_time[rows], columns.count[rows].astype(np.int64))
        start = columns.time[rows]
        if len(own) > 1:
            found = Presence.combine(found.first, found.last, found.count, self._frame.step_ms)
            start = found.first // self._frame.step_ms * self._frame.step_ms
        if len(start) == len(time):
            return found
        return _select_presence(time, start, found)

    def _list_line_entries(self, metric: str) -> dict[int, list[int]]:
        """Return the entries of each line whose samples a metric is computed from."""
        if metric not in self._entries:
            by_line: dict[int, list[int]] = {}
            shape, line = self._frame.shape, self._layout.line
            for source in _sources(metric):
                added = group_pairs((int(line[shape.member[at]]), at) for at in range(*shape.find_range(source)))
                by_line = {**added, **by_line}  # measured samples take precedence over derivations
            self._entries[metric] = by_line
        return self._entries[metric]


def _select_presence(time: Int64s, start: Int64s, found: Presence) -> Presence:
    """Select the presence in the buckets at ``time``; a missing bucket gets one sample at its start."""
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
    """Yield the metric, then the metric that replaces it if it was not measured."""
    row = CATALOG[metric]
    yield metric
    if row.rate_of:
        yield row.rate_of
    elif row.ratio or row.difference:
        usage = row.ratio[0] if row.ratio else (row.difference or ("", ""))[1]
        yield from _sources(usage)
