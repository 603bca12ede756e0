"""Find the Slurm cluster of a job on this node by its control groups: clusters that share a node use equal job numbers.

Slurm passes the name of the cluster to each task in ``SLURM_CLUSTER_NAME``. The node's own cluster is ``ClusterName``
in its ``slurm.conf`` (https://slurm.schedmd.com/slurm.conf.html). Slurm uses the name in lower case.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import UNIFIED
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.model.cluster import JobIds, job_in_cluster

_SLURM_V1 = re.compile(
    r"(?P<job>(?P<root>.*?/slurm(?:_[^/]+)?)/uid_(?P<uid>\d+)/job_(?P<id>\d+))(?P<step>/step_(?P<name>[^/]+))?(?P<task>/task_(?P<number>\d+))?"
)
_SLURM_V2 = re.compile(
    r"(?P<job>(?P<root>.*?/(?:[^/]+_)?slurmstepd\.scope)/(?:job_(?P<id>\d+)|[A-Za-z0-9]+))(?P<step>/step_(?P<name>[^/]+))?"
    r"(?:/user)?(?P<task>/task_(?P<number>\d+))?"
)
_POD = re.compile(
    r".*/(?:[^/]*-)?pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?(?P<container>:[a-z-]+:[0-9a-f]{12,64}|/(?:[a-z-]+-)?[0-9a-f]{12,64}(?:\.scope)?)?(?=/|$)"
)
_MONITOR = "/crio-conmon-"
"""CRI-O's own program beside a container, in a group that is named after it."""
_CONTAINER = re.compile(r"[0-9a-f]{12,64}(?=(?:\.scope)?$)")
_WHOLE_STEPS = {"batch", "extern", "interactive"}


@dataclass(frozen=True, slots=True)
class SlurmPlace:
    """Place of a process in Slurm's tree.

    ``job`` is empty if the path does not name it by its number. ``step`` is ``0``, ``batch``, ``extern``, ... .
    ``task`` is the task's number in the path. ``groups`` are the task's own, by controller; a batch script is
    the only task of its step. ``job_groups`` are the job's groups on this node if they contain its tasks but none of
    Slurm's own programs, which holds only for ``cpuacct``. ``root`` is the group of all jobs of one slurmd.
    """

    job: str = ""
    step: str = ""
    task: int | None = None
    uid: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    job_groups: Mapping[str, str] = field(default_factory=dict)
    root: str = ""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Pod and container of a process.

    ``container`` is its id, empty if the path does not contain it. ``groups`` are the container's own, by controller;
    without a container in the path, the whole pod's.
    """

    uid: str
    container: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


def slurm_place(groups: Mapping[str, str]) -> SlurmPlace | None:
    """Find the place in Slurm's tree; None outside it."""
    found: SlurmPlace | None = None
    own: dict[str, str] = {}
    whole: dict[str, str] = {}
    # The accounting controller numbers tasks over the whole job in Slurm 22.05, the others over the node.
    for controller in sorted(groups, key=lambda name: name != "cpuacct"):
        pattern = _SLURM_V2 if controller == UNIFIED else _SLURM_V1
        match = pattern.match(groups[controller])
        if match is None:
            continue
        parts = match.groupdict()
        step = parts["name"] or ""
        if parts["task"] or (step in _WHOLE_STEPS and parts["step"]):
            own[controller] = match.group(0).removesuffix("/user")
        if controller == "cpuacct":
            whole[controller] = parts["job"]
        if found is None or (found.task is None and parts["number"]):
            uid = parts.get("uid")
            task = parts["number"]
            found = SlurmPlace(
                parts["id"] or "", step, int(task) if task else None, int(uid) if uid else None, root=parts["root"]
            )
    return found and replace(found, groups=own, job_groups=whole)


def pod_place(groups: Mapping[str, str]) -> PodPlace | None:
    """Find the innermost pod of the groups; None without one."""
    uid = container = ""
    own: dict[str, str] = {}
    for controller, path in groups.items():
        match = _POD.match(path)
        if match and _MONITOR not in path:
            uid = match["uid"].replace("_", "-")
            named = _CONTAINER.search(match["container"] or "")
            container = named[0] if named else container
            own[controller] = match.group(0)
    return PodPlace(uid, container, own) if uid else None


VARIABLE = "SLURM_CLUSTER_NAME"
_PLACES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",  # for a node that fetches its configuration from the controller
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
"""The usual paths of Slurm's configuration, unless ``SLURM_CONF`` names a file."""
_NAME = re.compile(rb"^\s*ClusterName\s*=\s*([^\s#]+)", re.IGNORECASE | re.MULTILINE)
_MOST = 1_024
_log = logging.getLogger(__name__)


def read_own_cluster(environment: Mapping[str, str], places: Sequence[str] = _PLACES) -> str:
    """Return the name of this node's cluster by its ``slurm.conf``; empty if it is missing or not readable."""
    named = environment.get("SLURM_CONF", "")
    for place in (named,) if named else places:
        match = _NAME.search(files.read(place) or b"")
        if match:
            return match[1].decode(errors="replace").strip("\"'").lower()
    return ""


class SlurmClusters:
    """Makes the ids of Slurm's jobs.

    A job of the node's own cluster has its number as its id, a job of another cluster ``NUMBER@CLUSTER``; with
    ``JobIds.CLUSTER`` every job has the latter form. If the own cluster is unknown, it is the first that a job names.
    """

    def __init__(self, own: str = "", ids: JobIds = JobIds.PLAIN) -> None:
        self._own = own
        self._ids = ids
        self._of_roots: dict[str, str] = {}
        self._others: set[str] = set()

    def cluster(self, number: str, place: SlurmPlace, variables: Mapping[str, str], parent: Member | None) -> str:
        """Return the cluster of a job; empty if unknown.

        Children are in the cluster of their parent, whatever their environment says. A task without it is in the
        cluster of the others below the slurmd's group.
        """
        if parent is not None and parent.cluster and self.is_job(parent, number):
            return parent.cluster
        named = variables.get(VARIABLE, "").lower()
        if named:
            self._own = self._own or named
            self._log_other(named)
            if place.root and (place.root in self._of_roots or len(self._of_roots) < _MOST):
                self._of_roots[place.root] = named
        return named or self._of_roots.get(place.root, "")

    def job_id(self, number: str, cluster: str) -> str:
        """The id of a job with that number in that cluster, empty for the node's own."""
        cluster = cluster or self._own
        if cluster and (cluster != self._own or self._ids is JobIds.CLUSTER):
            return job_in_cluster(number, cluster)
        return number

    def _log_other(self, cluster: str) -> None:
        if cluster in {self._own, *self._others} or self._ids is JobIds.CLUSTER or len(self._others) >= _MOST:
            return
        self._others.add(cluster)
        example = job_in_cluster("NUMBER", cluster)
        _log.info("jobs of Slurm's cluster %s go by %s: this node's own cluster is %s", cluster, example, self._own)

    def is_job(self, member: Member, number: str) -> bool:
        """True if a member works for a job of that number, in its own cluster."""
        return member.source is MembershipSource.SLURM and member.owner.job == self.job_id(number, member.cluster)
