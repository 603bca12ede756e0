"""Collector and record source of program reports: values as ``app.*``, events, and facts about the job.

Values have the times of their reports. Everything that a program controls is bounded: names, values a second, events a
minute, facts. Values beyond a bound are counted in ``app.dropped`` of the replica.
"""

import logging
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Lock

from jobmeter.collect.base import Labels, NodeIdentity, Owner, Samples
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.member import Member
from jobmeter.collect.reports.derived import DERIVED, DerivedValues
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter, Reporters
from jobmeter.collect.reports.statsd import StatsdState
from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.record import MAX_REASON, EventRecord, JobRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.series import MAX_LABEL_VALUE, Series
from jobmeter.model.time import DAY
from jobmeter.model.token_bucket import TokenBucket
from jobmeter.wire.program import report, statsd

MOST_SERIES = 500
"""Most series of a replica."""
MOST_NAMES = 2_000
"""Most names of a replica whose sources are compared."""
MOST_REPLICAS = 4_096
VALUES_A_SECOND, VALUES_AT_ONCE = 2_000, 20_000
"""Values of a replica that are stored per second, and in a burst."""
MOST_WAITING = 100_000
"""Most values that wait for the next collection."""
MOST_IN_TURN = 20_000
"""Most values that one collection returns. The others wait for the next one."""
EVENTS_A_SECOND, EVENTS_AT_ONCE = 0.2, 60
MOST_META = 100
_MOST_UNKNOWN, _TRIES = 256, 3
_FORGET_AFTER_MS = 3_600_000
_FUTURE_MS = 1_000
_LONGEST_META = 1_024
PREFIX = "app."
STEP, DROPPED = "app.step", "app.dropped"
NOT_FINITE = "NotFinite"
"""Reason of the event about a value that is not a finite number."""
NAME_LABEL = "name"
"""Label with the reported name where the metric's name differs."""
_PLAIN = re.compile(r"[A-Za-z0-9._:-]{1,196}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._:-]")
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_MOST_LABELS = 8
_WORD = re.compile(r"[^A-Za-z0-9]+")

_log = logging.getLogger(__name__)


class ReportSource(IntEnum):
    """Sources of values, least trusted first. The most trusted source of a name is stored."""

    LINES = 0
    FILES = 1
    STATSD = 2
    OTLP = 3
    LOG = 4


@dataclass(slots=True)
class _ReplicaReports:
    """State of one replica."""

    bucket: TokenBucket
    events: TokenBucket
    last_ms: int = 0
    dropped: int = 0
    changed: bool = False
    series: dict[tuple[str, Labels], Series] = field(default_factory=dict)
    sources: dict[str, ReportSource] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    meta: dict[str, str | float] = field(default_factory=dict)
    meta_changed: bool = False


