"""The series and samples of selectors, found by questions: stored series, and series made of facts."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from jobmeter.dialects.base import ask
from jobmeter.dialects.prometheus.facts import FACTS, MOST_SAMPLES, FactSpan, find_facts, make_samples
from jobmeter.dialects.prometheus.names import (
    APP,
    JOB,
    PREFIX,
    PROJECT,
    Exposed,
    SentNames,
    expose,
    find_mapped,
    find_stored_names,
    list_names,
    list_sent_names,
)
from jobmeter.model.batch import NEVER, Float64s, Int64s, SampleColumns, Uint32s, mark_first_rows
from jobmeter.model.grouping import group_pairs
from jobmeter.model.question import Question
from jobmeter.model.series import SPECIAL, NamePart, Series, compute_job_key
from jobmeter.model.special import STALE, STALE_CODE, decode_special, is_special, make_plain
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.promql.labels import Labels, get_value, set_label
from jobmeter.promql.nodes import NAME, Matcher, Node, VectorMatch, VectorSelector
from jobmeter.promql.reads import SelectorRead, estimate_brief_cost, list_reads
from jobmeter.promql.regex import match_texts
from jobmeter.promql.windows import RolledSamples, WindowSamples, is_stale
from jobmeter.query.defaults import LATE_MS
from jobmeter.query.rollups import RollupsQuestion
from jobmeter.query.series import FoundSeries, LastQuestion, NamesQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.source import RAW_IS_QUICK

MOST_NAMES = 10_000
_BRIEF = 100_000
"""Most values, in all nodes of a query together, that the event loop may compute: about a millisecond."""
_ROW_VALUES = 20
"""Cost of a row in each node besides its points, as a number of values."""
_POINT_VALUES = 2
"""Cost of a point of an answer, which is written as text, as a number of values."""
_BRIEF_SAMPLES = 40_000
"""Most samples that the event loop may read."""
_BRIEF_VISITS = 500_000
"""Most samples in windows, times the cost of the query, that the event loop may visit: about a millisecond."""
_MATCHER_BYTES = 300
"""Approximate memory of a matcher besides its texts, in bytes."""
_EXPORTED = "exported_project"
_DIGITS = 12
"""Digits of a value in an exporter's unit: division makes the further digits noise."""


class FactSeries(msgspec.Struct, frozen=True):
    """A series that is made of facts."""

    labels: Labels
    spans: tuple[FactSpan, ...]


Row = Exposed | FactSeries


class StoredRows(msgspec.Struct, frozen=True, eq=False):
    """Rows of stored series, and the series that have their samples.

    ``series``: first the ``plain`` series, then the series of special values. ``numbers`` uint32[plain + 1] counts the
    plain series. ``of_special`` int64[k] is the position of the plain series to which each series of special values
    belongs. ``places`` int64[rows] is the position of each row's plain series. ``each``: row i has the plain series i.
    ``divisors`` float64[rows], None if all are 1.
    """

    labels: list[Labels]
    series: tuple[Series, ...]
    plain: int
    numbers: Uint32s
    of_special: Int64s
    places: Int64s
    each: bool
    divisors: Float64s | None

    @classmethod
    def from_rows(cls, rows: Sequence[Exposed]) -> "StoredRows":
        """Return the rows with their distinct series."""
        series: dict[Series, int] = {}
        places = [series.setdefault(row.series, len(series)) for row in rows]
        special = {row.special: series[row.series] for row in rows if row.special is not None}
        divisors = np.array([row.divisor for row in rows], np.float64)
        return cls(
            labels=[row.labels for row in rows],
            series=(*series, *special),
            plain=len(series),
            numbers=np.arange(len(series) + 1, dtype=np.uint32),
            of_special=np.array(list(special.values()), np.int64),
            places=np.array(places, np.int64),
            each=len(series) == len(rows),
            divisors=None if (divisors == 1.0).all() else divisors,
        )

    def convert_units(self, values: Float64s, rows: Int64s, counts: Int64s) -> Float64s:
        """Return values in the units of their rows: ``counts`` values of each of ``rows``, one row after the other."""
        return values if self.divisors is None else _convert_units(values, np.repeat(self.divisors[rows], counts))


