"""Flink cluster as a ``Scheduler``: its jobs and their metrics, which are read at intervals."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.flink import meaning
from jobmeter.collect.scheduler.flink.job import (
    FlinkJob,
    endpoint_host,
    job_events,
    job_records,
    make_lost_record,
    task_manager,
)
from jobmeter.collect.scheduler.flink.rest import (
    Details,
    Exceptions,
    FlinkOverview,
    FlinkReading,
    FlinkRest,
    Subtask,
    Subtasks,
    Summary,
    Vertex,
)
from jobmeter.collect.state_file import StateFile
from jobmeter.collect.text import valid_text
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.record import EventRecord, JobRecord, Records, check_event, check_record
from jobmeter.model.sample import Sample
from jobmeter.model.series import DEFAULT_PROJECT, MAX_LABEL_VALUE, Series, check_series

JOB_MANAGER = "jobmanager"
"""Replica of a job's own metrics, as in Flink's Prometheus reporter."""
_LIST_MS = 60_000
"""Lifetime in milliseconds of a cached list of a task's metrics: operators register some late."""


@dataclass(slots=True)
class _Listed:
    attempt: int
    read_ms: int
    names: list[str]


@dataclass(slots=True, eq=False)
class FlinkMeter:
    """Measures jobs. It caches, for each running job, the names of its tasks' metrics, and its count of restarts."""

    rest: FlinkRest
    cluster: str
    _lists: dict[tuple[str, str], _Listed] = field(default_factory=dict)
    _restarts: dict[str, tuple[float, int]] = field(default_factory=dict)

    def measure(self, job: FlinkJob, exclusive: frozenset[str], now_ms: int) -> list[Sample]:
        """Return the samples of a running job. ``exclusive`` are the task managers that only work for this job.

        Values that Flink has not collected yet, or does not measure, are absent.
        """
        details = job.details
        if details is None:
            return []
        found = list(self._measure_job(job, now_ms))
        for vertex, task in zip(details.vertices, _tasks(details), strict=True):
            found += self._measure_task(job, vertex, task, now_ms)
        for name, node in _task_managers(job):
            found += self._measure_task_manager(job, name, node, exclusive, now_ms)
        return found

    def forget(self, running: Iterable[str]) -> None:
        """Drop the caches of all jobs but these."""
        stay = set(running)
        self._lists = {key: value for key, value in self._lists.items() if key[0] in stay}
        self._restarts = {key: value for key, value in self._restarts.items() if key in stay}

    def _measure_job(self, job: FlinkJob, now_ms: int) -> Iterator[Sample]:
        jid = job.listed.jid
        read = self.rest.values(f"/jobs/{jid}/metrics", meaning.JOB)
        place = Series("", "", self.cluster, job=jid, replica=JOB_MANAGER)
        for one in meaning.measure_job(read):
            yield _sample(place, one, now_ms)
        count = read.get(meaning.RESTARTS)
        if count is None:
            return
        job.counted = max(job.counted, int(count))
        before, before_ms = self._restarts.get(jid, (count, now_ms))
        if now_ms > before_ms and count >= before:
            rate = (count - before) / (now_ms - before_ms) * 1000
            yield _sample(place, meaning.Measured("task_failover.rate", rate), now_ms)
        self._restarts[jid] = count, now_ms

    def _measure_task(self, job: FlinkJob, vertex: Vertex, task: str, now_ms: int) -> Iterator[Sample]:
        jid = job.listed.jid
        path = f"/jobs/{jid}/vertices/{vertex.id}"
        listed = self._lists.get((jid, vertex.id))
        if listed is None or listed.attempt != job.restarts or now_ms - listed.read_ms >= _LIST_MS:
            listed = _Listed(job.restarts, now_ms, meaning.select(self.rest.names(f"{path}/subtasks/metrics")))
            self._lists[jid, vertex.id] = listed
        if not listed.names:
            del self._lists[jid, vertex.id]
            return
        subtasks = {one.subtask: one for one in job.subtasks.get(vertex.id, ()) if task_manager(one)}
        parameters = [f"{number}.{name}" for number in sorted(subtasks) for name in listed.names]
        by_subtask: dict[int, dict[str, float]] = {}
        for name, value in self.rest.values(f"{path}/metrics", parameters).items():
            number, _, metric = name.partition(".")
            by_subtask.setdefault(int(number), {})[metric] = value
        for at, read in by_subtask.items():
            place = self._make_place(job, task_manager(subtasks[at]), endpoint_host(subtasks[at].endpoint))
            labels = (("subtask", str(at)), ("task", task))
            for one in meaning.measure_subtask(read):
                yield _sample(place, one._replace(labels=(*_shorten_labels(one.labels), *labels)), now_ms)

    def _measure_task_manager(
        self, job: FlinkJob, name: str, node: str, exclusive: frozenset[str], now_ms: int
    ) -> Iterator[Sample]:
        read = self.rest.values(f"/taskmanagers/{name}/metrics", meaning.TASK_MANAGER)
        place = self._make_place(job, name, node)
        for one in meaning.measure_task_manager(read):
            yield _sample(place, one, now_ms)
        if name in exclusive and (used := read.get(meaning.CPU_TIME, -1.0)) >= 0:
            yield Sample(replace(place, metric="cpu.time"), now_ms, used / 1e9)

    def _make_place(self, job: FlinkJob, replica: str, node: str) -> Series:
        return Series("", "", self.cluster, node, job=job.listed.jid, replica=replica, attempt=job.restarts)


