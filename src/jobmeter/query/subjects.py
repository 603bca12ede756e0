"""Subjects of queries: jobs and nodes that the caller may see."""

from collections.abc import Sequence

from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import Job, JobView, Node, Replica
from jobmeter.model.time import Clock
from jobmeter.query.request import JobRef, NodeRef
from jobmeter.registry.base import Registry

_JOB = ("id", "project", "state", "created", "start", "end", "limits", "recorded", "first_sample", "last_sample")
_REPLICA = ("name", "attempt", "rank", "pod_id", "start", "end")
_EXTRA = {"pai-dlc": ("SanityCheckResults",)}
"""Results of health checks, which PAI-DLC's GetJobSanityCheckResult shows to the holder of a token.

https://help.aliyun.com/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobsanitycheckresult.
"""


class Subjects:
    """Finds jobs and nodes within a scope. Thread-safe.

    A job, node or project outside the scope gives NotFoundError, as if it did not exist. An id used by several visible
    projects gives InvalidRequestError (field ``project``) unless the query names one.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    def find_head(self, ref: JobRef, scope: Scope) -> Job:
        """Return the job without its replicas and allocations. Raises as the class says."""
        if scope.grant is not None and scope.grant.clusters:
            return self.find_view(ref, scope).job
        found = self._registry.find_job_head(find_projects(ref.project, scope), ref.id, self._clock.now_ms())
        return _choose_only([job for job in found if scope.shows(job, ())], ref)

    def find_view(self, ref: JobRef, scope: Scope, *, alone: bool = False) -> JobView:
        """Return the job with its replicas and allocations, ``alone`` without them. Raises as the class says."""
        if alone:
            return JobView(job=self.find_head(ref, scope), replicas=[], allocations=[])
        return _choose_only_view(
            self._registry.find_job(find_projects(ref.project, scope), ref.id, self._clock.now_ms()), ref, scope
        )

    def find_cached_head(self, ref: JobRef, scope: Scope) -> Job | None:
        """Return the job's head without blocking; None if it is not in memory."""
        if scope.grant is not None and scope.grant.clusters:
            view = self.find_cached_view(ref, scope)
            return None if view is None else view.job
        found = self._registry.memory.get_job_head(find_projects(ref.project, scope), ref.id, self._clock.now_ms())
        return None if found is None else _choose_only([job for job in found if scope.shows(job, ())], ref)

    def find_cached_view(self, ref: JobRef, scope: Scope, *, alone: bool = False) -> JobView | None:
        """Return the job's view without blocking; None if it is not in memory."""
        if alone:
            head = self.find_cached_head(ref, scope)
            return None if head is None else JobView(job=head, replicas=[], allocations=[])
        found = self._registry.memory.get_job(find_projects(ref.project, scope), ref.id, self._clock.now_ms())
        return None if found is None else _choose_only_view(found, ref, scope)

    def find_nodes(self, ref: NodeRef, scope: Scope) -> list[Node]:
        """Return every node of that name that the caller may see. Raises NotFoundError without any."""
        if scope.job is not None:
            raise NotFoundError(f"there is no node {ref.name!r}", "node", ref.name)
        names = frozenset({ref.name}) if ref.name else None
        nodes = [
            node
            for node in self._registry.list_nodes(find_projects(ref.project, scope), names)
            if scope.shows_node(node)
            and ref.cluster in (None, node.cluster)
            and (node.name == ref.name or (not ref.name and ref.cluster))
        ]
        if not nodes:
            what = f"node {ref.name!r}" if ref.name else f"cluster {ref.cluster!r}"
            raise NotFoundError(f"there is no {what}", "node", ref.name)
        return nodes

    def find_nodes_of_project(self, project: str, names: frozenset[str]) -> Sequence[Node]:
        """Return the nodes of those names in a project, for any scope: a caller who sees a job sees its nodes."""
        return self._registry.list_nodes(frozenset({project}), names)


def is_shown(view: JobView, scope: Scope) -> bool:
    """Return True if the job lies inside the scope."""
    return scope.shows(view.job, () if scope.grant is None else {replica.cluster for replica in view.replicas})


def limit_view(view: JobView, scope: Scope) -> JobView:
    """Reduce a job to the fields that the caller may see: a share token sees only names and places.

    New fields of a job stay hidden until they are listed.
    """
    if scope.job is None or scope.record:
        return view
    job = view.job
    extra = {
        dialect: {name: job.extra[dialect][name] for name in names if name in job.extra[dialect]}
        for dialect, names in _EXTRA.items()
        if dialect in job.extra
    }
    replicas = [Replica(**{name: getattr(one, name) for name in _REPLICA}) for one in view.replicas]
    shared = Job(**{name: getattr(job, name) for name in _JOB}, extra=extra)
    return replace(view, job=shared, replicas=replicas, allocations=[])


def find_projects(named: str | None, scope: Scope) -> frozenset[str] | None:
    """Return the projects to search: the named one if the scope includes it, else all of the scope."""
    return scope.intersect_projects(None if named is None else frozenset({named}))


def _choose_only_view(found: Sequence[JobView], ref: JobRef, scope: Scope) -> JobView:
    inside = {view.job.project: view for view in found if is_shown(view, scope)}
    return inside[_choose_only([view.job for view in inside.values()], ref).project]


def _choose_only(jobs: Sequence[Job], ref: JobRef) -> Job:
    if not jobs:
        raise NotFoundError(f"there is no job {ref.id!r}", "job", ref.id)
    if len(jobs) > 1:
        projects = ", ".join(sorted(job.project for job in jobs))
        raise InvalidRequestError(f"several projects have a job {ref.id!r} ({projects}): choose one project", "project")
    return jobs[0]
