"""Questions about a resource group as a whole, and the shape of their answers.

The nodes of a group are those whose record says so. Where none does, they are the nodes on which replicas of its jobs
ran in the range or in the day before its end, but for nodes that belong to another group.
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


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum of some amounts."""
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
    """A node of a group and the names of its devices' types, each once, sorted."""

    name: str
    cluster: str = ""
    device_types: tuple[str, ...] = ()


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The running replicas on a node: what they are allowed, how many they are, and whose.

    ``jobs`` are the ids of their jobs, ``users`` the users of these, each once and sorted.
    """

    requested: Amounts = Amounts()
    replicas: int = 0
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a group, its size, and what runs on it."""

    node: Node
    state: NodeState
    capacity: Amounts
    load: Load


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A resource group, and what its machines and jobs have in common.

    ``nodes`` counts the machines whose records name it, ``clusters`` and ``device_types`` are theirs. ``jobs`` counts
    all jobs that name the group, ``workspaces`` are theirs. ``created`` is when the first node or job
    of the group was heard of; ``updated`` when a node joined it or the record of one of its jobs was written last.
    """

    name: str
    nodes: int = 0
    clusters: tuple[str, ...] = ()
    device_types: tuple[str, ...] = ()
    jobs: int = 0
    workspaces: tuple[str, ...] = ()
    created: int | None = None
    updated: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one user, or all together, had in a range, and their use.

    ``requested`` is what the replicas in it requested, None where unknown. ``cpu`` and ``memory`` are
    the mean usage over what those replicas may use that were measured, ``device`` the mean utilization of the devices
    that were; rates are bytes a second. None: not measured. ``jobs`` is their number, each once however many attempts
    its replicas made; ``*_jobs`` are job ids, which several projects may share, a job with devices being a device
    job; ``*_nodes`` names of nodes, without and with devices.
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
    """The size of a group and its use, by user; ``summary`` is of all users together."""

    capacity: Amounts
    users: Sequence[Usage]
    summary: Usage


class GroupQuestion(msgspec.Struct, Question[GroupUsage], frozen=True, kw_only=True):
    """Request the use of a resource group in a range, by user. A ``workspace`` narrows the jobs, not the capacity.

    A group or workspace that no job or node in reach names is NotFoundError (``resource_group``, ``workspace``).
    """

    group: GroupRef
    range: TimeRange
    workspace: str = ""


class CapacityQuestion(msgspec.Struct, Question[Amounts], frozen=True, kw_only=True):
    """The resources of a group over a range. Raises as ``GroupQuestion``."""

    group: GroupRef
    range: TimeRange


class RequestsQuestion(msgspec.Struct, Question[Amounts], frozen=True, kw_only=True):
    """Request the limits of the replicas that are in one of ``states``, of jobs that meet the range.

    Raises as ``GroupQuestion``.
    """

    group: GroupRef
    range: TimeRange
    states: frozenset[JobState]


class GroupNodesQuestion(msgspec.Struct, Question[Sequence[GroupNode]], frozen=True, kw_only=True):
    """The nodes of a resource group, by name. Raises as ``GroupQuestion``."""

    group: GroupRef
    range: TimeRange


class NodeLoadsQuestion(msgspec.Struct, Question[Sequence[NodeLoad]], frozen=True, kw_only=True):
    """The nodes of a resource group and what runs on them, by cluster and name. Raises as ``GroupQuestion``.

    ``silent_ms``: how long a node may send nothing before it counts as down.
    """

    group: GroupRef
    range: TimeRange
    silent_ms: int = SILENT_MS


class ResourceGroupsQuestion(msgspec.Struct, Question[Sequence[ResourceGroup]], frozen=True, kw_only=True):
    """The resource groups that nodes and jobs name and that the caller may see whole, by name.

    With ``names``, those of them.
    """

    names: frozenset[str] = frozenset()
