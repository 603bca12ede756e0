"""Questions about the server itself, and their answers: keys, links, calls, retention, shippers, sizes, damage."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from jobmeter.access.keys import KeyInfo, list_keys, list_policies
from jobmeter.access.links import list_valid_links
from jobmeter.access.principal import Scope
from jobmeter.errors import NotFoundError
from jobmeter.model.alert import SilencesQuestion
from jobmeter.model.annotation import Annotations
from jobmeter.model.answers import SchedulerStatus
from jobmeter.model.question import Question
from jobmeter.model.retention import Retention
from jobmeter.model.series import NO_JOB, compute_job_key
from jobmeter.model.shipper import Shipper
from jobmeter.model.task import TaskFilter
from jobmeter.model.time import Clock
from jobmeter.model.usage import Usage
from jobmeter.query.alerts import (
    ReportedGroupsQuestion,
    StoredAlertsQuestion,
    StoredSilencesQuestion,
    WaitingMessagesQuestion,
    list_silences,
)
from jobmeter.query.annotations import AnnotationsQuestion, TagsQuestion, drop_keys, list_tags
from jobmeter.query.permitted import filter_permitted_names
from jobmeter.query.records import (
    ChangedJobsQuestion,
    FindingsQuestion,
    NextAttemptQuestion,
    PodsQuestion,
    find_next_attempt,
    list_changed_jobs,
    list_pods,
    list_stored_findings,
)
from jobmeter.query.request import JobRef, NodeRef
from jobmeter.query.subjects import Subjects, find_projects
from jobmeter.query.tasks import (
    DueTasksQuestion,
    NodeTasksQuestion,
    TaskAnswersQuestion,
    TaskQuestion,
    list_node_tasks,
    list_tasks,
    read_task,
)
from jobmeter.registry.base import Registry
from jobmeter.registry.stored import StoredKey
from jobmeter.store.base import SeriesSelector, Store, StoreStatistics
from jobmeter.store.damage import DamagedPart
from jobmeter.store.shards.away import may_lack

_PROBE = SeriesSelector(jobs=(NO_JOB,), metrics=frozenset({"-"}), limit=1)


class KeysQuestion(msgspec.Struct, Question[Sequence[KeyInfo]], frozen=True):
    """Question for the keys of the caller's projects by creation, including revoked ones but no links."""


class KeyPoliciesQuestion(msgspec.Struct, Question[Sequence[tuple[str, Mapping[str, Any]]]], frozen=True):
    """Question for the policies of a key by name, with documents. Raises NotFoundError."""

    key: str


class LinksQuestion(msgspec.Struct, Question[Sequence[StoredKey]], frozen=True):
    """Question for the valid links to a job, newest first. Raises NotFoundError."""

    ref: JobRef


class UsageQuestion(msgspec.Struct, Question[list[Usage]], frozen=True):
    """Question for the calls of a month by account, API and operation."""

    month: str


class RetentionQuestion(msgspec.Struct, Question[list[Retention]], frozen=True):
    """Question for the retention of each of these projects. Raises NotFoundError for a project outside the scope."""

    projects: tuple[str, ...]


class ShippersQuestion(msgspec.Struct, Question[list[Shipper]], frozen=True):
    """Question for the log shippers of the caller's projects, by creation."""


class StatisticsQuestion(msgspec.Struct, Question[StoreStatistics], frozen=True):
    """Question for the sizes of the stored data."""

    whole_server = True


class DroppedEventsQuestion(msgspec.Struct, Question[int], frozen=True):
    """Question for the number of events deleted from jobs that had too many, since the start."""

    whole_server = True


class SchedulersQuestion(msgspec.Struct, Question[list[SchedulerStatus]], frozen=True):
    """Question for the state of each cluster's scheduler, by project, cluster and kind."""

    whole_server = True


class DamageQuestion(msgspec.Struct, Question[Sequence[DamagedPart]], frozen=True):
    """Question for the unreadable parts of the store that may have held samples of a job or node."""

    by_resource = of_job = True

    subject: JobRef | NodeRef


class AllDamageQuestion(msgspec.Struct, Question[Sequence[DamagedPart]], frozen=True):
    """Question for every unreadable part of the store."""

    whole_server = True


class ProbeQuestion(msgspec.Struct, Question[bool], frozen=True):
    """Question whether a part of the server answers at all; raises its error if it does not."""

    whole_server = True

    part: Literal["registry", "store"]


