"""The series and samples of selectors, by questions: stored series, and series made of facts."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from jobmeter.dialects.base import ask
from jobmeter.dialects.prometheus.facts import FACTS, MOST_SAMPLES, FactSpan, find_facts, samples_of
from jobmeter.dialects.prometheus.names import (
    APP,
    JOB,
    PREFIX,
    PROJECT,
    Exposed,
    SentNames,
    exposed,
    mapped_to,
    names_of,
    sent_names,
    stored_names,
)
from jobmeter.model.batch import NEVER, Float64s, Int64s
from jobmeter.model.question import Question
from jobmeter.model.series import SPECIAL, NamePart, Series, job_key
from jobmeter.model.special import STALE, STALE_CODE, decode_special, is_special, plain_of
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.promql.labels import Labels, value_of, with_label
from jobmeter.promql.nodes import NAME, Matcher, Node, VectorMatch, VectorSelector
from jobmeter.promql.reads import SelectorRead, brief_nodes, reads
from jobmeter.promql.regex import full_matches
from jobmeter.promql.windows import RolledSamples, WindowSamples, is_stale
from jobmeter.query.defaults import LATE_MS
from jobmeter.query.rollups import RollupsQuestion
from jobmeter.query.series import FoundSeries, LastQuestion, NamesQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.source import RAW_IS_QUICK

MOST_NAMES = 10_000
_BRIEF = 50_000
"""Most values, in all nodes of a query together, that the event loop may compute: about a millisecond."""
_ROW_VALUES = 20
"""Number of values for which a row counts besides its points."""
_POINT_VALUES = 10
"""Number of values for which a point of an answer counts, because it is written as text."""
_BRIEF_SAMPLES = 20_000
"""Most samples that the event loop may read."""
_MATCHER_BYTES = 300
"""Approximate memory of a matcher besides its texts, in bytes."""
_EXPORTED = "exported_project"
_DIGITS = 12
"""Digits of a value in an exporter's unit: a division makes noise beyond them."""


class FactSeries(msgspec.Struct, frozen=True):
    """A series that is made of facts."""

    labels: Labels
    spans: tuple[FactSpan, ...]


