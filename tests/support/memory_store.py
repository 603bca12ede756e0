"""Simple storage engine in dictionaries, which computes roll-ups from the samples at each read.

It is the oracle for tests of the real engines. Its data ends with the process.
"""

import threading
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

import msgspec
import numpy as np

from jobmeter.errors import ConflictError, InvalidRequestError, LimitExceededError
from jobmeter.model.batch import Bools, BucketColumns, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.catalog import Kind, find
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine, LogPage
from jobmeter.model.log_tree import find_level, find_severity, matches
from jobmeter.model.move import MoveLine, MoveOrder
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.span import Span
from jobmeter.model.time import DAY, HOUR, TimeRange, ceil_to, floor_to
from jobmeter.store.base import (
    NEWEST,
    PAGE_BYTES,
    EngineUse,
    LogSelector,
    ReadBudget,
    SeriesPage,
    SeriesPlace,
    SeriesSelector,
    StoreMemory,
    StoreStatistics,
    Tier,
    list_names,
)
from jobmeter.store.damage import DamagedPart
from tests.store_contract.memory_spans import MemorySpans
from tests.store_contract.samples import Bucket

_BLOCK = 65_536
_FILE = "memory.json"
_RETENTION = Retention()
_Key = tuple[int, int]


class _Saved(msgspec.Struct):
    series: list[Series]
    samples: list[list[tuple[int, float]]]
    stale: list[tuple[int, int]]
    until: int
    logs: list[LogLine] = []
    spans: list[Span] = []


class MemoryOutbox:
    """Implements ``jobmeter.store.base.OutboxStore`` in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[int, dict[int, OutboxRow]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        with self._lock:
            return sum(map(len, self._rows.values()))

    def append(self, shipper: int, rows: Sequence[OutboxRow]) -> None:
        """Store rows."""
        with self._lock:
            self._rows.setdefault(shipper, {}).update({row.number: row for row in rows})

    def read(self, shipper: int, after: int, lines: int, size: int) -> list[OutboxRow]:
        """Return the rows after a number, in order."""
        with self._lock:
            own = self._rows.get(shipper, {})
            found = [own[number] for number in sorted(own) if number > after][:lines]
        taken = accumulate(len(row.line) for row in found)
        return [row for place, (row, total) in enumerate(zip(found, taken, strict=True)) if not place or total <= size]

    def trim(self, shipper: int, until: int | None) -> None:
        """Delete the rows up to a number, or all rows for None."""
        with self._lock:
            own = self._rows.get(shipper, {})
            self._rows[shipper] = {} if until is None else {at: row for at, row in own.items() if at > until}


class MemoryLogs:
    """Implements ``jobmeter.store.base.LogStore`` in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[int, dict[tuple[int, str, int, str, bytes], LogLine]] = {}

    def append(self, lines: Sequence[LogLine], retention: Retention = _RETENTION) -> None:
        """Store log lines; they never expire."""
        with self._lock:
            for line in lines:
                self._lines.setdefault(line.key, {})[line.order] = line

    def read(self, selector: LogSelector, budget: ReadBudget) -> LogPage:
        """Return one page of the lines of a job or a node."""
        with self._lock:
            lines = [line for key in selector.keys for line in self._lines.get(key, {}).values()]
        found = sorted((line for line in lines if _selects(line, selector)), key=lambda line: line.order)
        page = (found[::-1] if selector.descending else found)[selector.offset : selector.offset + selector.limit]
        if sum(len(line.text.encode()) for line in page) > PAGE_BYTES:
            raise LimitExceededError(f"a page of lines may have {PAGE_BYTES} bytes: lower the limit", "limit")
        if not selector.count:
            return LogPage(page)
        return LogPage(page, len(found), sum(len(line.text.encode()) for line in found))

    def all(self) -> list[LogLine]:
        """Return every line."""
        with self._lock:
            return [line for lines in self._lines.values() for line in lines.values()]

    def delete(self, key: int) -> None:
        """Delete the lines of a job or a node."""
        with self._lock:
            self._lines.pop(key, None)


