"""``python -m benchmarks.registry``: latency of queries of a registry with a million jobs, and of writes to it."""

import argparse
import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.registry_data import DAY_MS, MODELS, NOW, PROJECTS, fill, job_name, project_of
from jobmeter.model.event import EventFilter
from jobmeter.model.job import Condition, JobFilter, JobState, Operator
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import TimeRange
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry
from jobmeter.registry.stored import Observation

BAR_MS = 50.0
DEFAULT = frozenset({"default"})
MANY = frozenset(PROJECTS[1:])
RUNNING, SUCCEEDED = frozenset({JobState.RUNNING}), frozenset({JobState.SUCCEEDED})
FAILED = frozenset({JobState.FAILED, JobState.STOPPED})
_SORTS = ("created", "start", "end", "id", "name", "project", "type", "user", "resource_group", "workspace", "updated")
_Ask = Callable[[Registry], object]


@dataclasses.dataclass
class Timing:
    """Times of the calls of one kind in milliseconds."""

    name: str
    times: list[float] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        p50, longest = statistics.median(self.times), max(self.times)
        return f"{self.name:64}{p50:>10.2f} ms   max {longest:.1f}{'  OVER' * self.over}"

    @property
    def over(self) -> bool:
        """Return True if the median misses the bar."""
        return statistics.median(self.times) >= BAR_MS


def questions(url: str, count: int, rounds: int) -> list[Timing]:
    """Measure each kind of query of the registry at ``url``, which has ``count`` jobs."""
    registry = open_registry(url, Retention())
    try:
        _settle(registry)
        return [_timing(name, ask, registry, rounds) for name, ask in _asks(count)]
    finally:
        registry.close()


def _settle(registry: Registry) -> None:
    """List jobs once and print the time, because the first listing reads every job."""
    began = time.perf_counter()
    registry.list_jobs(JobFilter(projects=DEFAULT, sort="duration", limit=1), NOW)
    print(f"ready after {time.perf_counter() - began:.1f} s")


def _timing(name: str, ask: _Ask, registry: Registry, rounds: int) -> Timing:
    return Timing(name, [_timed(ask, registry) for _ in range(rounds)])


def _asks(count: int) -> Iterator[tuple[str, _Ask]]:
    for name, question in _listings(count):
        yield name, lambda registry, question=question: registry.list_jobs(question, NOW)  # type: ignore[misc]
    newest = [(project_of(number), job_name(number)) for number in range(count - 100, count)]
    last = (newest[-1][1],)
    day = TimeRange(NOW - DAY_MS, NOW)
    yield "projects()", lambda registry: registry.list_projects(None, NOW)
    yield "sizes() of 100", lambda registry: registry.read_sizes(newest)
    yield "findings() of 100", lambda registry: registry.list_findings(newest)
    yield "group_jobs() of a day", lambda registry: registry.group_jobs(None, "quota7", day, NOW)
    yield "events of a job", lambda registry: registry.list_events(EventFilter(jobs=last))
    yield "events of a job, offset 40,000", lambda registry: registry.list_events(EventFilter(jobs=last, offset=40_000))
    yield "events of a project", lambda registry: registry.list_events(EventFilter(projects=DEFAULT))
    yield "job()", lambda registry: registry.find_job(None, newest[-1][1], NOW)
    yield "job_head()", lambda registry: registry.find_job_head(None, newest[-1][1], NOW)


