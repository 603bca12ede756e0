"""Tests that a caller with a narrow scope gets the answers of a server without any data outside the scope."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support.encoding import question_types, same
from tests.support.fakes import NOW, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.policy import Policies, read_document
from jobmeter.access.principal import Scope
from jobmeter.errors import JobmeterError
from jobmeter.model.alert import Silence, SilencesQuestion
from jobmeter.model.annotation import JobNote, JobTag
from jobmeter.model.batch import SampleBatch
from jobmeter.model.event import FINDING, EventFilter, Level
from jobmeter.model.job import JobFilter, JobState, ProjectsQuestion, SizesQuestion, StateCountsQuestion
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.record import AllocationRecord, EventRecord, JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.model.series import NamePart, Series, compute_job_key
from jobmeter.model.span import Span
from jobmeter.model.task import DiagnosticTask, TaskFilter, TaskState, TaskType
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.model.trace_filter import SpanFilter, TraceFilter
from jobmeter.query.administration import DamageQuestion
from jobmeter.query.annotations import AnnotationsQuestion, TagsQuestion
from jobmeter.query.device_hours import DeviceHoursQuestion, HoursBy
from jobmeter.query.execute import Executor
from jobmeter.query.facts import JobFactsQuestion, NodeFactsQuestion
from jobmeter.query.findings import FindingListQuestion
from jobmeter.query.fleet import FleetQuestion
from jobmeter.query.group import (
    CapacityQuestion,
    GroupNodesQuestion,
    GroupQuestion,
    NodeLoadsQuestion,
    RequestsQuestion,
    ResourceGroupsQuestion,
)
from jobmeter.query.idle import IdleQuestion
from jobmeter.query.latest import LatestQuestion
from jobmeter.query.logs import LogLinesQuestion
from jobmeter.query.nodes import NodeFaultsQuestion, NodesQuestion
from jobmeter.query.phases import PhasesQuestion, RunQuestion
from jobmeter.query.quality import QualityQuestion
from jobmeter.query.readings import ReadingsQuestion
from jobmeter.query.records import FindingsQuestion
from jobmeter.query.reported import ReportedQuestion
from jobmeter.query.request import (
    By,
    EncodedQuestion,
    GroupRef,
    HeadQuestion,
    JobQuestion,
    JobRef,
    JobViewsQuestion,
    LogQuestion,
    MeasuredNamesQuestion,
    MetricQuery,
    NodeRecordsQuestion,
    NodeRef,
)
from jobmeter.query.rollups import RollupsQuestion
from jobmeter.query.sampled import SampledQuestion
from jobmeter.query.series import BucketsQuestion, LastQuestion, NamesQuestion, SamplesQuestion, SeriesQuestion
from jobmeter.query.summary import SummaryQuestion
from jobmeter.query.tasks import TaskQuestion
from jobmeter.registry.base import Registry
from jobmeter.registry.open import open_registry
from jobmeter.settings import Limits
from jobmeter.store.damage import DamagedPart

SPAN = TimeRange(NOW - HOUR, NOW)
POLICY = b'{"Version": "1", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "acs:*:*:p:job/open"}]}'
SCOPES = {
    "a project": Scope(frozenset({"p"})),
    "a shared job": Scope(frozenset({"p"}), job="open"),
    "a linked job": Scope(frozenset({"p"}), job="open", record=True),
    "a resource": Scope(frozenset({"p"}), grant=Policies([read_document(POLICY)])["native", "listJobs"]),
}
OTHERS = [("q", "open"), ("q", "secret")]
HIDDEN = {name: OTHERS if name == "a project" else [*OTHERS, ("p", "secret")] for name in SCOPES}
"""Jobs outside each scope, (project, id)."""


class DamagedStore(MemoryStore):
    """Store with a damaged part for each of some jobs."""

    parts: tuple[DamagedPart, ...] = ()

    def list_damaged(self) -> tuple[DamagedPart, ...]:
        return self.parts


class World(NamedTuple):
    store: DamagedStore
    registry: Registry
    executor: Executor


def series_of(project: str, job: str) -> list[Series]:
    device = "gpu0" if job == "open" else "gpu1"
    places: dict[str, Any] = {
        "project": project,
        "job": job,
        "replica": "worker-0",
        "cluster": "c",
        "node": f"{project}-node",
    }
    return [
        Series("cpu.usage", **places),
        Series("app.loss", **places, labels=(("of", job),)),
        Series("gpu.utilization", **places, device=device),
    ]


def add(world: World, project: str, job: str) -> None:
    """Put a job with all kinds of data into a world, with its own node of its project."""
    node, secret = f"{project}-node", f"{project}/{job}"
    world.store.parts += (
        DamagedPart(table="samples", name=secret, reason="broken", jobs=(compute_job_key(project, job),) * 2),
    )
    for at, series in enumerate(series_of(project, job)):
        times = np.arange(NOW - HOUR, NOW, MINUTE)
        values = np.full(len(times), 0.25 + at + (job != "open"))
        world.store.append_all((SampleBatch([series], np.zeros(len(times), np.uint32), times, values),))
    start = (NOW - HOUR) * 1_000_000
    of_job: dict[str, Any] = {"project": project, "job": job, "replica": "worker-0", "node": node}
    world.store.logs.append(
        [
            LogLine(time_ns=start, text=f"line of {secret}", **of_job),
            LogLine(time_ns=start, text=f"kernel: {secret}", **of_job, facility="kern", stream="kernel"),
        ]
    )
    world.store.spans.append(
        [
            Span(
                trace=f"{len(secret):032x}",
                span="0" * 15 + "1",
                name=secret,
                start_ns=start,
                end_ns=start + 1,
                **of_job,
            )
        ]
    )
    record = JobRecord(
        job_id=job,
        name=secret,
        user=f"user of {secret}",
        resource_group="group",
        workspace="w",
        state=JobState.RUNNING,
        start=NOW - HOUR,
        created=NOW - HOUR - len(secret),
        replicas=[ReplicaRecord(name="worker-0", cluster="c", node=node, state=JobState.RUNNING, start=NOW - HOUR)],
        allocations=[AllocationRecord(replica="worker-0", node=node, cluster="c", device="gpu0", start=NOW - HOUR)],
    )
    where: dict[str, Any] = {"job": job, "cluster": "c", "node": node, "time": NOW - MINUTE, "level": Level.ERROR}
    events = [
        EventRecord(reason="Xid", message=f"NVRM: Xid (PCI:0000:3b:00): 79, {secret}", subject="device gpu0", **where),
        EventRecord(reason=FINDING, message=f"rule (job {job}): {secret}", **where),
    ]
    world.registry.record(project, Records(jobs=[record], events=events), NOW)
    world.registry.tasks.add(
        DiagnosticTask(
            id=f"{compute_job_key(project, job):032x}",
            type=TaskType.STACKS,
            state=TaskState.RUNNING,
            project=project,
            job=job,
            created=NOW,
            start=NOW,
            end=NOW,
        )
    )
    world.registry.annotations.change_tags(project, job, [JobTag(tag=f"tag of {job}", by=secret)], [])
    world.registry.annotations.add_note(project, job, JobNote(id=secret, text=secret))
    world.registry.alerts.put_silence(
        Silence(id=secret, project=project, matchers=(), start=NOW, end=NOW, author="", comment=secret, updated=NOW)
    )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[tuple[str, str]]], World]]:
    """Yield a function that returns the world of these jobs beside `p/open`. Scopes share it with its caches."""
    made: dict[tuple[tuple[str, str], ...], World] = {}

    def make(hidden: list[tuple[str, str]]) -> World:
        name = tuple(hidden)
        if name not in made:
            registry = open_registry(f"sqlite:///{tmp_path_factory.mktemp('registry') / 'r.db'}", Retention())
            made[name] = World(store := DamagedStore(), registry, executor_of(store, registry))
            for project in dict.fromkeys(["p", *(project for project, _ in hidden)]):
                node = NodeRecord(name=f"{project}-node", cluster="c", resource_group="group")
                registry.record(project, Records(nodes=[node]), NOW)
            for project, job in [("p", "open"), *hidden]:
                add(made[name], project, job)
        return made[name]

    yield make
    for world in made.values():
        world.registry.close()


def executor_of(store: DamagedStore, registry: Registry) -> Executor:
    return Executor(
        store, registry, SetClock(), Limits(), encoders={"form": lambda result: repr(result.lines).encode()}
    )


def questions() -> list[Question[Any]]:
    """Return questions of each open type, about everything and about each job by name."""
    group = GroupRef("group")
    found: list[Question[Any]] = [
        *(JobFilter(), JobFilter(ids=("secret", "open")), ProjectsQuestion(), EventFilter(), TaskFilter()),
        *(EventFilter(jobs=(job,)) for job in ("open", "secret")),
        SizesQuestion(jobs=(("p", "secret"), ("q", "open"), ("p", "open"))),
        *(StateCountsQuestion(jobs=JobFilter()), FindingListQuestion()),
        JobViewsQuestion((("p", "secret"), ("q", "open"), ("p", "open")), SPAN),
        FindingsQuestion((("p", "secret"), ("q", "open"), ("p", "open"))),
        TagsQuestion((("p", "secret"), ("q", "open"), ("p", "open"))),
        *(JobFactsQuestion(since_ms=0, findings=True), NodeFactsQuestion(since_ms=0)),
        *(DeviceHoursQuestion(range=SPAN, every_ms=HOUR, by=by) for by in HoursBy),
        *(FleetQuestion(), NodesQuestion(), NodeFaultsQuestion(), ResourceGroupsQuestion()),
        *(kind(group=group, range=SPAN) for kind in (GroupQuestion, CapacityQuestion, GroupNodesQuestion)),
        RequestsQuestion(group=group, range=SPAN, states=frozenset({JobState.RUNNING})),
        NodeLoadsQuestion(group=group, range=SPAN),
        MetricQuery(subject=group, metrics=("gpu.utilization",), range=SPAN, step_ms=HOUR, by=By.NODE),
        *(TraceFilter(), SpanFilter(traces=frozenset(f"{size:032x}" for size in range(10))), SilencesQuestion()),
        *(TaskQuestion(f"{compute_job_key(*job):032x}") for job in (("p", "open"), *OTHERS, ("p", "secret"))),
        *(NamesQuestion(part=part) for part in NamePart),
        *(SeriesQuestion(), SeriesQuestion(jobs=tuple(compute_job_key(*job) for job in HIDDEN["a resource"]))),
        SeriesQuestion(jobs=(compute_job_key("p", "open"),)),
    ]
    for project, job in (("p", "open"), ("p", "secret"), ("q", "open")):
        ref, series = JobRef(job, project), tuple(series_of(project, job))
        metrics = MetricQuery(subject=ref, metrics=("gpu.utilization",), range=SPAN, step_ms=HOUR, by=By.DEVICE)
        log = LogQuestion(ref=ref)
        found += [
            *(
                kind(ref)
                for kind in (HeadQuestion, JobQuestion, MeasuredNamesQuestion, SummaryQuestion, LatestQuestion)
            ),
            *(kind(ref) for kind in (QualityQuestion, IdleQuestion, PhasesQuestion, DamageQuestion)),
            AnnotationsQuestion(ref),
            *(RunQuestion(ref, ("gpu.utilization",)), ReportedQuestion(ref=ref, range=SPAN)),
            ReadingsQuestion(ref=ref, metrics=("gpu.utilization",), range=SPAN),
            *(metrics, EncodedQuestion(metrics, "form"), SampledQuestion(metrics), log, LogLinesQuestion(log)),
            *(SamplesQuestion(series=series, range=SPAN), LastQuestion(series=series)),
            BucketsQuestion(series=series, range=SPAN, step_ms=HOUR),
            RollupsQuestion(series=series, range=SPAN, cuts=(SPAN.start_ms,), growth=True),
        ]
        node = NodeRef(f"{project}-node")
        found += [NodeRecordsQuestion(node), LatestQuestion(node, by=By.DEVICE), LogQuestion(ref=node)]
        found += [MetricQuery(subject=node, metrics=("gpu.utilization",), range=SPAN, step_ms=HOUR, by=By.DEVICE)]
    return found


QUESTIONS = questions()
OF_COMMANDS = {
    "AlertsQuestion",
    "AlertingQuestion",
    "DiskQuestion",
    "JobAlertsQuestion",
    "LogPageQuestion",
    "RulesQuestion",
}
"""Types of questions that the server's commands answer, using answers to other questions."""