class MemoryStore:
    """Implements ``jobmeter.store.base.Store`` in memory. "Durable" means for the life of the process."""

    memory: StoreMemory | None = None
    """Always None: this engine has no window."""
    engine_use: EngineUse | None = None
    """Always None: no other process can use the engine."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._series: dict[_Key, Series] = {}
        self._samples: dict[_Key, dict[int, float]] = {}
        self._sorted: dict[_Key, list[tuple[int, float]]] = {}
        self._rollups: dict[tuple[_Key, Tier], list[tuple[int, Bucket]]] = {}
        self._stale: set[tuple[int, int]] = set()  # (job key, start of an hour whose roll-up lacks samples)
        self._until = 0
        self.logs = MemoryLogs()
        self.spans = MemorySpans()
        self.outbox = MemoryOutbox()

    def append_all(self, batches: Sequence[SampleBatch], retention: Retention = _RETENTION) -> None:
        """Store the samples of each batch in order, with their series. They never expire."""
        for batch in batches:
            self._append(batch)

    def _append(self, batch: SampleBatch) -> None:
        keys = [(series.job_key, series.id) for series in batch.series]
        with self._lock:
            self._series.update(zip(keys, batch.series, strict=True))
            rows = zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
            late_hours: set[tuple[_Key, int]] = set()
            for index, time, value in rows:
                self._samples.setdefault(keys[index], {})[time] = value
                late_hours.add((keys[index], floor_to(time, HOUR)))
            for key in keys:
                self._forget(key)
            self._mark(late_hours)

    def _mark(self, late_hours: set[tuple[_Key, int]]) -> None:
        """Mark hours.

        For counters also mark the next hour with samples: its first increase depends on the new samples.
        """
        for key, hour in late_hours:
            self._stale.add((key[0], hour))
            if self._is_counter(key):
                samples = self._row(key)
                following = samples[_place(samples, hour + HOUR) :][:1]
                self._stale.update((key[0], floor_to(time, HOUR)) for time, _ in following)

    def use_series(self, table: SeriesTable) -> None:
        """Do nothing: this engine keeps its own dictionaries."""

    def lacks_descriptor(self, keys: SeriesKeys, since_ms: int = 0) -> Bools:
        """Return False: this engine does not track descriptors."""
        return np.zeros(len(keys), np.bool_)

    def find(self, selector: SeriesSelector) -> list[Series]:
        """Return the series that match."""
        with self._lock:
            found = [series for key, series in self._series.items() if self._matches(key, series, selector)]
        if len(found) > selector.limit:
            raise LimitExceededError(f"more than {selector.limit} series match", "series")
        return found

    def list_live_series(self, since_ms: int, most: int, place: SeriesPlace = NEWEST) -> SeriesPage:
        """Return a page of series with samples since a time."""
        with self._lock:
            last = ((max(own) // DAY, key) for key, own in self._samples.items() if own and max(own) >= since_ms)
            # Newest day first, and by key within a day.
            every = sorted((-day, *key) for day, key in last)
        found = [one for one in every if one >= (-place[0], *place[1:])]
        job, series = (np.array([one[column] for one in found[:most]], np.uint64) for column in (1, 2))
        following = (-found[most][0], *found[most][1:]) if len(found) > most else None
        return SeriesPage(SeriesKeys(job, series), following)

    def list_names(self, selector: SeriesSelector, part: NamePart, prefix: str = "") -> list[str]:
        """Return the distinct names of a field in the matching series, sorted."""
        with self._lock:
            found = {
                name
                for key, series in self._series.items()
                if self._matches(key, series, selector)
                for name in list_names(series, part)
            }
        return sorted(name for name in found if name and name.startswith(prefix))[: selector.limit]

    def _matches(self, key: _Key, series: Series, selector: SeriesSelector) -> bool:
        if not selector.make_name_filter()(series) or (selector.jobs is not None and key[0] not in selector.jobs):
            return False
        return selector.since is None or max(self._samples.get(key, ()), default=-1) >= selector.since

    def _rows(self, keys: SeriesKeys) -> list[list[tuple[int, float]]]:
        with self._lock:
            return [self._row(key) for key in zip(keys.job.tolist(), keys.series.tolist(), strict=True)]

    def _row(self, key: _Key) -> list[tuple[int, float]]:
        if key not in self._sorted:
            self._sorted[key] = sorted(self._samples.get(key, {}).items())
        return self._sorted[key]

    def read(self, keys: SeriesKeys, span: TimeRange, budget: ReadBudget) -> Generator[SampleColumns]:
        """Yield raw samples in blocks."""
        rows = [
            (index, time, value)
            for index, samples in enumerate(self._rows(keys))
            for time, value in samples[_place(samples, span.start_ms) : _place(samples, span.end_ms)]
        ]
        _check(len(rows), budget)
        for at in range(0, len(rows), _BLOCK):
            yield _columns(rows[at : at + _BLOCK])

    def read_imported_buckets(self, keys, span, step_ms):
        """Return None: nothing is cached."""

    def read_buckets(self, keys: SeriesKeys, span: TimeRange, tier: Tier, budget: ReadBudget) -> BucketColumns:
        """Return correct roll-up rows at any time, regardless of ``find_rolled_up_ranges``."""
        rows = [
            (index, start, bucket)
            for index, (key, samples) in enumerate(zip(_pairs(keys), self._rows(keys), strict=True))
            for start, bucket in self._buckets(key, samples, tier)
            if span.start_ms <= start < span.end_ms
        ]
        _check(len(rows), budget)
        columns = {
            name: np.array([getattr(bucket, name) for _, _, bucket in rows], _TYPES.get(name, np.float64))
            for name in Bucket.__dataclass_fields__
        }
        index, start = np.array([row[0] for row in rows], np.uint32), np.array([row[1] for row in rows], np.int64)
        return BucketColumns(index=index, time=start, **columns)

    def _buckets(self, key: _Key, samples: list[tuple[int, float]], tier: Tier) -> list[tuple[int, Bucket]]:
        """Return roll-up rows, cached since the last write to the series."""
        with self._lock:
            if (key, tier) not in self._rollups:
                self._rollups[key, tier] = _buckets(samples, int(tier), counter=self._is_counter(key))
            return self._rollups[key, tier]

    def _forget(self, key: _Key) -> None:
        self._sorted.pop(key, None)
        for tier in Tier:
            self._rollups.pop((key, tier), None)

    def _is_counter(self, key: _Key) -> bool:
        series = self._series.get(key)
        metric = find(series.metric) if series else None
        return metric is not None and metric.kind is Kind.COUNTER

    def read_previous(self, keys: SeriesKeys, before_ms: int, budget: ReadBudget) -> SampleColumns:
        """Return the last sample of each series before a time."""
        rows: list[tuple[int, int, float]] = []
        for index, samples in enumerate(self._rows(keys)):
            place = _place(samples, before_ms)
            rows.extend((index, *sample) for sample in samples[max(place - 1, 0) : place])
        _check(len(rows), budget)
        return _columns(rows)

    def find_rolled_up_ranges(self, jobs: Sequence[int], span: TimeRange) -> list[TimeRange]:
        """Return the hour-aligned parts of ``span`` without marked hours."""
        with self._lock:
            stale = {hour for job, hour in self._stale if job in set(jobs)}
            end = min(floor_to(span.end_ms, HOUR), self._until)
        parts: list[TimeRange] = []
        for hour in range(ceil_to(span.start_ms, HOUR), end, HOUR):
            if hour in stale:
                continue
            if parts and parts[-1].end_ms == hour:
                parts[-1] = TimeRange(parts[-1].start_ms, hour + HOUR)
            else:
                parts.append(TimeRange(hour, hour + HOUR))
        return parts

    def get_revision(self, jobs: Sequence[int] | None) -> None:
        """Return None: other writers can change the same samples."""

    def roll_up(self, until_ms: int) -> int:
        """Remove the marks of hours up to a time. Return the number of hours."""
        with self._lock:
            self._until = max(self._until, floor_to(until_ms, HOUR))
            done = {entry for entry in self._stale if entry[1] + HOUR <= self._until}
            self._stale -= done
        return len({hour for _, hour in done})

    def read_last_times(self, jobs: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the times of the first and the last sample of each job key with samples."""
        times: dict[int, tuple[int, int]] = {}
        with self._lock:
            for (job, _), samples in self._samples.items():
                if job in set(jobs) and samples:
                    first, last = times.get(job, (min(samples), max(samples)))
                    times[job] = (min(first, *samples), max(last, *samples))
        return times

    def delete_job(self, job: int) -> None:
        """Delete all data of a job key."""
        with self._lock:
            self.logs.delete(job)
            self.spans.delete(job)
            for key in [key for key in self._series if key[0] == job]:
                del self._series[key]
                self._samples.pop(key, None)
                self._forget(key)
            self._stale = {entry for entry in self._stale if entry[0] != job}

    def list_damaged(self) -> Sequence[DamagedPart]:
        """Return no parts: memory has no files."""
        return ()

    def read_statistics(self) -> StoreStatistics:
        """Return the number of rows and the bytes of their numbers. Roll-ups take no space."""
        with self._lock:
            samples = sum(map(len, self._samples.values()))
            logs = len(self.logs.all())
            rows = {"samples": samples, "minutes": 0, "hours": 0, "series": len(self._series), "logs": logs}
            rows["spans"] = len(self.spans.all())
        rows["outbox"] = len(self.outbox)
        return StoreStatistics(rows=rows, bytes={name: 16 * count for name, count in rows.items()})

    def check_writable(self) -> None:
        """Accept every write."""

    def move(self, order: MoveOrder) -> Iterator[MoveLine]:
        """Refuse: no second engine of this kind exists."""
        raise InvalidRequestError(f"a store in memory does not move to {order.to}", "to")

    def backup(self, directory: Path) -> None:
        """Write a backup of everything into a directory."""
        with self._lock:
            saved = _Saved(
                series=list(self._series.values()),
                samples=[self._row(key) for key in self._series],
                stale=sorted(self._stale),
                until=self._until,
                logs=self.logs.all(),
                spans=self.spans.all(),
            )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _FILE).write_bytes(msgspec.json.encode(saved))

    def restore(self, directory: Path) -> None:
        """Restore a backup into an empty store."""
        saved = msgspec.json.decode((directory / _FILE).read_bytes(), type=_Saved)
        with self._lock:
            if self._series or self.logs.all() or self.spans.all():
                raise ConflictError("a backup is restored into an empty store only, this one is not")
            for series, samples in zip(saved.series, saved.samples, strict=True):
                key = (series.job_key, series.id)
                self._series[key] = series
                self._samples[key] = dict(samples)
            self._stale = set(saved.stale)
            self._until = saved.until
        self.logs.append(saved.logs)
        self.spans.append(saved.spans)

    def close(self) -> None:
        """Do nothing: the data stays readable."""