class SelectedRows(list[Row]):
    """Rows of a selector, with the derived data that all reads of their samples share."""

    @cached_property
    def stored(self) -> StoredRows:
        """The rows of stored series."""
        return StoredRows.from_rows([row for row in self if isinstance(row, Exposed)])

    @cached_property
    def facts(self) -> list[FactSeries]:
        """The rows of facts."""
        return [row for row in self if isinstance(row, FactSeries)]


Found = Generator[Question[Any], Any, SelectedRows]
Matchers = Sequence[Matcher]


def find(
    alternatives: Sequence[Matchers],
    since_ms: int | None,
    project: str | None,
    *,
    of_owners: bool = False,
    brief: bool = False,
) -> Found:
    """Find the series that fulfil one of the alternatives, sorted by their labels.

    ``of_owners``: each series has a label with its project. A sent label ``project`` becomes ``exported_project``, as
    Prometheus renames conflicting labels. ``brief`` as in ``SeriesQuestion``.
    """
    if len(alternatives) == 1:
        return (yield from _find(alternatives[0], since_ms, project, of_owners, brief))
    found: dict[Row, None] = {}
    for matchers in alternatives:
        found.update(dict.fromkeys((yield from _find(matchers, since_ms, project, of_owners, brief))))
    return _order_rows(found)


def _order_rows(rows: Iterable[Row]) -> SelectedRows:
    return SelectedRows(sorted(dict.fromkeys(rows), key=lambda one: one.labels))


def _find(matchers: Matchers, since_ms: int | None, project: str | None, of_owners: bool, brief: bool) -> Found:
    name = next((one.value for one in matchers if one.label == NAME and one.match is VectorMatch.EQUAL), "")
    if name in FACTS:
        named = _read_equalities(matchers)
        where = named.get(PROJECT) or project
        ids = (named[JOB],) if named.get(JOB) else ()
        spans = yield from find_facts(name, since_ms or 0, frozenset({where}) if where else None, ids)
        return _order_rows(_match_rows(matchers, [FactSeries(labels, tuple(one)) for labels, one in spans.items()]))
    metrics = yield from _metrics(matchers, name)
    if not metrics:
        return SelectedRows()
    jobs = _jobs(matchers, project)
    wanted = metrics | {SPECIAL + one for one in metrics}
    answer = yield from ask(SeriesQuestion(metrics=wanted, jobs=jobs, since_ms=since_ms, brief=brief))
    sent, last = yield from _find_sent_names(answer)
    by_time = sorted(sent, key=lambda one: (last.get(one.holder, 0), one.row.labels)) if last else sent

    def rows(series: Sequence[Series]) -> SelectedRows:
        found: list[Row] = list(_expose_series(series, name, by_time))
        if of_owners:
            found = list({one.labels: one for one in map(_add_owner_project, found)}.values())
        return _order_rows(_match_rows(matchers, found))

    size = sum(_MATCHER_BYTES + len(one.label) + len(one.value) for one in matchers)
    order = [one.holder for one in by_time if one.holder in last]
    return answer.derive((Exposed, tuple(matchers), of_owners, *order), rows, size)


def _find_sent_names(
    answer: FoundSeries,
) -> Generator[Question[Any], Any, tuple[Sequence[SentNames], dict[Series, int]]]:
    """Find the sent names and labels of mapped series, and the last time of those that share a series and a name."""
    sent = answer.derive(SentNames, lambda series: list(list_sent_names(series)))
    rivals = answer.derive((SentNames, "rivals"), lambda _: _rivals(sent))
    if not rivals:
        return sent, {}
    columns = (yield from ask(LastQuestion(series=tuple(rivals)))).columns
    return sent, {rivals[at]: time for at, time in zip(columns.index.tolist(), columns.time.tolist(), strict=True)}


def _rivals(sent: Sequence[SentNames]) -> list[Series]:
    """Return the series that store different labels for the same series and name."""
    holders = group_pairs((one.key, one.holder) for one in sent)
    return [one for some in holders.values() if len(some) > 1 for one in some]


def _expose_series(series: Sequence[Series], name: str, sent: Sequence[SentNames]) -> Iterator[Exposed]:
    """Yield the rows of series under a name; with an empty name, under each own name and each sent name.

    A row has the labels that were sent last, if they are known. Special values without a plain series have a row too.
    """
    special = {make_plain(one): one for one in series if is_special(one.metric)}
    known: dict[Series, dict[str, Exposed]] = {}
    for under in sent:
        special.pop(make_plain(under.holder), None)
        mapped, sent_name = under.key
        known.setdefault(mapped, {})[sent_name] = under.row
    plain = [(one, special.pop(one, None)) for one in series if not is_special(one.metric)]
    for one, values in (*plain, *special.items()):
        rows = known.get(one, {})
        if name in rows:
            rows = {name: rows[name]}
        else:
            yield from expose(one, name, values)
        if name in {"", *rows}:
            yield from (msgspec.structs.replace(row, special=values) for row in rows.values())