def _listings(count: int) -> Iterator[tuple[str, JobFilter]]:
    yield "everything", JobFilter()
    for sort in (*_SORTS, "duration", "state", "active"):
        for descending in (True, False):
            way = "down" if descending else "up"
            yield f"sort {sort} {way}", JobFilter(projects=DEFAULT, sort=sort, descending=descending)
    for offset in (1_000, count // 2, count * 7 // 10 - 100):
        for sort in ("created", "name", "duration", "type"):
            yield f"sort {sort}, offset {offset:,}", JobFilter(projects=DEFAULT, sort=sort, offset=offset)
    yield "every project, offset half", JobFilter(offset=count // 2)
    yield "every project, last page", JobFilter(offset=count - 100)
    yield "20 projects", JobFilter(projects=MANY)
    yield "20 projects by name, offset", JobFilter(projects=MANY, sort="name", offset=count // 5)
    yield from _filters(count)
    for name, condition in _conditions():
        yield f"condition {name}", JobFilter(projects=DEFAULT, conditions=(condition,))


def _filters(count: int) -> Iterator[tuple[str, JobFilter]]:
    for name, states in (("Running", RUNNING), ("Succeeded", SUCCEEDED), ("Failed, Stopped", FAILED)):
        yield f"state {name}", JobFilter(projects=DEFAULT, states=states)
        yield f"state {name}, every project", JobFilter(states=states)
    yield "type", JobFilter(projects=DEFAULT, types=frozenset({"PyTorchJob"}))
    yield "three types by name", JobFilter(types=frozenset({"PyTorchJob", "MPIJob", "RayJob"}), sort="name")
    yield "user", JobFilter(projects=DEFAULT, users=frozenset({"user-1"}))
    yield "rare user by start", JobFilter(projects=DEFAULT, users=frozenset({"user-250"}), sort="start")
    yield "group", JobFilter(projects=DEFAULT, resource_groups=frozenset({"quota7"}))
    yield "workspace", JobFilter(projects=DEFAULT, workspaces=frozenset({"1007"}))
    mixed = JobFilter(
        projects=DEFAULT, types=frozenset({"PyTorchJob"}), states=SUCCEEDED, users=frozenset({"user-1", "user-2"})
    )
    yield "type, state and users", mixed
    yield "ids", JobFilter(projects=DEFAULT, ids=tuple(job_name(number) for number in range(0, count, count // 100)))
    month = {"created_from": NOW - 60 * DAY_MS, "created_to": NOW - 30 * DAY_MS}
    yield "a month", JobFilter(projects=DEFAULT, **month)  # type: ignore[arg-type]
    yield "a month by duration", JobFilter(projects=DEFAULT, sort="duration", **month)  # type: ignore[arg-type]
    for part in ("llama", "LLAMA-sft-1", "a", "12", "dlc00", job_name(5), "nothing like it", "é"):
        yield f"name holds {part!r}", JobFilter(projects=DEFAULT, name_contains=part)
        yield f"name holds {part!r}, every project", JobFilter(name_contains=part)


def _conditions() -> Iterator[tuple[str, Condition]]:
    own = "extra.pai-dlc"
    given: Sequence[tuple[str, Operator, tuple[str | int | None, ...]]] = (
        ("labels.team", Operator.IN, ("t7",)),
        ("labels.team", Operator.NOT_IN, ("t7",)),
        ("labels.run", Operator.IN, ("r-4711",)),
        ("labels.run", Operator.CONTAINS, ("-4711",)),
        (f"{own}.Status", Operator.IN, ("Restarting",)),
        (f"{own}.PaymentType", Operator.NOT_IN, ("Spot", "PostPaid")),
        (f"{own}.Priority", Operator.IN, ("7", "8")),
        (f"{own}.RequestGPU", Operator.BETWEEN, (8, None)),
        (f"{own}.Images", Operator.CONTAINS, ("torch:4",)),
        (f"{own}.None", Operator.NOT_IN, ("x",)),
        ("name", Operator.IN, (f"{MODELS[3]}-sft-123",)),
        ("name", Operator.NOT_IN, (f"{MODELS[3]}-sft-123",)),
        ("name", Operator.CONTAINS, ("LLAMA",)),
        ("id", Operator.CONTAINS, ("00f",)),
        ("user", Operator.CONTAINS, ("ER-25",)),
        ("resource_group", Operator.NOT_IN, ("",)),
        ("error", Operator.CONTAINS, ("oomkilled",)),
        ("command", Operator.CONTAINS, ("configs/77",)),
        ("duration", Operator.BETWEEN, (3_600_000, 7_200_000)),
        ("end", Operator.BETWEEN, (NOW - 7 * DAY_MS, NOW)),
        ("start", Operator.BETWEEN, (NOW - 7 * DAY_MS, None)),
        ("created", Operator.BETWEEN, (NOW - 7 * DAY_MS, NOW)),
        ("node", Operator.IN, ("node-7", "node-8")),
        ("node", Operator.NOT_IN, ("node-7",)),
    )
    for field, operator, values in given:
        yield f"{field} {operator} {', '.join(map(str, values))}", Condition(field, operator, values)


def writes(registry: Registry) -> list[Timing]:
    """Measure the writes: records of 1,000 jobs, and observations of jobs, nodes and devices."""
    record, observe = Timing("record 1,000 jobs"), Timing("observe 1,000 nodes x 8 devices")
    again = Timing("observe them again, later")
    for turn in range(5):
        records = Records(
            jobs=[JobRecord(job_id=f"new-{turn}-{n}", name=f"new {n}", labels={"n": str(n)}) for n in range(1000)]
        )
        record.times.append(_timed(registry.record, "default", records, NOW))
        observe.times.append(_timed(registry.observe, _observations(turn, NOW), NOW))
        again.times.append(_timed(registry.observe, _observations(turn, NOW + 60_000), NOW))
    return [record, observe, again]


def _timed(call: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began) * 1000


def _observations(turn: int, last_ms: int) -> list[Observation]:
    return [
        Observation(
            project="default",
            job=f"live-{turn}-{node // 8}",
            replica=f"worker-{node % 8}",
            attempt=0,
            cluster="",
            node=f"live-{node}",
            device=f"gpu{device}" if device < 8 else "",
            first_ms=last_ms - 10_000,
            last_ms=last_ms,
        )
        for node in range(1000)
        for device in range(10)
    ]


@contextlib.contextmanager
def _place(postgresql: str) -> Iterator[str]:
    if postgresql:
        yield postgresql
        return
    with tempfile.TemporaryDirectory(prefix="jobmeter-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'registry.db'}"


def main() -> None:
    """Fill a registry, or use a filled one, and print median and maximum of each query."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--postgresql", default="", metavar="URL", help="an empty database on a PostgreSQL server")
    parser.add_argument("--kept", default="", metavar="URL", help="a registry that this program filled, left as it is")
    options = parser.parse_args()
    with _place(options.postgresql) as place:
        url = options.kept or place
        if not options.kept:
            began = time.perf_counter()
            fill(url, options.jobs)
            print(f"{options.jobs:,} jobs written in {time.perf_counter() - began:.0f} s")
        timings = questions(url, options.jobs, options.rounds)
        if not options.kept:
            registry = open_registry(url, Retention())
            timings += writes(registry)
            registry.close()
    print(*timings, sep="\n")
    print(f"{sum(one.over for one in timings)} of {len(timings)} over {BAR_MS:.0f} ms")


if __name__ == "__main__":
    main()