_TYPES: dict[str, type[np.generic]] = {
    "count": np.uint64,
    "first_time": np.int64,
    "last_time": np.int64,
    "elapsed": np.int64,
}


def _place(samples: list[tuple[int, float]], time_ms: int) -> int:
    """Return the position of the first sample at or after a time."""
    return bisect_left(samples, time_ms, key=itemgetter(0))


def _pairs(keys: SeriesKeys) -> list[_Key]:
    return list(zip(keys.job.tolist(), keys.series.tolist(), strict=True))


def _columns(rows: Sequence[tuple[int, int, float]]) -> SampleColumns:
    index, time, value = list(zip(*rows, strict=True)) or ((), (), ())
    return SampleColumns(np.array(index, np.uint32), np.array(time, np.int64), np.array(value, np.float64))


def _selects(line: LogLine, selector: LogSelector) -> bool:
    names = (not selector.replicas or line.replica in selector.replicas) and selector.stream in {"", line.stream}
    times = (selector.start_ns is None or line.time_ns >= selector.start_ns) and (
        selector.end_ns is None or line.time_ns < selector.end_ns
    )
    least = selector.min_level
    own = find_level(line)
    level = least is None or (own is not None and _LEVELS.index(own) >= _LEVELS.index(least))
    return (
        names
        and times
        and level
        and selector.attempt in {None, line.attempt}
        and _contains(line.text, selector.contains)
        and _of_system(line, selector)
    )