def list_retentions(registry: Registry, question: RetentionQuestion, scope: Scope) -> list[Retention]:
    """Answer a ``RetentionQuestion``."""
    for project in question.projects:
        if not scope.allows(project):
            raise NotFoundError(f"there is no project {project}", "project", project)
    return [registry.get_retention(project) for project in question.projects]


def list_shippers(registry: Registry, scope: Scope) -> list[Shipper]:
    """Answer a ``ShippersQuestion``."""
    return [one for one in registry.shippers.list_shippers() if scope.projects is None or one.project in scope.projects]


def list_damage(
    store: Store, registry: Registry, question: DamageQuestion, scope: Scope, now_ms: int
) -> Sequence[DamagedPart]:
    """Answer a ``DamageQuestion``."""
    damaged, subject = store.list_damaged(), question.subject
    if not damaged:
        return damaged
    keys = [NO_JOB]
    if isinstance(subject, JobRef):
        heads = registry.find_job_head(find_projects(subject.project, scope), subject.id, now_ms)
        visible = filter_permitted_names(registry, ((head.project, head.id) for head in heads), scope, now_ms)
        keys = [compute_job_key(*name) for name in visible]
    return [part for part in damaged if any(map(part.may_concern, keys))]


def probe(store: Store, registry: Registry, question: ProbeQuestion) -> bool:
    """Answer a ``ProbeQuestion``."""
    if question.part == "registry":
        registry.keys.find_by_token(b"")
    else:
        with may_lack(store.list_damaged()):
            store.find(_PROBE)
    return True


Answers = Mapping[type[Question[Any]], Callable[[Any, Scope], Any]]
"""Functions that answer questions, by type."""


def record_answers(store: Store, registry: Registry, clock: Clock, subjects: Subjects) -> Answers:
    """Return the functions that answer questions about records of the registry, and about the server itself."""
    now_ms = clock.now_ms

    def links(question: LinksQuestion, scope: Scope) -> Sequence[StoredKey]:
        job = subjects.find_head(question.ref, scope)
        return list_valid_links(registry, now_ms(), job.project, job.id)

    def annotations(question: AnnotationsQuestion, scope: Scope) -> Annotations:
        job = subjects.find_head(question.ref, scope)
        found = registry.annotations.read_annotations(job.project, job.id)
        return found if scope.job is None else drop_keys(found)

    return {
        FindingsQuestion: lambda question, scope: list_stored_findings(registry, question, scope, now_ms()),
        NextAttemptQuestion: lambda question, scope: find_next_attempt(registry, question, scope, now_ms()),
        ChangedJobsQuestion: lambda question, _: list_changed_jobs(registry, question),
        PodsQuestion: lambda question, scope: list_pods(registry, question, scope),
        TaskFilter: lambda question, scope: list_tasks(registry, question, scope),
        TaskQuestion: lambda question, scope: read_task(registry, question, scope),
        TaskAnswersQuestion: lambda question, _: registry.tasks.list_answers(question.id),
        DueTasksQuestion: lambda question, _: registry.tasks.list_due(now_ms(), question.limit),
        NodeTasksQuestion: lambda question, scope: list_node_tasks(registry, question, scope, now_ms()),
        KeysQuestion: lambda _, scope: list_keys(registry, scope.projects),
        KeyPoliciesQuestion: lambda question, scope: list_policies(registry, question.key, scope.projects),
        LinksQuestion: links,
        AnnotationsQuestion: annotations,
        TagsQuestion: lambda question, scope: list_tags(registry, question, scope, now_ms()),
        UsageQuestion: lambda question, scope: registry.usage.read_calls(question.month, scope.projects),
        RetentionQuestion: lambda question, scope: list_retentions(registry, question, scope),
        ShippersQuestion: lambda _, scope: list_shippers(registry, scope),
        StoredAlertsQuestion: lambda question, _: registry.alerts.list_alerts(question.since),
        ReportedGroupsQuestion: lambda _, __: registry.alerts.list_groups(),
        WaitingMessagesQuestion: lambda _, __: registry.alerts.list_waiting(),
        StoredSilencesQuestion: lambda _, __: registry.alerts.list_silences(),
        SilencesQuestion: lambda _, scope: list_silences(registry, scope, now_ms()),
        StatisticsQuestion: lambda _, __: store.read_statistics(),
        DroppedEventsQuestion: lambda _, __: registry.events_dropped,
        SchedulersQuestion: lambda _, __: registry.schedulers.list_states(now_ms()),
        AllDamageQuestion: lambda _, __: store.list_damaged(),
        DamageQuestion: lambda question, scope: list_damage(store, registry, question, scope, now_ms()),
        ProbeQuestion: lambda question, _: probe(store, registry, question),
    }
