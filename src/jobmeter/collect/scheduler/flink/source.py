"""Flink cluster as a ``Scheduler``: its jobs and their metrics."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from jobmeter.collect.scheduler.base import Scheduler
from jobmeter.collect.scheduler.flink.answers import (
    Details,
    Exceptions,
    FlinkOverview,
    FlinkReading,
    Subtask,
    Subtasks,
    Summary,
)
from jobmeter.collect.scheduler.flink.job import FlinkJob, make_lost_record, take_job_events, take_job_records
from jobmeter.collect.scheduler.flink.meter import FlinkMeter, find_exclusive_task_managers
from jobmeter.collect.scheduler.flink.rest import FlinkRest
from jobmeter.collect.state_file import StateFile
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.record import EventRecord, JobRecord, Records, check_event, check_record
from jobmeter.model.sample import Sample
from jobmeter.model.series import DEFAULT_PROJECT, check_series

_READ_MS = 60_000
"""Largest age in milliseconds of the details of a running job without reported changes."""
_CACHED_MS = 6_000
"""Milliseconds after a change for which details are read again: Flink caches them (``web.refresh-interval``)."""
_STATE = "flink.json"
_TOUCH = "/jobmanager/metrics?get=taskSlotsTotal"

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _SavedState(msgspec.Struct):
    """Jobs that had not ended when Flink last answered."""

    answered_ms: int
    jobs: list[Summary] = []


class FlinkCluster(Scheduler):
    """Scheduler of a Flink cluster. For one thread. ``state`` is a folder for its state."""

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
            jobs += [record for record in take_job_records(job, self._cluster) if _is_legal(record)]
            events += [event for event in take_job_events(job) if _is_legal(event)]
        gone = self._jobs.keys() - {one.jid for one in listed.jobs}
        end_ms = now_ms if self._answered_ms is None else self._answered_ms
        jobs += [make_lost_record(self._jobs[jid], end_ms) for jid in sorted(gone) if not self._jobs[jid].over]
        for jid in gone:
            del self._jobs[jid]
        self._answered_ms = now_ms
        # A job that disappears during a restart of this program is then reported.
        self._state.save(_SavedState(now_ms, [job.listed for job in self._jobs.values() if not job.over]))
        return Records(jobs=jobs, events=events)

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def measure(self, now_ms: int) -> list[Sample]:
        """Measure the running jobs. If the requests of an interval do not suffice, jobs take turns."""
        running = [job for job in self._jobs.values() if job.listed.state == "RUNNING"]
        self._meter.forget(job.listed.jid for job in running)
        exclusive, found, self._turn = find_exclusive_task_managers(running), list[Sample](), self._turn + 1
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

    def _load_jobs(self) -> dict[str, FlinkJob]:
        memory = self._state.load()
        if memory is None:
            return {}
        self._answered_ms = memory.answered_ms
        return {one.jid: FlinkJob(one) for one in memory.jobs}


def _is_legal(found: JobRecord | EventRecord | Sample) -> bool:
    """Return True if a server would accept it. One illegal name must not block the other samples."""
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