Row = Exposed | FactSeries
Found = Generator[Question[Any], Any, Sequence[Row]]
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

    ``of_owners``: each series has a label with its project. A sent label of this name becomes ``exported_project``, as
    in Prometheus for labels of its targets. ``brief`` as in ``SeriesQuestion``.
    """
    if len(alternatives) == 1:
        return (yield from _find(alternatives[0], since_ms, project, of_owners, brief))
    found: dict[Row, None] = {}
    for matchers in alternatives:
        found.update(dict.fromkeys((yield from _find(matchers, since_ms, project, of_owners, brief))))
    return _ordered(found)


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(dict.fromkeys(rows), key=lambda one: one.labels)


def _find(matchers: Matchers, since_ms: int | None, project: str | None, of_owners: bool, brief: bool) -> Found:
    name = next((one.value for one in matchers if one.label == NAME and one.match is VectorMatch.EQUAL), "")
    if name in FACTS:
        named = _named(matchers)
        where = named.get(PROJECT) or project
        ids = (named[JOB],) if named.get(JOB) else ()
        spans = yield from find_facts(name, since_ms or 0, frozenset({where}) if where else None, ids)
        return _ordered(_matching(matchers, [FactSeries(labels, tuple(one)) for labels, one in spans.items()]))
    metrics = yield from _metrics(matchers, name)
    if not metrics:
        return []
    jobs = _jobs(matchers, project)
    wanted = metrics | {SPECIAL + one for one in metrics}
    answer = yield from ask(SeriesQuestion(metrics=wanted, jobs=jobs, since_ms=since_ms, brief=brief))
    sent, last = yield from _sent(answer)

    def rows(series: Sequence[Series]) -> list[Row]:
        by_time = sorted(sent, key=lambda one: (last.get(one.holder, 0), one.row.labels))
        found: list[Row] = list(_exposed(series, name, by_time))
        if of_owners:
            found = list({one.labels: one for one in map(_of_owner, found)}.values())
        return _ordered(_matching(matchers, found))

    size = sum(_MATCHER_BYTES + len(one.label) + len(one.value) for one in matchers)
    selected: Sequence[Row] = answer.derived((Exposed, tuple(matchers), of_owners, *last.items()), rows, size)
    return selected


def _sent(answer: FoundSeries) -> Generator[Question[Any], Any, tuple[Sequence[SentNames], dict[Series, int]]]:
    """Find the sent names and labels of mapped series, and the time of the last of several for one series and name."""
    sent = answer.derived(SentNames, lambda series: list(sent_names(series)))
    rivals = answer.derived((SentNames, "rivals"), lambda _: _rivals(sent))
    if not rivals:
        return sent, {}
    columns = (yield from ask(LastQuestion(series=tuple(rivals)))).columns
    return sent, {rivals[at]: time for at, time in zip(columns.index.tolist(), columns.time.tolist(), strict=True)}


def _rivals(sent: Sequence[SentNames]) -> list[Series]:
    """Return the holders of different labels for one series and name."""
    holders: dict[tuple[Series, str], list[Series]] = {}
    for one in sent:
        holders.setdefault(one.key, []).append(one.holder)
    return [one for some in holders.values() if len(some) > 1 for one in some]


def _exposed(series: Sequence[Series], name: str, sent: Sequence[SentNames]) -> Iterator[Exposed]:
    """Yield the rows of series under a name; with an empty name, under each own name and each sent name.

    A row has the labels that were sent last, if they are known. Special values without a plain series have a row too.
    """
    special = {plain_of(one): one for one in series if is_special(one.metric)}
    known: dict[Series, dict[str, Exposed]] = {}
    for under in sent:
        special.pop(plain_of(under.holder), None)
        mapped, sent_name = under.key
        known.setdefault(mapped, {})[sent_name] = under.row
    plain = [(one, special.pop(one, None)) for one in series if not is_special(one.metric)]
    for one, values in (*plain, *special.items()):
        rows = known.get(one, {})
        if name in rows:
            rows = {name: rows[name]}
        else:
            yield from exposed(one, name, values)
        if name in {"", *rows}:
            yield from (msgspec.structs.replace(row, special=values) for row in rows.values())


def _of_owner(row: Row) -> Row:
    if isinstance(row, FactSeries) or (sent := value_of(row.labels, PROJECT)) == row.series.project:
        return row
    labels = with_label(row.labels, _EXPORTED, sent) if sent else row.labels
    return msgspec.structs.replace(row, labels=with_label(labels, PROJECT, row.series.project))


def _metrics(matchers: Matchers, name: str) -> Generator[Question[Any], Any, frozenset[str]]:
    """Find the stored metrics that may have the wanted names."""
    if name:
        programs: Sequence[str] = ()
        if name.startswith(PREFIX + APP[:-1]):
            programs = yield from ask(NamesQuestion(part=NamePart.METRIC, prefix=APP, limit=MOST_NAMES))
        return stored_names(name, programs)
    stored = yield from ask(NamesQuestion(part=NamePart.METRIC, limit=MOST_NAMES, special=True))
    shown = [names_of(one)[0] for one in stored]
    wanted = [one for one in matchers if one.label == NAME]
    kept = np.ones(len(stored), bool)
    for matcher in wanted:
        kept &= _fulfils(matcher, shown)
    found = [one for one, keep in zip(stored, kept.tolist(), strict=True) if keep]
    return frozenset().union(found, *(mapped_to(one) for one in found))


def _jobs(matchers: Matchers, project: str | None) -> tuple[int, ...] | None:
    """Return the keys of the one job that is asked for, where its project is known."""
    named = _named(matchers)
    where = named.get(PROJECT) or project
    return (job_key(where, named[JOB]),) if where and named.get(JOB) else None


def _named(matchers: Matchers) -> dict[str, str]:
    """Return the labels whose value is asked for."""
    return {one.label: one.value for one in matchers if one.match is VectorMatch.EQUAL}


def _fulfils(matcher: Matcher, texts: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    if matcher.match in {VectorMatch.EQUAL, VectorMatch.NOT_EQUAL}:
        found = np.array([text == matcher.value for text in texts], bool)
    else:
        distinct = sorted(set(texts))
        known = dict(zip(distinct, full_matches(matcher.value, distinct).tolist(), strict=True))
        found = np.array([known[text] for text in texts], bool)
    return ~found if matcher.match in {VectorMatch.NOT_EQUAL, VectorMatch.NOT_REGEX} else found


def _matching(matchers: Matchers, rows: list[Row]) -> list[Row]:
    kept = np.ones(len(rows), bool)
    for matcher in matchers:
        kept &= _fulfils(matcher, [value_of(row.labels, matcher.label) for row in rows])
    return [row for row, keep in zip(rows, kept.tolist(), strict=True) if keep]


class Prefetched(msgspec.Struct, frozen=True):
    """The samples of each selector of a query, read before."""

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
    nodes = brief_nodes(node)
    brief = 0 < nodes * len(times) <= _BRIEF
    for one in reads(node, times, lookback_ms):
        since_ms = max(one.start_ms, 0)
        rows = yield from find(one.selector.alternatives, since_ms, project, of_owners=of_owners, brief=brief)
        stored = [row for row in rows if isinstance(row, Exposed)]
        begin, end = max(one.start_ms + 1, 0), min(one.end_ms + 1, MAX_TIME_MS)
        rolled = one.cuts and len(stored) == len(rows) > 0 and end - begin > RAW_IS_QUICK
        if rolled and not (yield from _have_nonfinite_values(stored, TimeRange(begin, end))):
            found[one.selector] = yield from _read_rolled(stored, TimeRange(begin, end), one)
        else:
            few = brief and nodes * len(rows) * (_ROW_VALUES + len(times) * _POINT_VALUES) <= _BRIEF
            most = _brief_samples(one.selector, times, lookback_ms, nodes) if few else None
            found[one.selector] = yield from read_samples(rows, one.start_ms, one.end_ms, check=True, most=most)
    return Prefetched(found, any(one.name in FACTS for one in found))


def _brief_samples(selector: VectorSelector, times: Int64s, lookback_ms: int, nodes: int) -> int:
    """Return the most samples of a brief query: each counts once for each window that has the sample."""
    windows = len(times)
    if windows > 1 and selector.at is None:
        windows = min(windows, (selector.range_ms or lookback_ms) // int(times[1] - times[0]) + 1)
    return min(_BRIEF_SAMPLES, _BRIEF // (nodes * windows))


def read_samples(
    rows: Sequence[Row], start_ms: int, end_ms: int, *, check: bool = False, most: int | None = None
) -> Generator[Question[Any], Any, WindowSamples]:
    """Read the samples in ``(start_ms, end_ms]`` of each row that has any, facts behind stored series.

    ``check``: the result states if samples have expired. ``most`` as ``brief_samples`` of ``SamplesQuestion``.
    """
    stored = yield from _read_stored([row for row in rows if isinstance(row, Exposed)], start_ms, end_ms, check, most)
    facts = [row for row in rows if isinstance(row, FactSeries)]
    return _with_facts(stored, facts, start_ms, end_ms) if facts else stored


def _with_facts(stored: WindowSamples, rows: Sequence[FactSeries], start_ms: int, end_ms: int) -> WindowSamples:
    room = MOST_SAMPLES
    labels, times, values = list(stored.labels), [stored.times], [stored.values]
    starts = stored.starts.tolist()
    for row in rows:
        some, their = samples_of(row.spans, start_ms, end_ms, room)
        if len(some):
            room -= len(some)
            labels.append(row.labels)
            times.append(some)
            values.append(their)
            starts.append(starts[-1] + len(some))
    return WindowSamples(labels, np.concatenate(times), np.concatenate(values), np.array(starts, np.int64))


def _read_stored(
    rows: Sequence[Exposed], start_ms: int, end_ms: int, check: bool, most: int | None
) -> Generator[Question[Any], Any, WindowSamples]:
    begin, end = max(start_ms + 1, 0), min(end_ms + 1, MAX_TIME_MS)
    if not rows or begin >= end:
        return WindowSamples([], np.empty(0, np.int64), np.empty(0), np.zeros(1, np.int64))
    series: dict[Series, int] = {}
    places = np.array([series.setdefault(row.series, len(series)) for row in rows])
    special = {row.special: series[row.series] for row in rows if row.special is not None}
    every = (*series, *special)
    question = SamplesQuestion(series=every, range=TimeRange(begin, end), check=check, ends=True, brief_samples=most)
    answer = yield from ask(question)
    columns = answer.columns
    index = columns.index.astype(np.int64)
    is_code = index >= len(series)
    if is_code.any():
        index[is_code] = np.array(list(special.values()))[index[is_code] - len(series)]
        order = np.lexsort((is_code, columns.time, index))
        index, times = index[order], columns.time[order]
        # A plain value stands in place of a special value at the same time.
        once = np.append(True, (index[1:] != index[:-1]) | (times[1:] != times[:-1]))
        order, index = order[once], index[once]
    else:
        order = np.lexsort((columns.time, index))
        index = index[order]
    kept, starts, taken = _rows_of(index, places)
    taken = order[taken]
    divisors = np.repeat(np.array([row.divisor for row in rows])[kept], np.diff(starts))
    values = _in_their_units(columns.value[taken], divisors)
    is_code = is_code[taken]
    if is_code.any():
        values[is_code] = decode_special(columns.value[taken][is_code])
    labels = [rows[at].labels for at in kept.tolist()]
    found = WindowSamples(labels, columns.time[taken], values, starts, expired=answer.expired)
    return _with_ends(found, np.array(answer.ends)[places[kept]], end_ms) if answer.ends else found


def _with_ends(samples: WindowSamples, ends: Int64s, end_ms: int) -> WindowSamples:
    """Add stale markers to each series after the end of its job; ``ends`` as in ``Samples.ends``.

    The last samples of a job may come after its end. So a second marker follows ``LATE_MS`` after the first. The time
    of a marker depends on no other sample. So an instant query and a range query have the same value at each time.
    """
    for after in (1, LATE_MS + 1):
        samples = _with_markers(samples, np.where(ends == NEVER, end_ms, ends) + after, end_ms)
    return samples


def _with_markers(samples: WindowSamples, at: Int64s, end_ms: int) -> WindowSamples:
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


def _have_nonfinite_values(rows: Sequence[Exposed], span: TimeRange) -> Generator[Question[Any], Any, bool]:
    """Return True if the rows have NaN or infinities in the range. Roll-ups of the plain values do not have them.

    Functions of ranges skip stale markers.
    """
    special = tuple(dict.fromkeys(row.special for row in rows if row.special is not None))
    if not special:
        return False
    answer = yield from ask(SamplesQuestion(series=special, range=span))
    return bool((answer.columns.value != STALE_CODE).any())


def _rows_of(index: Int64s, places: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows that have samples, the start of each row's samples, and the samples as positions in ``index``.

    ``index`` int64[samples] is ascending and has the series of each sample, ``places`` int64[rows] the series of rows.
    """
    bounds = np.searchsorted(index, np.arange(int(places.max()) + 2))
    low, high = bounds[places], bounds[places + 1]
    kept = np.nonzero(high > low)[0]
    counts = (high - low)[kept]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return kept, starts, np.arange(starts[-1]) - np.repeat(starts[:-1] - low[kept], counts)


