"""Who a caller is, once a credential was checked, and what a decision allows it to read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import msgspec

from jobmeter.access.policy import Grant, Policies
from jobmeter.model.job import Job, Node
from jobmeter.model.series import DEFAULT_PROJECT


class Role(StrEnum):
    """What a key may do at most."""

    ADMIN = "admin"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """The holder of a key, or of a share token.

    ``project`` None: every project; what it writes belongs to ``default``. ``job`` is set for a share token, which
    opens the measurements of that one job and nothing else, and for a link, which opens its page.
    ``access_key_id`` is the key's public half, empty where there is no key. ``actions`` None: whatever the role
    allows; else these alone, as the holder of a trace token may.
    """

    id: str
    name: str
    role: Role
    project: str | None = None
    job: str | None = None
    actions: frozenset[str] | None = None
    access_key_id: str = field(default="", compare=False)
    policies: Policies | None = field(default=None, compare=False, repr=False)
    """What policies allow the key, within what its role does; None: its role alone decides."""

    @property
    def linked(self) -> bool:
        """True for the holder of a link: a key that opens the page of one job."""
        return self.job is not None and bool(self.access_key_id)

    @cached_property
    def account(self) -> str:
        """The account that its calls are counted for: its project, else the default project."""
        return self.project or DEFAULT_PROJECT


class Scope(msgspec.Struct, frozen=True):
    """The projects (None: all) and, for a share token, the one job that a caller may read.

    Made by ``jobmeter.access.decide`` alone. A job outside of it is answered as if it did not exist.
    """

    projects: frozenset[str] | None
    job: str | None = None
    record: bool = False
    """Where there is one job: whether its record is open too, as to the holder of a link."""
    grant: Grant | None = None
    """Where policies allow some resources of those projects alone: which."""

    def allows(self, project: str, job: str | None = None) -> bool:
        """True when that project, and that job where one is meant, lies inside."""
        inside = self.projects is None or project in self.projects
        return inside and (self.job is None or self.job == job)

    def within(self, projects: frozenset[str] | None) -> frozenset[str] | None:
        """Those of some projects (None: all) that lie inside."""
        if projects is None or self.projects is None:
            return self.projects if projects is None else projects
        return self.projects & projects

    def shows(self, job: Job, clusters: Iterable[str]) -> bool:
        """True when a job, whose replicas ran on those clusters, lies inside; they matter where ``grant.clusters``."""
        if not self.allows(job.project, job.id):
            return False
        if self.grant is None:
            return True
        names = [f"job/{job.id}", *(f"cluster/{name}" for name in clusters if name)]
        names += [f"resourcegroup/{job.resource_group}"] if job.resource_group else []
        names += [f"workspace/{job.workspace}", f"workspace/{job.workspace}/job/{job.id}"] if job.workspace else []
        return self.grant.shows(job.project, *names)

    def shows_node(self, node: Node) -> bool:
        """True when the node lies inside."""
        if self.grant is None:
            return self.allows(node.project)
        names = [f"node/{node.name}"]
        names += [f"resourcegroup/{node.resource_group}"] if node.resource_group else []
        names += [f"cluster/{node.cluster}"] if node.cluster else []
        return (self.projects is None or node.project in self.projects) and self.grant.shows(node.project, *names)

    def shows_group(self, project: str, group: str) -> bool:
        """True when all of a resource group in that project lies inside."""
        if self.grant is None:
            return self.allows(project)
        return self.grant.whole and self.grant.shows(project, f"resourcegroup/{group}")
