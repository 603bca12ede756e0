"""Values reported by programs (``app.*``), sample by sample, unchanged."""

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Float64s, Int64s, SampleColumns, SeriesKeys
from jobmeter.model.job import Job
from jobmeter.model.order import make_natural_key
from jobmeter.model.question import Question
from jobmeter.model.series import Series
from jobmeter.model.time import SECOND, TimeRange
from jobmeter.query.meter import Meter
from jobmeter.query.request import JobRef
from jobmeter.query.selection import find_own_series
from jobmeter.settings import Limits
from jobmeter.store.base import Store

PREFIX = "app."


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """Reported value of a replica; its name lacks the prefix ``app.``."""

    name: str
    time: int
    value: float
    replica: str = ""


class Reported(msgspec.Struct, frozen=True):
    """Page of reports, and the total number."""

    reports: Sequence[JobReport]
    total: int


class ReportedQuestion(msgspec.Struct, Question[Reported], frozen=True, kw_only=True):
    """Question for reports of a job in a range, by time, name and replica, from raw samples.

    ``names`` (with or without the prefix) narrow it; empty means all. ``latest`` returns only the newest value of each
    name before the range's end, of any age.
    """

    by_resource = of_job = True

    ref: JobRef
    range: TimeRange
    names: frozenset[str] = frozenset()
    latest: bool = False
    descending: bool = False
    offset: int = 0
    limit: int = 100


def read_reported(store: Store, job: Job, question: ReportedQuestion, meter: Meter) -> Reported:
    """Answer a ``ReportedQuestion`` about a visible job."""
    if min(question.offset, question.limit) < 0:
        raise InvalidRequestError("the start of a page must be 0 or more", "offset")
    series = _series(store, meter.limits, job, question)
    keys = SeriesKeys.from_series(series)
    if question.latest:
        columns = store.read_previous(keys, question.range.end_ms, meter.make_budget())
    else:
        # All of it is in memory at once.
        budget = replace(meter.make_budget(), rows=meter.limits.query_points)
        columns = SampleColumns.concatenate(list(store.read(keys, question.range, budget)))
    meter.count(len(columns), None)
    finite = np.isfinite(columns.value)
    # The index is the order of names and replicas.
    index, time, value = columns.index[finite].astype(np.int64), columns.time[finite], columns.value[finite]
    if question.latest:
        index, time, value = _select_newest([one.metric for one in series], index, time, value)
        order = np.argsort(index, kind="stable")
    else:
        order = np.lexsort((index, time))
    if question.descending:
        order = order[::-1]
    page = order[question.offset : question.offset + question.limit]
    rows = zip(index[page].tolist(), time[page].tolist(), value[page].tolist(), strict=True)
    reports = [
        JobReport(name=series[at].metric.removeprefix(PREFIX), time=moment, value=reading, replica=series[at].replica)
        for at, moment, reading in rows
    ]
    return Reported(reports, len(order))


def _series(store: Store, limits: Limits, job: Job, question: ReportedQuestion) -> list[Series]:
    full = {name if name.startswith(PREFIX) else f"{PREFIX}{name}" for name in question.names}
    since = 0 if question.latest else max(question.range.start_ms - limits.future_seconds * SECOND, 0)
    found = find_own_series(store, job, frozenset(full) if full else None, limits, since)
    reports = [one for one in found if one.metric.startswith(PREFIX)]
    return sorted(reports, key=lambda one: (one.metric, make_natural_key(one.replica), one.attempt, one.labels, one.id))


def _select_newest(
    names: Sequence[str], index: Int64s, time: Int64s, value: Float64s
) -> tuple[Int64s, Int64s, Float64s]:
    """Select the newest row of each name; among equal times, the first replica's."""
    best: dict[str, int] = {}
    for row, (at, moment) in enumerate(zip(index.tolist(), time.tolist(), strict=True)):
        at_best = best.get(names[at])
        if at_best is None or moment > time[at_best]:
            best[names[at]] = row
    rows = np.array(sorted(best.values()), np.int64)
    return index[rows], time[rows], value[rows]
