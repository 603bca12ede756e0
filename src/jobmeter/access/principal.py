"""Identity of a verified caller, and the scope that it may read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import msgspec

from jobmeter.access.policy import Grant, Policies
from jobmeter.model.job import Job, Node
from jobmeter.model.series import DEFAULT_PROJECT


class Role(StrEnum):
    """Role of a key: the upper bound of its permissions."""

    ADMIN = "admin"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Holder of a key or of a share token.

    ``project`` None: every project; written data belongs to ``default``. ``job`` is set for a share token, which only
    opens the measurements of that job, and for a link, which opens its page. ``access_key_id`` is the key's public
    half, empty without a key. ``actions`` None: everything that the role allows; else only these, as for a trace token.
    """

    id: str
    name: str
    role: Role
    project: str | None = None
    job: str | None = None
    actions: frozenset[str] | None = None
    access_key_id: str = field(default="", compare=False)
    run_job: str | None = None
    """Job to which the holder of a run's token is limited."""
    policies: Policies | None = field(default=None, compare=False, repr=False)
    """Permissions by policies, within the role; None: only the role decides."""

    @property
    def linked(self) -> bool:
        """True for the holder of a link: a key that opens the page of one job."""
        return self.job is not None and bool(self.access_key_id)

    @cached_property
    def account(self) -> str:
        """Account that its calls are counted for: its project, else the default project."""
        return self.project or DEFAULT_PROJECT


class Scope(msgspec.Struct, frozen=True):
    """Scope of a caller: projects (None: all) and, for a share token, the one job that it may read.

    Only ``jobmeter.access.decide`` creates scopes. A job outside the scope is treated as if it did not exist.
    """

    projects: frozenset[str] | None
    job: str | None = None
    record: bool = False
    """True if the record of a single job is open too, as for the holder of a link."""
    grant: Grant | None = None
    """Restriction to resources of those projects, if policies allow only some."""

    def allows(self, project: str, job: str | None = None) -> bool:
        """True if that project, and that job if given, lie inside the scope."""
        inside = self.projects is None or project in self.projects
        return inside and (self.job is None or self.job == job)

    def intersect_projects(self, projects: frozenset[str] | None) -> frozenset[str] | None:
        """Intersect projects (None: all) with the scope."""
        if projects is None or self.projects is None:
            return self.projects if projects is None else projects
        return self.projects & projects

    def shows(self, job: Job, clusters: Iterable[str]) -> bool:
        """True if a job whose replicas ran on those clusters lies inside.

        Clusters matter only with ``grant.clusters``.
        """
        if not self.allows(job.project, job.id):
            return False
        if self.grant is None:
            return True
        names = [f"job/{job.id}", *(f"cluster/{name}" for name in clusters if name)]
        names += [f"resourcegroup/{job.resource_group}"] if job.resource_group else []
        names += [f"workspace/{job.workspace}", f"workspace/{job.workspace}/job/{job.id}"] if job.workspace else []
        return self.grant.shows(job.project, *names)

    def shows_node(self, node: Node) -> bool:
        """True if the node lies inside the scope."""
        if self.grant is None:
            return self.allows(node.project)
        names = [f"node/{node.name}"]
        names += [f"resourcegroup/{node.resource_group}"] if node.resource_group else []
        names += [f"cluster/{node.cluster}"] if node.cluster else []
        return (self.projects is None or node.project in self.projects) and self.grant.shows(node.project, *names)

    def shows_group(self, project: str, group: str) -> bool:
        """True if the whole resource group in that project lies inside the scope."""
        if self.grant is None:
            return self.allows(project)
        return self.grant.whole and self.grant.shows(project, f"resourcegroup/{group}")
