"""Facts of jobs and nodes over time: records, findings, contacts. Metrics of PromQL are made from them."""

from collections.abc import Iterator, Sequence

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.errors import LimitExceededError
from jobmeter.model.event import FINDING, Event, EventFilter, EventType
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.question import Question
from jobmeter.model.time import HOUR
from jobmeter.query.nodes import SILENT_MS, NodesQuestion, NodeStatus, find_nodes
from jobmeter.query.permitted import list_permitted_jobs
from jobmeter.registry.base import Registry

KEEP_MS = HOUR
"""Time in milliseconds after its end in which the facts of a job remain."""
MOST_JOBS, MOST_EVENTS = 10_000, 100_000
"""Most jobs, and most events, of an answer."""
_PAGE = 1_000
_CHUNK = 500
"""Jobs whose events are read together."""


class JobFacts(msgspec.Struct, frozen=True):
    """Jobs, events about their findings by time, and the time of the answer in epoch ms."""

    jobs: Sequence[Job] = ()
    events: Sequence[Event] = ()
    now_ms: int = 0


class JobFactsQuestion(msgspec.Struct, Question[JobFacts], frozen=True, kw_only=True):
    """Question for the jobs that lived at ``since_ms`` or later, or had ended less than ``KEEP_MS`` before.

    ``projects`` None means all that the caller may see; empty ``ids`` mean every job.
    """

    by_resource = of_job = True

    since_ms: int
    projects: frozenset[str] | None = None
    ids: tuple[str, ...] = ()
    findings: bool = False


class NodeFacts(msgspec.Struct, frozen=True):
    """Nodes, events about their contact by time, and the time of the answer in epoch ms."""

    nodes: Sequence[NodeStatus] = ()
    events: Sequence[Event] = ()
    now_ms: int = 0


class NodeFactsQuestion(msgspec.Struct, Question[NodeFacts], frozen=True, kw_only=True):
    """Question for the machines, and for the events of their contact from ``since_ms`` on."""

    by_resource = of_job = True

    since_ms: int
    projects: frozenset[str] | None = None
    silent_ms: int = SILENT_MS


class DiskFacts(msgspec.Struct, frozen=True):
    """Bytes of the disk of the server's data folder; 0 if unknown."""

    free: int = 0
    size: int = 0
    now_ms: int = 0


class DiskQuestion(msgspec.Struct, Question[DiskFacts], frozen=True):
    """Question for the space on the disk of the server's data folder; the server itself answers."""

    of_job = True


def get_job_facts(
    registry: Registry, question: JobFactsQuestion, projects: frozenset[str] | None, scope: Scope, now_ms: int
) -> JobFacts:
    """Answer a ``JobFactsQuestion`` for those projects (None: all). Raises LimitExceededError for too many jobs."""
    found: dict[tuple[str, str], Job] = {}
    ended = Condition("end", Operator.BETWEEN, (max(question.since_ms - KEEP_MS, 0), None))
    alive = frozenset({JobState.QUEUED, JobState.RUNNING})
    for narrowed in (JobFilter(states=alive), JobFilter(conditions=(ended,))):
        listed = msgspec.structs.replace(narrowed, projects=projects, ids=question.ids)
        for job in _iterate_jobs(registry, listed, scope, now_ms):
            found[job.project, job.id] = job
            if len(found) > MOST_JOBS:
                raise LimitExceededError(
                    f"more than {MOST_JOBS} jobs match: name a project or a job_id, or narrow the range", "query"
                )
    events = _findings(registry, found) if question.findings else ()
    return JobFacts(list(found.values()), events, now_ms)


def _iterate_jobs(registry: Registry, question: JobFilter, scope: Scope, now_ms: int) -> Iterator[Job]:
    offset = 0
    while True:
        page = msgspec.structs.replace(question, offset=offset, limit=_PAGE)
        jobs = list_permitted_jobs(registry, page, scope, now_ms).jobs
        yield from jobs
        offset += len(jobs)
        if len(jobs) < _PAGE:
            return


def _findings(registry: Registry, jobs: dict[tuple[str, str], Job]) -> list[Event]:
    """Return the events about findings of those jobs, by time. Raises LimitExceededError for too many events."""
    ids = group_pairs(jobs)
    found: list[Event] = []
    for project, some in ids.items():
        for first in range(0, len(some), _CHUNK):
            page = registry.list_events(
                EventFilter(
                    projects=frozenset({project}),
                    jobs=tuple(some[first : first + _CHUNK]),
                    types=frozenset({EventType.FINDING}),
                    limit=MOST_EVENTS - len(found),
                )
            )
            found += page.events
            if page.total > len(page.events):
                raise LimitExceededError(
                    f"the jobs have more than {MOST_EVENTS} findings: name a project or a job_id", "query"
                )
    return found


def get_node_facts(
    registry: Registry, question: NodeFactsQuestion, projects: frozenset[str] | None, scope: Scope, now_ms: int
) -> NodeFacts:
    """Answer a ``NodeFactsQuestion`` for those projects (None: all)."""
    nodes = find_nodes(registry, NodesQuestion(silent_ms=question.silent_ms), scope, now_ms)
    kept = [one for one in nodes if projects is None or one.node.project in projects]
    visible = {(one.node.cluster, one.node.name) for one in kept}
    page = registry.list_events(
        EventFilter(
            projects=projects,
            types=frozenset({EventType.NODE_UP, EventType.NODE_DOWN}),
            start=question.since_ms,
            descending=True,
            limit=MOST_EVENTS,
        )
    )
    events = [event for event in reversed(page.events) if (event.cluster, event.node) in visible]
    return NodeFacts(kept, events, now_ms)


def is_final(event: Event) -> bool:
    """Return True if an event about a finding comes from the diagnosis after the end of its job."""
    return event.reason == FINDING and not event.subject
