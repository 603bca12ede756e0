"""Cost of diagnosing running jobs: the server evaluates its rules on the embedded engine, without HTTP requests."""

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.plan import Plan
from benchmarks.row import OURS, Table
from jobmeter.access.principal import Principal, Role
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import JobState
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.model.series import Series
from jobmeter.model.time import MINUTE, SECOND, Clock, SystemClock
from jobmeter.server.app import Application, build
from jobmeter.server.running import EVERY_SECONDS, RunningJobs
from jobmeter.settings import Settings

_METRICS = {
    "cpu.usage": 3.0,
    "cpu.utilization": 0.4,
    "memory.usage": 2e10,
    "memory.utilization": 0.4,
    "network.receive": 1e6,
    "gpu.utilization": 0.9,
    "gpu.memory.utilization": 0.7,
    "gpu.power": 500.0,
    "gpu.temperature": 60.0,
}
"""Level of each metric of a replica with one device."""
_DISK = {"node.filesystem.size": 1e12, "node.filesystem.available": 6e11}
_WRITER = Principal(id="bench", name="bench", role=Role.ADMIN)
_PAUSE_SECONDS = 0.05
_LENGTH_MS, _STEP_MS, _JOBS_A_NODE, _ROUNDS = 30 * MINUTE, 10 * SECOND, 8, 5


class _Ahead:
    """Clock that runs ``ahead_ms`` milliseconds ahead of another clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead_ms / SECOND


def measure(plan: Plan, table: Table) -> None:  # noqa: ARG001 - the shape of a stage
    """Measure the evaluation of 100 and of 1,000 healthy jobs.

    Each job has one replica with one device, and a sample of each series every 10 s. Before each round every job gets
    the samples of one evaluation interval.
    """
    for count in (100, 1_000):
        with tempfile.TemporaryDirectory() as place:
            clock = _Ahead(SystemClock())
            application = build(Settings(data=Path(place)), clock)
            try:
                services = application.services
                work = RunningJobs(services.executor, services.registry, services.thresholds, clock)
                for figure in _rounds(application, work, clock, count):
                    table.add(f"findings.{count}", OURS, figure)
                if count == 1_000:
                    table.add("findings.idle", OURS, _idle(work, clock))
            finally:
                application.close()


def _rounds(application: Application, work: RunningJobs, clock: _Ahead, count: int) -> Iterator[float]:
    """Yield the CPU time of each round in microseconds per job. The first round fills caches and is left out."""
    start = clock.now_ms() - _LENGTH_MS
    _record(application, count, start)
    _write(application, count, start, clock.now_ms())
    _all(work, count)
    for _ in range(_ROUNDS):
        before = clock.now_ms()
        clock.ahead_ms += int(EVERY_SECONDS * SECOND)
        _write(application, count, before, clock.now_ms())
        yield _all(work, count) / count * 1e6


def _all(work: RunningJobs, count: int) -> float:
    """Evaluate until every job was evaluated once more, and return the CPU seconds of this thread.

    Raises RuntimeError after two minutes, or when a healthy job has a finding or its evaluation failed.
    """
    target, seconds = work.figures.evaluations + count, time.thread_time()
    deadline = time.monotonic() + 120
    while work.figures.evaluations < target:
        before = work.figures.evaluations
        work.round()
        if work.figures.evaluations == before:  # the new samples are not listed yet, and waiting costs no CPU
            time.sleep(_PAUSE_SECONDS)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{target - work.figures.evaluations} jobs were not looked at in two minutes")
    if work.figures.failures or work.figures.opened:
        raise RuntimeError(f"healthy jobs: {work.figures}")
    return time.thread_time() - seconds


def _idle(work: RunningJobs, clock: _Ahead) -> float:
    clock.ahead_ms += int(EVERY_SECONDS * SECOND)
    began = time.thread_time()
    work.round()
    return (time.thread_time() - began) * 1e6


def _record(application: Application, count: int, start: int) -> None:
    registry = application.services.registry
    nodes = [NodeRecord(name=f"n{at}") for at in range(math.ceil(count / _JOBS_A_NODE))]
    jobs = [
        JobRecord(
            job_id=f"job-{at}",
            state=JobState.RUNNING,
            start=start,
            replicas=[_replica(at)],
        )
        for at in range(count)
    ]
    registry.record("default", Records(jobs=jobs, nodes=nodes), start)


def _replica(at: int) -> ReplicaRecord:
    return ReplicaRecord(name="worker-0", node=f"n{at // _JOBS_A_NODE}", devices=[f"gpu{at % _JOBS_A_NODE}"])


def _write(application: Application, count: int, start: int, end: int) -> None:
    """Write samples of every job and node in ``[start, end)`` (ms)."""
    times = np.arange(start // _STEP_MS * _STEP_MS, end, _STEP_MS)
    generator = np.random.default_rng(start)
    for first in range(0, count, 200):
        series, levels = [], []
        for at in range(first, min(first + 200, count)):
            node = f"n{at // _JOBS_A_NODE}"
            for metric, level in _METRICS.items():
                device = f"gpu{at % _JOBS_A_NODE}" if metric.startswith("gpu.") else ""
                series.append(Series(metric, job=f"job-{at}", replica="worker-0", node=node, device=device))
                levels.append(level)
            if at % _JOBS_A_NODE == 0:
                series += [Series(metric, node=node, labels=(("mountpoint", "/data"),)) for metric in _DISK]
                levels += _DISK.values()
        index = np.repeat(np.arange(len(series), dtype=np.uint32), len(times))
        value = np.repeat(np.array(levels), len(times)) * generator.uniform(0.98, 1.02, len(index))
        batch = SampleBatch(series, index, np.tile(times, len(series)).astype(np.int64), value)
        application.services.pipeline.submit_samples(batch, _WRITER)