class ProgramReports:
    """Receives reports in any thread; ``collect`` and ``take_records`` are for the loop."""

    name = "program"
    metrics = (STEP, DROPPED, *DERIVED)

    def __init__(
        self,
        place: NodeIdentity,
        clock: SampleClock,
        member_of: Callable[[int], Member | None],
        products: Callable[[], Iterable[str]] = tuple,
        proc_root: str = "/proc",
    ) -> None:
        """``products`` returns the product names of the node's accelerators."""
        self.unattributed = 0
        """Messages of processes that belong to no job that is measured here."""
        self.damaged = 0
        """Messages that could not be read."""
        self.refused = 0
        """Messages that were refused because too many arrived."""
        self.is_closed = False
        """True once no report arrives any more, so that a collection returns all values."""
        self._place = place
        self._clock = clock
        self._reporters = Reporters(member_of, proc_root)
        self._statsd = StatsdState()
        self._derived = DerivedValues(products)
        self._lock = Lock()
        self.replicas: dict[Owner, _ReplicaReports] = {}
        self._waiting: defaultdict[Series, dict[int, float]] = defaultdict(dict)
        self._count = 0
        self._events: list[EventRecord] = []
        self._unknown: deque[tuple[int, bytes, int]] = deque()

    def receive(self, pid: int, data: bytes) -> None:
        """Take a datagram of a process: a message of ``jobmeter.log`` or of StatsD."""
        with self._lock:
            self._receive(pid, data, 0)

    def find_reporter(self, pid: int) -> Reporter | None:
        """Return the replica of a process if its reports are stored here."""
        with self._lock:
            found = self._reporters.get(pid)
        return None if found is None or found.measured else found

    def add(self, reporter: Reporter, source: ReportSource, points: Iterable[ReportedPoint], dropped: int = 0) -> None:
        """Take points of a replica; ``dropped`` counts values that were lost before."""
        with self._lock:
            self._add(reporter, source, points, dropped)

    def collect(self, now_ms: int) -> Samples:
        """Return the values since the last call, each at its own time."""
        with self._lock:
            unknown, self._unknown = self._unknown, deque()
            for pid, data, tries in unknown:
                self._receive(pid, data, tries + 1)
            for reporter, points in self._statsd.flush(now_ms):
                self._add(reporter, ReportSource.STATSD, points, 0)
            for owner, labels, values in self._derived.flush(self._get_meta):
                self._add(
                    Reporter(owner, labels), ReportSource.LINES, [ReportedPoint(now_ms, None, values)], 0, derived=True
                )
            samples = self._take(MOST_WAITING if self.is_closed else MOST_IN_TURN)
            for owner, replica in self.replicas.items():
                if replica.changed:
                    replica.changed = False
                    samples.append(
                        Sample(self._place.make_replica_series(DROPPED, owner), now_ms, float(replica.dropped))
                    )
            self._forget(now_ms)
        return samples

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - events have times of their own
        """Return the events and facts since the last call."""
        with self._lock:
            events, self._events = self._events, []
            jobs: dict[str, dict[str, str | float]] = {}
            for owner, replica in self.replicas.items():
                if replica.meta_changed:
                    replica.meta_changed = False
                    jobs.setdefault(owner.job, {}).update(replica.meta)
        project = self._place.project or None
        return Records(
            jobs=[JobRecord(job_id=job, project=project, extra={"program": dict(meta)}) for job, meta in jobs.items()],
            events=events,
        )

    def _receive(self, pid: int, data: bytes, tries: int) -> None:
        reporter = self._reporters.get(pid)
        if reporter is None:
            # A process that has just begun is found by one of the next scans.
            if tries < _TRIES and len(self._unknown) < _MOST_UNKNOWN:
                self._unknown.append((pid, data, tries))
            else:
                self.unattributed += 1
            return
        if reporter.measured:
            return
        try:
            if data.startswith(report.BEGINNING):
                self._take_report(reporter, report.decode(data))
            else:
                self._take_statsd(reporter, data)
        except InvalidRequestError as error:
            self.damaged += 1
            _log.debug("a message of process %d cannot be read: %s", pid, error.message)

    def _take_report(self, reporter: Reporter, sent: report.ProgramReport) -> None:
        points = [
            ReportedPoint(
                self._clock.convert_elapsed_ms(moment), step, {name: _number(value) for name, value in values.items()}
            )
            for moment, step, values in sent.points
        ]
        self._add(reporter, ReportSource.LOG, points, sent.dropped)
        for moment, level, reason, message in sent.events:
            self._add_event(reporter, self._clock.convert_elapsed_ms(moment), level, reason, message)
        replica = self._find_replica(reporter.owner, self._clock.now_ms())
        for name, fact in sent.meta.items():
            key = name[:64].replace("/", "_").replace("~", "_")
            if replica is not None and (key in replica.meta or len(replica.meta) < MOST_META):
                text = fact[:_LONGEST_META] if isinstance(fact, str) else fact
                replica.meta_changed = replica.meta_changed or replica.meta.get(key) != text
                replica.meta[key] = text

    def _take_statsd(self, reporter: Reporter, data: bytes) -> None:
        now_ms = self._clock.now_ms()
        lines, refused = statsd.decode(data)
        self.damaged += refused
        for line in lines:
            if isinstance(line, statsd.StatsdEvent):
                self._add_event(reporter, now_ms, line.level, line.title, line.text)
            elif not self._statsd.has_room(reporter, line):
                self._add(reporter, ReportSource.STATSD, (), 1)
            elif (point := self._statsd.take(reporter, line)) is not None:
                name, value, step, labels = point
                self._add(reporter, ReportSource.STATSD, [ReportedPoint(now_ms, step, {name: value}, labels)], 0)

    def _add(
        self,
        reporter: Reporter,
        source: ReportSource,
        points: Iterable[ReportedPoint],
        dropped: int,
        *,
        derived: bool = False,
    ) -> None:
        now_ms = self._clock.now_ms()
        replica = self._find_replica(reporter.owner, now_ms)
        if replica is None:
            self.unattributed += 1
            return
        stored = list[ReportedPoint]()
        for given in points:
            time_ms = given.time_ms if given.time_ms <= now_ms + _FUTURE_MS else now_ms
            # Steps of a less trusted source, such as lines that a pipe delays, would count as steps back.
            has_step = given.step is not None and _is_trusted(replica, "step", source)
            step = given.step if has_step else None
            point = given._replace(time_ms=time_ms, step=step, labels=_labels(reporter.labels, given.labels))
            values = {name.removeprefix(PREFIX)[:MAX_LABEL_VALUE]: value for name, value in given.values.items()}
            lost = len(values) if time_ms < now_ms - DAY else self._add_values(reporter, replica, source, point, values)
            dropped += lost
            if lost < len(values):
                self._add_step(reporter, replica, point, values)
                stored.append(point)
        if not derived:
            self._derived.take(reporter, stored)
        if dropped:
            replica.dropped += dropped
            replica.changed = True

    def _add_values(
        self,
        reporter: Reporter,
        replica: _ReplicaReports,
        source: ReportSource,
        point: ReportedPoint,
        values: Mapping[str, float],
    ) -> int:
        """Store the values of a point. Returns the number of values for which there was no room."""
        lost = 0
        for name, value in values.items():
            if not _is_trusted(replica, name, source):
                continue
            if not math.isfinite(value):
                self._report_non_finite(reporter, replica, point, name, value)
            elif not self._put(reporter.owner, replica, name, point.labels, point.time_ms, value):
                lost += 1
        return lost

    def _add_step(
        self, reporter: Reporter, replica: _ReplicaReports, point: ReportedPoint, values: Mapping[str, float]
    ) -> None:
        """Store the step of a point beside its values."""
        if point.step is not None and "step" not in values and math.isfinite(point.step):
            self._put(reporter.owner, replica, "step", _labels(reporter.labels, ()), point.time_ms, point.step)

    def _put(
        self, owner: Owner, replica: _ReplicaReports, name: str, labels: Labels, time_ms: int, value: float
    ) -> bool:
        """Store a value. Returns False if a bound is reached."""
        key = name, labels
        series = replica.series.get(key)
        if series is None:
            if not name or len(replica.series) >= MOST_SERIES:
                return False
            series = replica.series[key] = self._make_series(owner, name, labels)
        values = self._waiting[series]
        if time_ms not in values:
            if self._count >= MOST_WAITING or not replica.bucket.take(1, self._clock.monotonic()):
                return False
            self._count += 1
        values[time_ms] = value
        return True

    def _make_series(self, owner: Owner, name: str, labels: Labels) -> Series:
        metric = (
            name if _PLAIN.fullmatch(name) and not name.endswith(".") else _NOT_PLAIN.sub("_", name)[:180].rstrip(".")
        )
        if metric != name:
            shown = "".join(one if one.isprintable() else "_" for one in name)[:MAX_LABEL_VALUE]
            labels = _labels(((NAME_LABEL, shown),), labels)
        return self._place.make_replica_series(PREFIX + (metric or "_"), owner, labels)

    def _report_non_finite(
        self, reporter: Reporter, replica: _ReplicaReports, point: ReportedPoint, name: str, value: float
    ) -> None:
        """Report a value that no series can hold, once for each name."""
        if name in replica.not_finite or len(replica.not_finite) >= MOST_SERIES:
            return
        replica.not_finite.add(name)
        at = "" if point.step is None else f" at step {point.step:g}"
        message = f"The program reported {name} = {value}{at}."
        self._add_event(reporter, point.time_ms, Level.WARNING, NOT_FINITE, message)

    def _add_event(self, reporter: Reporter, time_ms: int, level: Level, reason: str, message: str) -> None:
        now_ms = self._clock.now_ms()
        replica = self._find_replica(reporter.owner, now_ms)
        if replica is None:
            return
        if not replica.events.take(1, self._clock.monotonic()):
            replica.dropped += 1
            replica.changed = True
            return
        word = "".join(part[:1].upper() + part[1:] for part in _WORD.split(reason))[:MAX_REASON] or "Reported"
        time_ms = min(max(time_ms, now_ms - DAY), now_ms)
        self._events.append(self._place.make_event(time_ms, level, word, message, owner=reporter.owner))

    def _find_replica(self, owner: Owner, now_ms: int) -> _ReplicaReports | None:
        found = self.replicas.get(owner)
        if found is None:
            if len(self.replicas) >= MOST_REPLICAS:
                return None
            now = self._clock.monotonic()
            found = self.replicas[owner] = _ReplicaReports(
                TokenBucket(VALUES_A_SECOND, VALUES_AT_ONCE, now), TokenBucket(EVENTS_A_SECOND, EVENTS_AT_ONCE, now)
            )
        found.last_ms = now_ms
        return found

    def _get_meta(self, owner: Owner) -> Mapping[str, str | float]:
        replica = self.replicas.get(owner)
        return replica.meta if replica else {}

    def _take(self, most: int) -> Samples:
        """Return at most this many waiting values, series by series, oldest series first."""
        samples: Samples = []
        for series in list(self._waiting):
            values = self._waiting[series]
            if len(samples) + len(values) > most and samples:
                break
            samples += [Sample(series, time_ms, value) for time_ms, value in sorted(values.items())]
            self._count -= len(values)
            del self._waiting[series]
        return samples

    def _forget(self, now_ms: int) -> None:
        old = [owner for owner, one in self.replicas.items() if now_ms - one.last_ms > _FORGET_AFTER_MS]
        for owner in old:
            del self.replicas[owner]
        if old:
            self._derived.forget(old)
            self._statsd.forget(old)


def _is_trusted(replica: _ReplicaReports, name: str, source: ReportSource) -> bool:
    """Return True unless a more trusted source reports the name."""
    if replica.sources.get(name, source) > source:
        return False
    if name in replica.sources or len(replica.sources) < MOST_NAMES:
        replica.sources[name] = source
    return True


def _labels(own: Labels, sent: Sequence[tuple[str, str]]) -> Labels:
    """Return the labels of a series, sorted, without invalid ones and those beyond eight."""
    found = {name: value[:MAX_LABEL_VALUE] for name, value in sent[:_MOST_LABELS] if _LABEL_NAME.fullmatch(name)}
    found.update(own)
    return tuple(sorted((name, value) for name, value in found.items() if value and value.isprintable()))


def _number(value: float | str) -> float:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return math.nan