def outcome(world: World, question: Question[Any], scope: Scope) -> tuple[str, Any]:
    """Return the error's name and text, or an empty name and the answer."""
    try:
        answer = world.executor.run(question, scope)
        return "", list(answer) if isinstance(answer, Iterator) else answer
    except JobmeterError as error:
        return type(error).__name__, str(error)


def is_same(question: Question[Any], one: World, other: World, scope: Scope) -> bool:
    (error, answer), (other_error, other_answer) = (outcome(world, question, scope) for world in (one, other))
    return error == other_error and same(answer, other_answer)


def test_the_questions_are_of_every_open_type():
    open_to_some = {kind.__name__ for kind in question_types() if kind.of_job or kind.by_resource}
    assert {type(question).__name__ for question in QUESTIONS} == open_to_some - OF_COMMANDS


@pytest.mark.parametrize("name", SCOPES)
def test_nothing_outside_the_scope_shows_in_an_answer(worlds, name):
    alone, full, scope = worlds([]), worlds(HIDDEN[name]), SCOPES[name]
    assert [question for question in QUESTIONS if not is_same(question, alone, full, scope)] == []


@pytest.mark.parametrize("name", SCOPES)
def test_a_caller_of_everything_would_see_it(worlds, name):
    """Hidden data is in the answers without a scope, so the comparison can fail."""
    alone, full = worlds([]), worlds(HIDDEN[name])
    different = {type(one) for one in QUESTIONS if not is_same(one, alone, full, Scope(None))}
    assert different == {type(one) for one in QUESTIONS}
