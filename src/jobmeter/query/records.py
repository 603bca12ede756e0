"""Questions about records of jobs and nodes besides those that a query needs, and their answers."""

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.errors import ConflictError, NotFoundError
from jobmeter.model.finding import FindingSummary
from jobmeter.model.pod import NodePods
from jobmeter.model.question import Question
from jobmeter.model.time import format_iso
from jobmeter.query.permitted import JobName, filter_permitted_names
from jobmeter.registry.base import Registry


class FindingsQuestion(msgspec.Struct, Question[list[FindingSummary]], frozen=True):
    """Question for the stored findings of jobs, (project, id). Invisible jobs and jobs without findings are left out.

    In the order of ``jobs``.
    """

    by_resource = of_job = True

    jobs: tuple[JobName, ...]


class NextAttemptQuestion(msgspec.Struct, Question[int], frozen=True):
    """Question for the number of a job's next attempt: the highest one of any replica plus one, 0 for a new job.

    Raises ConflictError while another holder than ``owner`` has the job's lease.
    """

    project: str
    job: str
    owner: str = ""


class ChangedJobs(msgspec.Struct, frozen=True):
    """Jobs, (project, id), that were recorded or deleted, and the mark of the next question.

    ``jobs`` is None if the mark is older than the records of changes.
    """

    jobs: list[JobName] | None
    mark: tuple[int, int]


class ChangedJobsQuestion(msgspec.Struct, Question[ChangedJobs], frozen=True):
    """Question for the jobs recorded or deleted since a mark; see ``Registry.list_recorded_since``."""

    whole_server = True

    mark: tuple[int, int] | None = None


class PodsQuestion(msgspec.Struct, Question[NodePods], frozen=True):
    """Question for the replicas of these pods of a node, as a cluster's watcher reported them."""

    cluster: str
    node: str
    uids: tuple[str, ...]


def list_stored_findings(
    registry: Registry, question: FindingsQuestion, scope: Scope, now_ms: int
) -> list[FindingSummary]:
    """Answer a ``FindingsQuestion``."""
    visible = filter_permitted_names(registry, question.jobs, scope, now_ms)
    return registry.list_findings([job for job in question.jobs if job in visible])


def find_next_attempt(registry: Registry, question: NextAttemptQuestion, scope: Scope, now_ms: int) -> int:
    """Answer a ``NextAttemptQuestion``."""
    project, job = question.project, question.job
    if not scope.allows(project):
        raise NotFoundError(f"there is no project {project}", "project", project)
    until_ms, owner = registry.get_lease(project, job) or (0, "")
    if now_ms < until_ms and owner not in {"", question.owner}:
        raise ConflictError(f"job {job} is still running: its lease lasts until {format_iso(until_ms)}")
    views = registry.find_job(frozenset({project}), job, now_ms)
    return 1 + max((replica.attempt for view in views for replica in view.replicas), default=-1)


def list_changed_jobs(registry: Registry, question: ChangedJobsQuestion) -> ChangedJobs:
    """Answer a ``ChangedJobsQuestion``."""
    return ChangedJobs(*registry.list_recorded_since(question.mark))


def list_pods(registry: Registry, question: PodsQuestion, scope: Scope) -> NodePods:
    """Answer a ``PodsQuestion``."""
    return NodePods(registry.pods.find(scope.projects, question.cluster, question.node, question.uids))