def exclusive_task_managers(jobs: Iterable[FlinkJob]) -> frozenset[str]:
    """Return the task managers that work for only one of these jobs."""
    users = Counter(name for job in jobs for name, _ in _task_managers(job))
    return frozenset(name for name, count in users.items() if count == 1)


def _task_managers(job: FlinkJob) -> list[tuple[str, str]]:
    """Return the task managers of a job with their nodes."""
    found = {
        name: endpoint_host(one.endpoint)
        for subtasks in job.subtasks.values()
        for one in subtasks
        if (name := task_manager(one))
    }
    return sorted(found.items())


def _tasks(details: Details) -> list[str]:
    """Name the tasks: their chains of operators, made unique if long or equal."""
    names = [valid_text(vertex.name) for vertex in details.vertices]
    alike = Counter(name[: MAX_LABEL_VALUE - 10] for name in names)
    return [
        name
        if len(name) <= MAX_LABEL_VALUE and alike[name[: MAX_LABEL_VALUE - 10]] == 1
        else f"{name[: MAX_LABEL_VALUE - 10]} {vertex.id[:8]}"
        for name, vertex in zip(names, details.vertices, strict=True)
    ]


def _shorten_labels(labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, valid_text(value)[:MAX_LABEL_VALUE]) for name, value in labels)


def _sample(place: Series, one: meaning.Measured, now_ms: int) -> Sample:
    return Sample(replace(place, metric=f"flink.{one.name}", labels=one.labels), now_ms, one.value)


_READ_MS = 60_000
"""Largest age in milliseconds of the details of a running job while Flink reports no change."""
_CACHED_MS = 6_000
"""Time in milliseconds after a change in which details are read again: Flink caches them (``web.refresh-interval``)."""
_STATE = "flink.json"
_TOUCH = "/jobmanager/metrics?get=taskSlotsTotal"

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _SavedState(msgspec.Struct):
    """Jobs that had not ended when Flink last answered."""

    answered_ms: int
    jobs: list[Summary] = []


