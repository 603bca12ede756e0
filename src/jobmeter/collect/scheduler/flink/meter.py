"""Samples of a job of Flink, read from the job manager by job, task and task manager."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from jobmeter.collect.scheduler.flink import meaning
from jobmeter.collect.scheduler.flink.answers import Details, Vertex
from jobmeter.collect.scheduler.flink.job import FlinkJob, name_task_manager, parse_host
from jobmeter.collect.scheduler.flink.rest import FlinkRest
from jobmeter.collect.text import escape_invalid
from jobmeter.model.sample import Sample
from jobmeter.model.series import MAX_LABEL_VALUE, Series

JOB_MANAGER = "jobmanager"
"""Replica of a job's own metrics, as in Flink's Prometheus reporter."""
_LIST_MS = 60_000
"""Milliseconds for which the list of a task's metrics is cached. Operators register some late."""


@dataclass(slots=True)
class _Listed:
    attempt: int
    read_ms: int
    names: list[str]


@dataclass(slots=True, eq=False)
class FlinkMeter:
    """Measures jobs. Caches the names of the metrics of tasks, and the count of restarts, of running jobs."""

    rest: FlinkRest
    cluster: str
    _lists: dict[tuple[str, str], _Listed] = field(default_factory=dict)
    _restarts: dict[str, tuple[float, int]] = field(default_factory=dict)

    def measure(self, job: FlinkJob, exclusive: frozenset[str], now_ms: int) -> list[Sample]:
        """Return the samples of a running job. ``exclusive`` are the task managers that work only for this job."""
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
        read = self.rest.read_values(f"/jobs/{jid}/metrics", meaning.JOB)
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
            listed = _Listed(job.restarts, now_ms, meaning.select(self.rest.list_names(f"{path}/subtasks/metrics")))
            self._lists[jid, vertex.id] = listed
        if not listed.names:
            del self._lists[jid, vertex.id]
            return
        subtasks = {one.subtask: one for one in job.subtasks.get(vertex.id, ()) if name_task_manager(one)}
        parameters = [f"{number}.{name}" for number in sorted(subtasks) for name in listed.names]
        by_subtask: dict[int, dict[str, float]] = {}
        for name, value in self.rest.read_values(f"{path}/metrics", parameters).items():
            number, _, metric = name.partition(".")
            by_subtask.setdefault(int(number), {})[metric] = value
        for at, read in by_subtask.items():
            place = self._make_place(job, name_task_manager(subtasks[at]), parse_host(subtasks[at].endpoint))
            labels = (("subtask", str(at)), ("task", task))
            for one in meaning.measure_subtask(read):
                yield _sample(place, one._replace(labels=(*_shorten_labels(one.labels), *labels)), now_ms)

    def _measure_task_manager(
        self, job: FlinkJob, name: str, node: str, exclusive: frozenset[str], now_ms: int
    ) -> Iterator[Sample]:
        read = self.rest.read_values(f"/taskmanagers/{name}/metrics", meaning.TASK_MANAGER)
        place = self._make_place(job, name, node)
        for one in meaning.measure_task_manager(read):
            yield _sample(place, one, now_ms)
        if name in exclusive and (used := read.get(meaning.CPU_TIME, -1.0)) >= 0:
            yield Sample(replace(place, metric="cpu.time"), now_ms, used / 1e9)

    def _make_place(self, job: FlinkJob, replica: str, node: str) -> Series:
        return Series("", "", self.cluster, node, job=job.listed.jid, replica=replica, attempt=job.restarts)


def find_exclusive_task_managers(jobs: Iterable[FlinkJob]) -> frozenset[str]:
    """Return the task managers that work for only one of these jobs."""
    users = Counter(name for job in jobs for name, _ in _task_managers(job))
    return frozenset(name for name, count in users.items() if count == 1)


def _task_managers(job: FlinkJob) -> list[tuple[str, str]]:
    """Return the task managers of a job with their nodes."""
    found = {
        name: parse_host(one.endpoint)
        for subtasks in job.subtasks.values()
        for one in subtasks
        if (name := name_task_manager(one))
    }
    return sorted(found.items())


def _tasks(details: Details) -> list[str]:
    """Return the names of the tasks: their chains of operators, made unique if long or equal."""
    names = [escape_invalid(vertex.name) for vertex in details.vertices]
    alike = Counter(name[: MAX_LABEL_VALUE - 10] for name in names)
    return [
        name
        if len(name) <= MAX_LABEL_VALUE and alike[name[: MAX_LABEL_VALUE - 10]] == 1
        else f"{name[: MAX_LABEL_VALUE - 10]} {vertex.id[:8]}"
        for name, vertex in zip(names, details.vertices, strict=True)
    ]


def _shorten_labels(labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, escape_invalid(value)[:MAX_LABEL_VALUE]) for name, value in labels)


def _sample(place: Series, one: meaning.Measured, now_ms: int) -> Sample:
    return Sample(replace(place, metric=f"flink.{one.name}", labels=one.labels), now_ms, one.value)