def _of_system(line: LogLine, selector: LogSelector) -> bool:
    severity = find_severity(line)
    return (
        selector.node in {"", line.node}
        and (selector.max_severity is None or (severity is not None and severity <= selector.max_severity))
        and (selector.query is None or matches(selector.query, line))
    )


def _contains(text: str, part: str) -> bool:
    return part.lower() in text.lower()


_LEVELS = list(Level)


def _check(rows: int, budget: ReadBudget) -> None:
    if rows > budget.rows:
        raise LimitExceededError(f"the question reads more than {budget.rows} stored rows", "range")


def _buckets(samples: list[tuple[int, float]], step_ms: int, *, counter: bool) -> list[tuple[int, Bucket]]:
    """Compute the roll-up rows of one series sample by sample: slow, but easy to verify."""
    done: list[tuple[int, Bucket]] = []
    previous = samples[0] if samples else (0, 0.0)
    for time, value in samples:
        growth = (value - previous[1] if value >= previous[1] else value) if counter else 0.0
        passed = time - previous[0] if counter else 0
        start = floor_to(time, step_ms)
        if done and done[-1][0] == start:
            old = done[-1][1]
            bucket = Bucket(
                count=old.count + 1,
                sum=old.sum + value,
                minimum=min(old.minimum, value),
                maximum=max(old.maximum, value),
                first=old.first,
                first_time=old.first_time,
                last=value,
                last_time=time,
                increase=old.increase + growth,
                elapsed=old.elapsed + passed,
            )
            done[-1] = start, bucket
        else:
            done.append((start, Bucket(1, value, value, value, value, time, value, time, growth, passed)))
        previous = (time, value)
    return done
