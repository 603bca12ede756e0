"""State of StatsD's metrics between two collections, for each process that sends.

A gauge is stored at once. A counter becomes its total since the first report, and ``NAME_per_second`` over the
interval. Timers and histograms become their mean as ``NAME``, and ``NAME_count``, ``NAME_max`` and ``NAME_p95``. A set
becomes the number of its members in the interval.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from jobmeter.collect.base import Labels, Owner
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter
from jobmeter.wire.program.statsd import StatsdLine, StatsdType

MOST_KEYS = 500
"""Most metrics of a replica."""
MOST_MEMBERS, MOST_TIMES = 10_000, 50_000
"""Most members of sets, and most values of timers for the quantile, of a replica in an interval."""
STEP_TAG = "step"
"""Tag whose value is the step of a gauge."""

_Key = tuple[Reporter, str, Labels]


@dataclass(slots=True)
class _Times:
    count: float = 0.0
    total: float = 0.0
    highest: float = 0.0
    values: list[float] = field(default_factory=list)


class StatsdState:
    """Aggregates lines. For one thread at a time."""

    def __init__(self) -> None:
        self._keys: defaultdict[Owner, set[tuple[StatsdType, _Key]]] = defaultdict(set)
        self._held: Counter[tuple[Owner, StatsdType]] = Counter()
        self._gauges: dict[_Key, float] = {}
        self._totals: dict[_Key, float] = {}
        self._added: defaultdict[_Key, float] = defaultdict(float)
        self._times: defaultdict[_Key, _Times] = defaultdict(_Times)
        self._sets: defaultdict[_Key, set[str]] = defaultdict(set)
        self._flushed_ms: int | None = None

    def has_room(self, reporter: Reporter, line: StatsdLine) -> bool:
        """Return False if the metric of a line is new, and the replica has too many."""
        keys, key = self._keys[reporter.owner], (line.type, _key(reporter, line))
        if key not in keys and len(keys) >= MOST_KEYS:
            return False
        keys.add(key)
        return True

    def take(self, reporter: Reporter, line: StatsdLine) -> tuple[str, float, float | None, Labels] | None:
        """Take a line that has room. Return a gauge's name, value, step and labels, because it is stored at once."""
        key = _key(reporter, line)
        if line.type is StatsdType.GAUGE:
            value = self._gauges.get(key, 0.0) + sum(line.values) if line.relative else line.values[-1]
            self._gauges[key] = value
            return line.name, value, _step(line.tags), key[2]
        if line.type is StatsdType.COUNTER:
            self._added[key] += sum(line.values) / line.rate
            self._totals[key] = self._totals.get(key, 0.0) + sum(line.values) / line.rate
        elif line.type is StatsdType.SET:
            members, held = self._sets[key], (reporter.owner, line.type)
            before = len(members)
            members.update(line.members[: MOST_MEMBERS - self._held[held]])
            self._held[held] += len(members) - before
        else:
            self._add_times(key, line)
        return None

    def flush(self, now_ms: int) -> Iterator[tuple[Reporter, Sequence[ReportedPoint]]]:
        """Yield the aggregated values of the interval since the last call."""
        before, self._flushed_ms = self._flushed_ms, now_ms
        for (reporter, name, labels), added in self._added.items():
            values = {name: self._totals[reporter, name, labels]}
            if before is not None and now_ms > before:
                values[f"{name}_per_second"] = added * 1000 / (now_ms - before)
            yield reporter, [ReportedPoint(now_ms, None, values, labels)]
        for (reporter, name, labels), times in self._times.items():
            mean = times.total / times.count
            ordered = sorted(times.values)
            values = {name: mean, f"{name}_count": times.count, f"{name}_max": times.highest}
            if ordered:
                values[f"{name}_p95"] = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
            yield reporter, [ReportedPoint(now_ms, None, values, labels)]
        for (reporter, name, labels), members in self._sets.items():
            yield reporter, [ReportedPoint(now_ms, None, {name: float(len(members))}, labels)]
        self._added.clear()
        self._times.clear()
        self._sets.clear()
        self._held.clear()

    def forget(self, owners: Iterable[Owner]) -> None:
        """Drop the state of replicas."""
        gone = frozenset(owners)
        for owner in gone:
            self._keys.pop(owner, None)
        self._gauges = {key: value for key, value in self._gauges.items() if key[0].owner not in gone}
        self._totals = {key: value for key, value in self._totals.items() if key[0].owner not in gone}

    def _add_times(self, key: _Key, line: StatsdLine) -> None:
        times, weight, held = self._times[key], 1 / line.rate, (key[0].owner, StatsdType.TIMER)
        times.highest = max(*line.values, times.highest if times.count else line.values[0])
        times.count += weight * len(line.values)
        times.total += weight * sum(line.values)
        room = line.values[: MOST_TIMES - self._held[held]]
        times.values += room
        self._held[held] += len(room)


def _key(reporter: Reporter, line: StatsdLine) -> _Key:
    return reporter, line.name, tuple(tag for tag in line.tags if tag[0] != STEP_TAG)


def _step(tags: Labels) -> float | None:
    text = dict(tags).get(STEP_TAG, "")
    try:
        return float(text) if text else None
    except ValueError:
        return None
