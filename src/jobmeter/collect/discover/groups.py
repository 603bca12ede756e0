"""Parse the paths of control groups made for jobs: Slurm's and Kubernetes' layouts.

Slurm, version 1: ``/slurm/uid_1000/job_21/step_0/task_0``, or ``/slurm_NODE/...`` if several slurmd share a machine.
Version 2: ``/system.slice/slurmstepd.scope/job_21/step_0/user/task_0``, or ``NODE_slurmstepd.scope``. From Slurm 26.05
on a job may have another identifier than its number. Kubernetes: a part ``podUID``, ``podUID.slice`` with underscores
from the systemd driver, at any depth (a cluster in a container). Below it is the container: ``ID`` from the cgroupfs
driver, ``cri-containerd-ID.scope``, ``crio-ID.scope`` or ``docker-ID.scope`` from systemd's. If only the kubelet uses
systemd's driver, the container is beside the pod's name: ``podUID.slice:cri-containerd:ID``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobmeter.collect.cgroup.paths import UNIFIED

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
"""CRI-O's own program, in a group that is named after its container."""
_CONTAINER = re.compile(r"[0-9a-f]{12,64}(?=(?:\.scope)?$)")
_WHOLE_STEPS = {"batch", "extern", "interactive"}


@dataclass(frozen=True, slots=True)
class SlurmPlace:
    """Place of a process in Slurm's tree.

    ``job`` is empty if the path does not contain its number. ``step`` is ``0``, ``batch``, ``extern``, and so on.
    ``task`` is the task's number in the path. ``groups`` are the task's own, by controller; a batch script is the only
    task of its step. ``job_groups`` are the job's groups on this node if they contain its tasks but none of Slurm's own
    programs, as for ``cpuacct`` alone. ``root`` is the group of all jobs of one slurmd.
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

    ``container`` is its id, empty if the path does not contain it. ``groups`` are the container's own by controller,
    else the pod's.
    """

    uid: str
    container: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


def find_slurm_place(groups: Mapping[str, str]) -> SlurmPlace | None:
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


def find_pod_place(groups: Mapping[str, str]) -> PodPlace | None:
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