def _add_owner_project(row: Row) -> Row:
    if isinstance(row, FactSeries) or (sent := get_value(row.labels, PROJECT)) == row.series.project:
        return row
    labels = set_label(row.labels, _EXPORTED, sent) if sent else row.labels
    return msgspec.structs.replace(row, labels=set_label(labels, PROJECT, row.series.project))


def _metrics(matchers: Matchers, name: str) -> Generator[Question[Any], Any, frozenset[str]]:
    """Find the stored metrics that may have a requested name."""
    if name:
        programs: Sequence[str] = ()
        if name.startswith(PREFIX + APP[:-1]):
            programs = yield from ask(NamesQuestion(part=NamePart.METRIC, prefix=APP, limit=MOST_NAMES))
        return find_stored_names(name, programs)
    stored = yield from ask(NamesQuestion(part=NamePart.METRIC, limit=MOST_NAMES, special=True))
    shown = [list_names(one)[0] for one in stored]
    wanted = [one for one in matchers if one.label == NAME]
    kept = np.ones(len(stored), bool)
    for matcher in wanted:
        kept &= _fulfils(matcher, shown)
    found = [one for one, keep in zip(stored, kept.tolist(), strict=True) if keep]
    return frozenset().union(found, *(find_mapped(one) for one in found))


def _jobs(matchers: Matchers, project: str | None) -> tuple[int, ...] | None:
    """Return the key of the requested job if its project is known; None if the job or project is unknown."""
    named = _read_equalities(matchers)
    where = named.get(PROJECT) or project
    return (compute_job_key(where, named[JOB]),) if where and named.get(JOB) else None


def _read_equalities(matchers: Matchers) -> dict[str, str]:
    """Return the value of each label that a matcher requires to be equal to it."""
    return {one.label: one.value for one in matchers if one.match is VectorMatch.EQUAL}


