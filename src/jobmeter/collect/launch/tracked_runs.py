"""MLflow's runs that the programs of a job log: records and samples for the outbox, and an index for reads."""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec

from jobmeter.collect.clock import OVERLAP_MS
from jobmeter.collect.outbox import Outbox
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.model.extra import Extra, merge_extra
from jobmeter.model.job import Job
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.time import Clock
from jobmeter.wire.mlflow.changes import make_entries
from jobmeter.wire.mlflow.names import NAME
from jobmeter.wire.mlflow.runs import Run, iterate_runs, make_path
from jobmeter.wire.mlflow.values import LoggedPoint, MetricValue, check_points, make_rows
from jobmeter.wire.native.encode import make_records_frame, make_samples_frame
from jobmeter.wire.native.frame import FrameKind, unpack

MOST_POINTS = 100_000
"""Most values in memory for histories."""
_MOST_KEYS = 20_000
"""Most metrics of all runs whose newest value is in memory."""


class TrackedRuns:
    """Writes runs of one job to the outbox, and answers reads about these runs. Thread-safe.

    ``project`` is empty for the project of the key. ``clock`` is the wall clock, like MLflow's times.
    """

    def __init__(self, job: str, project: str, outbox: Outbox, clock: Clock) -> None:
        self.job = job
        self.project = project
        self.outbox = outbox
        self._clock = clock
        self._lock, self._recalling = Lock(), Lock()
        self._is_recalled = False
        self._extra: str | None = None
        self._runs: dict[str, Run] = {}
        self._newest: dict[str, dict[str, LoggedPoint]] = {}
        self._histories: dict[str, dict[str, dict[tuple[int, str], LoggedPoint]]] = {}
        self._points = self._keys = 0
        self._losses = outbox.losses
        self._unsure: set[str] = set()
        """Runs whose records may be in frames that the outbox dropped."""

    @property
    def all(self) -> list[Run]:
        """All known runs."""
        return list(self._runs.values())

    def find(self, run: str) -> Run | None:
        """Return a known run; None for an unknown id."""
        return self._runs.get(run)

    def create(self, run: Run) -> None:
        """Record a new run. Raises LimitExceededError if the job's record has no room for it."""
        with self._lock:
            self._record(make_entries(run))
            self._histories[run.id] = {}

    def learn(self, stored: Mapping[str, Any]) -> None:
        """Add runs from the job's record on the server: fields by run id. Known runs do not change."""
        with self._lock:
            found = {make_path("runs", run): fields for run, fields in stored.items() if run not in self._runs}
            if found:
                self._merge(found)

    def recall(self) -> None:
        """Add the runs that an earlier `jobmeter run` of the job left on disk. Reads the disk once."""
        with self._recalling:
            if self._is_recalled:
                return
            extra: str | None = None
            for frame in self.outbox.list_stored():
                if frame.kind is FrameKind.RECORDS:
                    extra = merge_extra(extra, _extras(unpack(frame), self.job))
            self.learn(msgspec.json.decode(extra or "{}").get(NAME, {}).get("runs", {}))
            self._is_recalled = True

    def change(self, run: Run, values: dict[str, Any]) -> Run:
        """Set entries in the record of a run, and return the run. Raises LimitExceededError if the record is full."""
        with self._lock:
            if values:
                losses = self.outbox.losses
                if losses != self._losses:
                    self._losses, self._unsure = losses, set(self._runs)
                again = make_entries(self._runs[run.id]) if run.id in self._unsure else {}
                self._record(again | values)
                self._unsure.discard(run.id)
            return self._runs[run.id]

    def log(self, run: Run, values: Sequence[MetricValue]) -> None:
        """Store values. If some are ahead of the clock, stores the others and then raises InvalidRequestError."""
        latest = self._clock.now_ms() + OVERLAP_MS
        points = check_points(values)
        stored = [point for point in points if point.time <= latest]
        with self._lock:
            if stored:
                rows = make_rows(run, stored)
                samples = (Sample(series, *one) for series, values in rows.items() for one in values.items())
                self._put(make_samples_frame(samples))
                self._keep(run.id, stored)
        if len(stored) < len(points):
            early = len(points) - len(stored)
            raise InvalidRequestError(
                f"Some values were not stored because of their timestamp: {early} are ahead of the clock.", "timestamp"
            )

    def find_newest(self, run: str) -> dict[str, LoggedPoint]:
        """Return the newest value of each metric that was logged here."""
        with self._lock:
            return dict(self._newest.get(run, {}))

    def read_history(self, run: str, key: str) -> list[LoggedPoint]:
        """Return every value of a metric, in order of time. Raises UnavailableError if only the server has them."""
        with self._lock:
            known = self._histories.get(run)
            if known is None:
                raise UnavailableError(f"the server does not answer, and only the server has all values of {run}")
            return sorted(known.get(key, {}).values(), key=lambda point: (point.time, point.step))

    def _record(self, values: dict[str, Any]) -> None:
        self._merge(values)
        record = JobRecord(job_id=self.job, project=self.project or None, extra={NAME: values})
        self._put(make_records_frame(Records(jobs=[record])))

    def _put(self, frame: bytes) -> None:
        # A request for each value would cost too much time. The value leaves with the next samples.
        self.outbox.put(frame, urgent=False)

    def _merge(self, values: dict[str, Any]) -> None:
        self._extra = merge_extra(self._extra, [{NAME: values}])
        job = Job(id=self.job, project=self.project, extra=msgspec.json.decode(self._extra))
        self._runs = {run.id: run for run in iterate_runs(job)}

    def _keep(self, run: str, points: Sequence[LoggedPoint]) -> None:
        newest, history = self._newest.setdefault(run, {}), self._histories.get(run)
        for point in points:
            before = newest.get(point.key)
            if before is None and self._keys < _MOST_KEYS:
                self._keys += 1
                newest[point.key] = point
            elif before is not None and point.time >= before.time:
                newest[point.key] = point
            if history is not None:
                values = history.setdefault(point.key, {})
                self._points -= len(values)
                values[point.time, point.value if isinstance(point.value, str) else ""] = point
                self._points += len(values)
        if self._points > MOST_POINTS:
            self._points = 0
            self._histories.clear()


def _extras(records: bytes, job: str) -> list[Extra]:
    try:
        found = msgspec.json.decode(records, type=Records).jobs
    except msgspec.DecodeError:
        return []
    mine = [one.extra for one in found if one.job_id == job and one.extra]
    return [{NAME: extra[NAME]} for extra in mine if NAME in extra]