def _read_rolled(
    rows: Sequence[Exposed], span: TimeRange, read: SelectorRead
) -> Generator[Question[Any], Any, WindowSamples]:
    """Read the statistics of the samples between the cuts of a read."""
    series: dict[Series, int] = {}
    places = np.array([series.setdefault(row.series, len(series)) for row in rows])
    cuts = read.cuts or ()
    answer = yield from ask(RollupsQuestion(series=tuple(series), range=span, cuts=cuts, growth=read.growth))
    columns = answer.columns
    kept, starts, taken = _rows_of(columns.index.astype(np.int64), places)
    divisors = np.repeat(np.array([row.divisor for row in rows])[kept], np.diff(starts))

    def values(column: Float64s) -> Float64s:
        return _in_their_units(column[taken], divisors)

    rolled = RolledSamples(
        count=columns.count[taken].astype(np.int64),
        sum=values(columns.sum),
        minimum=values(columns.minimum),
        maximum=values(columns.maximum),
        first=values(columns.first),
        first_time=columns.first_time[taken],
        increase=values(columns.increase),
    )
    labels = [rows[at].labels for at in kept.tolist()]
    return WindowSamples(labels, columns.last_time[taken], values(columns.last), starts, rolled, answer.expired)


def _in_their_units(values: Float64s, divisors: Float64s) -> Float64s:
    other = np.nonzero(divisors != 1.0)[0]
    if not len(other):
        return values
    found = values.copy()
    with np.errstate(all="ignore"):
        quotient = values[other] / divisors[other]
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(quotient))))
        rounded = np.round(quotient * scale) / scale
    found[other] = np.where(np.isfinite(rounded), rounded, quotient)
    return found