def _fulfils(matcher: Matcher, texts: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    if matcher.match in {VectorMatch.EQUAL, VectorMatch.NOT_EQUAL}:
        found = np.array([text == matcher.value for text in texts], bool)
    else:
        distinct = sorted(set(texts))
        known = dict(zip(distinct, match_texts(matcher.value, distinct).tolist(), strict=True))
        found = np.array([known[text] for text in texts], bool)
    return ~found if matcher.match in {VectorMatch.NOT_EQUAL, VectorMatch.NOT_REGEX} else found


def _match_rows(matchers: Matchers, rows: Sequence[Row]) -> list[Row]:
    kept = np.ones(len(rows), bool)
    for matcher in matchers:
        kept &= _fulfils(matcher, [get_value(row.labels, matcher.label) for row in rows])
    return [row for row, keep in zip(rows, kept.tolist(), strict=True) if keep]


class Prefetched(msgspec.Struct, frozen=True):
    """The samples that were read in advance for each selector of a query."""

    samples: dict[VectorSelector, WindowSamples]
    of_facts: bool = False
    """True if a selector names a metric of facts."""

    def read(self, selector: VectorSelector, start_ms: int, end_ms: int) -> WindowSamples:  # noqa: ARG002 - read as wide as needed
        """Return the samples of a selector."""
        return self.samples[selector]


def prefetch(
    node: Node, times: Int64s, lookback_ms: int, project: str | None, *, of_owners: bool = False
) -> Generator[Question[Any], Any, Prefetched]:
    """Read the samples and statistics that a query at ``times``, int64 in ms, needs; ``of_owners`` as in ``find``."""
    found: dict[VectorSelector, WindowSamples] = {}
    cost = estimate_brief_cost(node)
    brief = 0 < cost * len(times) <= _BRIEF
    for one in list_reads(node, times, lookback_ms, RAW_IS_QUICK):
        since_ms = max(one.start_ms, 0)
        rows = yield from find(one.selector.alternatives, since_ms, project, of_owners=of_owners, brief=brief)
        begin, end = max(one.start_ms + 1, 0), min(one.end_ms + 1, MAX_TIME_MS)
        rolled = one.cuts and rows.stored.labels and not rows.facts
        if rolled and not (yield from _have_nonfinite_values(rows.stored, TimeRange(begin, end))):
            found[one.selector] = yield from _read_rolled(rows.stored, TimeRange(begin, end), one)
        else:
            values = cost * (_ROW_VALUES + len(times)) + _POINT_VALUES * len(times)
            few = brief and len(rows) * values <= _BRIEF
            most = _limit_brief_samples(one.selector, times, cost) if few else None
            found[one.selector] = yield from read_samples(rows, one.start_ms, one.end_ms, check=True, most=most)
    return Prefetched(found, any(one.name in FACTS for one in found))


def _limit_brief_samples(selector: VectorSelector, times: Int64s, cost: int) -> int:
    """Return the most samples of a brief query: functions visit a sample once for each window that includes it."""
    windows = len(times) if selector.range_ms else 1
    if windows > 1 and selector.at is None:
        windows = min(windows, selector.range_ms // int(times[1] - times[0]) + 1)
    return min(_BRIEF_SAMPLES, _BRIEF_VISITS // (cost * windows))


def read_samples(
    rows: SelectedRows, start_ms: int, end_ms: int, *, check: bool = False, most: int | None = None
) -> Generator[Question[Any], Any, WindowSamples]:
    """Read the samples in ``(start_ms, end_ms]`` of each row that has any, facts after stored series.

    ``check``: the result states if samples have expired. ``most`` is ``brief_samples`` of ``SamplesQuestion``.
    """
    stored = yield from _read_stored(rows.stored, start_ms, end_ms, check, most)
    return _add_facts(stored, rows.facts, start_ms, end_ms) if rows.facts else stored


def _add_facts(stored: WindowSamples, rows: Sequence[FactSeries], start_ms: int, end_ms: int) -> WindowSamples:
    room = MOST_SAMPLES
    labels, times, values = list(stored.labels), [stored.times], [stored.values]
    starts = stored.starts.tolist()
    for row in rows:
        some, their = make_samples(row.spans, start_ms, end_ms, room)
        if len(some):
            room -= len(some)
            labels.append(row.labels)
            times.append(some)
            values.append(their)
            starts.append(starts[-1] + len(some))
    return WindowSamples(labels, np.concatenate(times), np.concatenate(values), np.array(starts, np.int64))


def _read_stored(
    rows: StoredRows, start_ms: int, end_ms: int, check: bool, most: int | None
) -> Generator[Question[Any], Any, WindowSamples]:
    begin, end = max(start_ms + 1, 0), min(end_ms + 1, MAX_TIME_MS)
    if not rows.labels or begin >= end:
        return WindowSamples([], np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64))
    span = TimeRange(begin, end)
    question = SamplesQuestion(series=rows.series, range=span, check=check, ends=True, brief_samples=most)
    answer = yield from ask(question)
    columns = _merge_special_values(answer.columns, rows)
    found, kept = _samples_of_rows(columns, rows)
    if answer.expired:
        found = msgspec.structs.replace(found, expired=True)
    return _add_end_markers(found, np.array(answer.ends)[rows.places[kept]], end_ms) if answer.ends else found


def _merge_special_values(columns: SampleColumns, rows: StoredRows) -> SampleColumns:
    """Return samples of the plain series, with their special values in order of time."""
    if not len(columns) or columns.index[-1] < rows.plain:
        return columns
    index = columns.index.astype(np.int64)
    is_code = index >= rows.plain
    index[is_code] = rows.of_special[index[is_code] - rows.plain]
    order = np.lexsort((is_code, columns.time, index))
    index, times = index[order], columns.time[order]
    # A plain value stands in place of a special value at the same time.
    once = mark_first_rows(index, times)
    order = order[once]
    values, is_code = columns.value[order], is_code[order]
    values[is_code] = decode_special(values[is_code])
    return SampleColumns(index[once].astype(np.uint32), times[once], values)


def _samples_of_rows(columns: SampleColumns, rows: StoredRows) -> tuple[WindowSamples, Int64s]:
    """Return the samples of each row that has any, and the positions of these rows."""
    bounds = columns.index.searchsorted(rows.numbers)
    counts = bounds[1:] - bounds[:-1]
    if rows.each and counts.all():
        kept = rows.places
        values = rows.convert_units(columns.value, kept, counts)
        return WindowSamples(rows.labels, columns.time, values, bounds), kept
    kept, starts, taken = _rows_of(bounds, rows.places)
    values = rows.convert_units(columns.value[taken], kept, np.diff(starts))
    return WindowSamples([rows.labels[at] for at in kept.tolist()], columns.time[taken], values, starts), kept


def _add_end_markers(samples: WindowSamples, ends: Int64s, end_ms: int) -> WindowSamples:
    """Add stale markers to each series after the end of its job; ``ends`` as in ``Samples.ends``.

    The last samples of a job may come after its end, so a second marker follows ``LATE_MS`` after the first. The time
    of a marker depends on no other sample, so that instant and range queries have the same value at each time.
    """
    for after in (1, LATE_MS + 1):
        samples = _add_stale_markers(samples, np.where(ends == NEVER, end_ms, ends) + after, end_ms)
    return samples


def _add_stale_markers(samples: WindowSamples, at: Int64s, end_ms: int) -> WindowSamples:
    """Add a stale marker to each series at its time ``at``, up to ``end_ms``, if a value precedes the marker."""
    series = len(samples.labels)
    row = np.repeat(np.arange(series), np.diff(samples.starts))
    before = np.bincount(row[samples.times <= at[row]], minlength=series)
    places = samples.starts[:-1] + before
    last = np.maximum(places - 1, 0)
    ended = (at <= end_ms) & (before > 0) & (samples.times[last] < at) & ~is_stale(samples.values[last])
    if not ended.any():
        return samples
    return msgspec.structs.replace(
        samples,
        times=np.insert(samples.times, places[ended], at[ended]),
        values=np.insert(samples.values.view(np.int64), places[ended], STALE).view(np.float64),
        starts=samples.starts + np.concatenate(([0], np.cumsum(ended))),
    )


def _have_nonfinite_values(rows: StoredRows, span: TimeRange) -> Generator[Question[Any], Any, bool]:
    """Return True if the rows have NaN or infinities in the range. Roll-ups of the plain values do not have them.

    Functions of ranges skip stale markers.
    """
    special = rows.series[rows.plain :]
    if not special:
        return False
    answer = yield from ask(SamplesQuestion(series=special, range=span))
    return bool((answer.columns.value != STALE_CODE).any())


def _rows_of(bounds: Int64s, places: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows that have samples, the start of each row's samples, and the positions of the samples.

    ``bounds`` int64[series + 1] is the start of each series' samples, ``places`` int64[rows] the series of each row.
    """
    low, high = bounds[places], bounds[places + 1]
    kept = np.nonzero(high > low)[0]
    counts = (high - low)[kept]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return kept, starts, np.arange(starts[-1]) - np.repeat(starts[:-1] - low[kept], counts)


def _read_rolled(rows: StoredRows, span: TimeRange, read: SelectorRead) -> Generator[Question[Any], Any, WindowSamples]:
    """Read the statistics of the samples between successive cuts of a read."""
    cuts = read.cuts or ()
    series = rows.series[: rows.plain]
    answer = yield from ask(RollupsQuestion(series=series, range=span, cuts=cuts, growth=read.growth))
    columns = answer.columns
    bounds = columns.index.searchsorted(rows.numbers)
    kept, starts, taken = _rows_of(bounds, rows.places)
    counts = np.diff(starts)

    def values(column: Float64s) -> Float64s:
        return rows.convert_units(column[taken], kept, counts)

    rolled = RolledSamples(
        count=columns.count[taken].astype(np.int64),
        sum=values(columns.sum),
        minimum=values(columns.minimum),
        maximum=values(columns.maximum),
        first=values(columns.first),
        first_time=columns.first_time[taken],
        increase=values(columns.increase),
    )
    labels = [rows.labels[at] for at in kept.tolist()]
    return WindowSamples(labels, columns.last_time[taken], values(columns.last), starts, rolled, answer.expired)


def _convert_units(values: Float64s, divisors: Float64s) -> Float64s:
    """Return values divided by the divisors, without noise. Infinities, NaN and stale markers keep their bits."""
    other = np.nonzero((divisors != 1.0) & np.isfinite(values))[0]
    if not len(other):
        return values
    found = values.copy()
    with np.errstate(all="ignore"):
        quotient = values[other] / divisors[other]
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(quotient))))
        rounded = np.round(quotient * scale) / scale
    found[other] = np.where(np.isfinite(rounded), rounded, quotient)
    return found
