"""Questions about a resource group as a whole, and their answers.

The nodes of a group are those whose record names it. Without such records, they are the nodes on which replicas of its
jobs ran in the range or in the day before its end, except nodes of another group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobmeter.model.job import JobState, Node
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange
from jobmeter.query.nodes import SILENT_MS, NodeState
from jobmeter.query.request import GroupRef


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of resources: cores, bytes, devices (GPUs and NPUs), and devices by their maker's name."""

    cpu: float = 0.0
    memory: float = 0.0
    devices: int = 0
    device_types: Mapping[str, int] = msgspec.field(default_factory=dict)


def sum_amounts(amounts: Iterable[Amounts]) -> Amounts:
    """Sum up amounts."""
    each = list(amounts)
    types: Counter[str] = Counter()
    for one in each:
        types.update(one.device_types)
    return Amounts(
        cpu=sum(one.cpu for one in each),
        memory=sum(one.memory for one in each),
        devices=sum(one.devices for one in each),
        device_types=dict(types),
    )


class GroupNode(msgspec.Struct, frozen=True, kw_only=True):
    """Node of a group with the distinct types of its devices, sorted."""

    name: str
    cluster: str = ""
    device_types: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Running replicas on a node: their limits, number and owners.

    ``jobs`` are the ids of their jobs, ``users`` the distinct users, sorted.
    """

    requested: Amounts = Amounts()
    replicas: int = 0
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Node of a group with its size and load."""

    node: Node
    state: NodeState
    capacity: Amounts
    load: Load


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resource group with figures about its machines and jobs.

    ``nodes`` counts the machines whose records name the group, which have ``clusters`` and ``device_types``. ``jobs``
    counts all jobs that name the group, which have ``workspaces``. ``created`` is the first report of a node or job of
    the group. ``updated`` is the last time a node joined it or the record of one of its jobs changed.
    """

    name: str
    nodes: int = 0
    clusters: tuple[str, ...] = ()
    device_types: tuple[str, ...] = ()
    jobs: int = 0
    workspaces: tuple[str, ...] = ()
    created: int | None = None
    updated: int | None = None


class ResourceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and their use in a range, for one user or all users.

    ``requested`` are the requests of the replicas, None if unknown. ``cpu`` and ``memory`` are the mean usage over the
    limits, for measured replicas. ``device`` is the mean utilization of the measured devices. Rates are in bytes per
    second. None: not measured. ``jobs`` counts jobs once, however many attempts they made. ``*_jobs`` are job ids,
    which several projects may share; a job with devices is a device job. ``*_nodes`` are names of nodes without and
    with devices.
    """

    user: str = ""
    jobs: int = 0
    types: tuple[str, ...] = ()
    requested: Amounts = Amounts()
    cpu: float | None = None
    memory: float | None = None
    device: float | None = None
    network_receive: float | None = None
    network_transmit: float | None = None
    disk_read: float | None = None
    disk_write: float | None = None
    cpu_jobs: tuple[str, ...] = ()
    device_jobs: tuple[str, ...] = ()
    cpu_nodes: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()


class GroupUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a group and its use, by user; ``summary`` covers all users."""

    capacity: Amounts
    users: Sequence[ResourceUsage]
    summary: ResourceUsage


class GroupQuestion(msgspec.Struct, Question[GroupUsage], frozen=True, kw_only=True):
    """Question for the use of a resource group in a range, by user. A ``workspace`` narrows the jobs, not the capacity.

    Raises NotFoundError (``resource_group``, ``workspace``) if no visible job or node names it.
    """

    by_resource = of_job = True

    group: GroupRef
    range: TimeRange
    workspace: str = ""


class CapacityQuestion(msgspec.Struct, Question[Amounts], frozen=True, kw_only=True):
    """Question for the resources of a group over a range. Raises as ``GroupQuestion``."""

    by_resource = of_job = True

    group: GroupRef
    range: TimeRange


class RequestsQuestion(msgspec.Struct, Question[Amounts], frozen=True, kw_only=True):
    """Question for the limits of replicas in one of ``states``, of jobs that overlap the range.

    Raises as ``GroupQuestion``.
    """

    by_resource = of_job = True

    group: GroupRef
    range: TimeRange
    states: frozenset[JobState]


class GroupNodesQuestion(msgspec.Struct, Question[Sequence[GroupNode]], frozen=True, kw_only=True):
    """Question for the nodes of a resource group, by name. Raises as ``GroupQuestion``."""

    by_resource = of_job = True

    group: GroupRef
    range: TimeRange


class NodeLoadsQuestion(msgspec.Struct, Question[Sequence[NodeLoad]], frozen=True, kw_only=True):
    """Question for the nodes of a resource group and their load, by cluster and name. Raises as ``GroupQuestion``.

    ``silent_ms``: longest silence of a node that is up.
    """

    by_resource = of_job = True

    group: GroupRef
    range: TimeRange
    silent_ms: int = SILENT_MS


class ResourceGroupsQuestion(msgspec.Struct, Question[Sequence[ResourceGroup]], frozen=True, kw_only=True):
    """Question for the resource groups of nodes and jobs that the caller may see entirely, by name.

    With ``names``, only those.
    """

    by_resource = of_job = True

    names: frozenset[str] = frozenset()