class FlinkCluster(Scheduler):
    """Scheduler of a Flink cluster. For one thread; ``state`` is a folder that outlives the program."""

    def __init__(self, cluster: str, rest: FlinkRest, state: Path | None = None) -> None:
        self._cluster = cluster
        self._rest = rest
        self._state = StateFile(state / _STATE if state else None, msgspec.json.Decoder(_SavedState))
        self._meter = FlinkMeter(rest, cluster)
        self._answered_ms: int | None = None
        self._jobs = self._load_jobs()
        self._turn = 0
        self._short = False

    def poll(self, now_ms: int) -> Records:
        """Return the changes. A job that is no longer listed ended in an unknown state."""
        self._rest.begin()
        listed = self._rest.get("/jobs/overview", FlinkOverview) or FlinkOverview()
        if listed.jobs:
            # Flink collects metrics only after a request: this one makes the later reads fresher.
            self._rest.get(_TOUCH, list[FlinkReading])
        jobs: list[JobRecord] = []
        events: list[EventRecord] = []
        for one in self._rotate(listed.jobs):
            job = self._observe(one, now_ms)
            jobs += [record for record in job_records(job, self._cluster) if _is_legal(record)]
            events += [event for event in job_events(job) if _is_legal(event)]
        gone = self._jobs.keys() - {one.jid for one in listed.jobs}
        jobs += [self._end_lost_job(jid, now_ms) for jid in sorted(gone) if not self._jobs[jid].over]
        for jid in gone:
            del self._jobs[jid]
        self._answered_ms = now_ms
        # So that a job that disappeared during a restart of this program is reported.
        self._state.save(_SavedState(now_ms, [job.listed for job in self._jobs.values() if not job.over]))
        return Records(jobs=jobs, events=events)

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def measure(self, now_ms: int) -> list[Sample]:
        """Measure the running jobs. If the requests of an interval do not suffice, jobs take turns."""
        running = [job for job in self._jobs.values() if job.listed.state == "RUNNING"]
        self._meter.forget(job.listed.jid for job in running)
        exclusive, found, self._turn = exclusive_task_managers(running), list[Sample](), self._turn + 1
        try:
            for job in self._rotate(running):
                found += [one for one in self._meter.measure(job, exclusive, now_ms) if _is_legal(one)]
        except LimitExceededError as error:
            if not self._short:
                _log.warning("%s do not suffice to measure all jobs each time: the jobs take turns", error.message)
            self._short = True
        return found

    def _rotate(self, listed: list[T]) -> list[T]:
        first = self._turn % len(listed) if listed else 0
        return listed[first:] + listed[:first]

    def _observe(self, one: Summary, now_ms: int) -> FlinkJob:
        job = self._jobs.setdefault(one.jid, FlinkJob(one))
        same = job.listed == one or (job.over and job.details is not None)
        if not same:
            job.changed_ms = now_ms
        job.listed = one
        since = job.changed_ms + _CACHED_MS
        old = job.read_ms is None or job.read_ms < since or (not job.over and now_ms - job.read_ms >= _READ_MS)
        if not same or old:
            try:
                self._read(job, now_ms)
            except LimitExceededError:
                job.read_ms = None
        return job

    def _read(self, job: FlinkJob, now_ms: int) -> None:
        path = f"/jobs/{job.listed.jid}"
        details = self._rest.get(path, Details)
        exceptions = self._rest.get(f"{path}/exceptions", Exceptions)
        if details is None or exceptions is None:
            return
        subtasks: dict[str, list[Subtask]] = {}
        for vertex in details.vertices:
            found = self._rest.get(f"{path}/vertices/{vertex.id}", Subtasks)
            subtasks[vertex.id] = found.subtasks if found else []
        job.details, job.subtasks = details, subtasks
        job.failures = sorted(exceptions.exception_history.entries, key=lambda one: one.timestamp)
        # The answers date from different times: a job whose state changed meanwhile is read again.
        job.read_ms = now_ms if details.state == job.listed.state else None

    def _end_lost_job(self, jid: str, now_ms: int) -> JobRecord:
        return make_lost_record(self._jobs[jid], now_ms if self._answered_ms is None else self._answered_ms)

    def _load_jobs(self) -> dict[str, FlinkJob]:
        memory = self._state.load()
        if memory is None:
            return {}
        self._answered_ms = memory.answered_ms
        return {one.jid: FlinkJob(one) for one in memory.jobs}


def _is_legal(found: JobRecord | EventRecord | Sample) -> bool:
    """True if a server would accept it: one illegal name must not block all other samples."""
    try:
        if isinstance(found, JobRecord):
            check_record(found)
        elif isinstance(found, EventRecord):
            check_event(found)
        else:
            check_series(replace(found.series, project=DEFAULT_PROJECT))  # the server fills in the key's project
    except InvalidRequestError:
        return False
    return True
