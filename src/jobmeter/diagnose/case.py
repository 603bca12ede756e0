"""The input of rules: one job's record, arrays, events and lines, read once for all of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.diagnose.signal import Member, Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools
from jobmeter.model.event import Event
from jobmeter.model.finding import Subject
from jobmeter.model.job import Job, JobState, JobView
from jobmeter.model.log import LogLine
from jobmeter.model.series import compute_job_key
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.series import SeriesQuestion
from jobmeter.query.stretches import Stretch

Signals = Mapping[str, Sequence[Signal]]
_NOTHING: Signals = {}
_WINDOWS = 5
"""Windows in a hold time over which a level is averaged."""
_FEW = 4
"""Most replicas that are named beside their node; for more, their number is given."""
_INTERACTIVE_TYPE = re.compile(r"notebook|jupyter|interactive|(?<![a-z])(?:dsw|ide|workbench)(?![a-z])", re.IGNORECASE)
_INTERACTIVE_COMMAND = re.compile(
    r"(?:^|[\s/])(?:jupyter(?!-?\s*(?:nbconvert|execute|run)\b)(?:-\w+|hub-singleuser)?|code-server|openvscode-server|rserver)"
    r"(?=\s|$)|(?:^|[\s/])ipython3?\s*$"
    r"|(?:^|[\s/])python[\d.]*\s+(?:-[a-zA-Z]+\s+)*-m\s+(?:notebook|jupyter(?:lab)?|ipykernel(?:_launcher)?|IPython)(?=\s|$)"
    r"|^\s*(?:\S*/)?(?:ba|z|da)?sh(?:\s+-[il]+)*\s*$"
)
"""Types and commands of interactive jobs, which wait for a person."""
Addresses = Mapping[tuple[str, str], str]
"""Names of devices, such as ``gpu2``, by node and PCI address."""


class UsedMounts(msgspec.Struct, frozen=True):
    """Mount points of a node that a job used: its processes worked there, or had files open for writing."""

    worked: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()


class Case(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A job and its stored data over ``span``: its life, or until now while it runs.

    ``means`` has gauges and rates of counters by metric, in the unit of an answer. ``increases`` has the growth of
    counters in each step. ``nodes`` has gauges and rates of the job's nodes. ``events`` and ``lines`` are in order of
    time. Of a long log, ``lines`` has only warnings, errors and the end. ``kernel`` has lines of the nodes' kernel logs
    about the job or its devices. ``faults`` has events about its devices, which may report the same faults as
    ``kernel``. ``open_rules`` are the rules with an open finding. For a running job ``span`` may be only the last part
    of its life. ``began_ms`` is its real start. ``mounts`` has the filesystems that the job used, by node, if an agent
    saw them. ``addresses`` maps PCI addresses to devices, if agents sent them and a report names one.
    """

    view: JobView
    span: TimeRange
    now_ms: int
    step_ms: int
    means: Signals = msgspec.field(default_factory=lambda: _NOTHING)
    increases: Signals = msgspec.field(default_factory=lambda: _NOTHING)
    nodes: Signals = msgspec.field(default_factory=lambda: _NOTHING)
    events: Sequence[Event] = ()
    lines: Sequence[LogLine] = ()
    kernel: Sequence[LogLine] = ()
    faults: Sequence[Event] = ()
    open_rules: frozenset[str] = frozenset()
    began_ms: int | None = None
    mounts: Mapping[str, UsedMounts] = msgspec.field(default_factory=dict)
    addresses: Addresses = msgspec.field(default_factory=dict)

    @property
    def job(self) -> Job:
        """The job itself."""
        return self.view.job

    @property
    def may_hang(self) -> bool:
        """False for a job that has succeeded, has not started, waits for a person, or may have ended unobserved."""
        return self.job.state in {JobState.RUNNING, JobState.FAILED, JobState.STOPPED} and not self.is_interactive

    @property
    def is_interactive(self) -> bool:
        """True for a notebook or a shell, which is idle while nobody types."""
        return bool(_INTERACTIVE_TYPE.search(self.job.type) or _INTERACTIVE_COMMAND.search(self.job.command))

    @property
    def subject(self) -> Subject:
        """The job as the subject of a finding."""
        return Subject("job", self.job.id)

    def skip_warm_up(self, numbers: Numbers) -> TimeRange:
        """Return the job's life without its warm-up: the rule's own, or max(warm_up, a share of the life)."""
        start, end = self.span.start_ms, self.span.end_ms
        began = start if self.began_ms is None else self.began_ms
        warm_up = numbers["warm_up"]
        if warm_up:
            warm_up = max(warm_up, numbers["warm_up_share"] * (end - began))
        return TimeRange(min(max(began + int(warm_up), start), end), end)

    def select_signals(self, metric: str, numbers: Numbers, reaching: float = -np.inf) -> list[Signal]:
        """Return the means of a metric after the warm-up, if enough of the time was sampled.

        ``reaching`` leaves out most of the signals that are always below that level, to save time.
        """
        return list(self._select_measured_enough(self.means, metric, numbers, reaching))

    def average_signals(self, metric: str, numbers: Numbers, reaching: float = -np.inf) -> list[Signal]:
        """Return ``select_signals`` averaged over windows of a fifth of the hold time, because samples scatter."""
        return [
            one.average_over(numbers["hold"] / _WINDOWS)
            for one in self._select_measured_enough(self.means, metric, numbers, reaching)
        ]

    def has_signals(self, metric: str, numbers: Numbers) -> bool:
        """True if ``select_signals`` has any."""
        return next(self._select_measured_enough(self.means, metric, numbers), None) is not None

    def select_node_signals(self, metric: str, numbers: Numbers) -> list[Signal]:
        """Return the signals of the nodes that the job was on, in the form of ``select_signals``."""
        return list(self._select_measured_enough(self.nodes, metric, numbers))

    def average_nodes(self, metric: str, numbers: Numbers) -> dict[tuple[str, str], Signal]:
        """Return ``select_node_signals`` averaged as ``average_signals`` are, by node and part."""
        length = numbers["hold"] / _WINDOWS
        return {
            (one.node, one.part): one.average_over(length)
            for one in self._select_measured_enough(self.nodes, metric, numbers)
        }

    def find_stretch(self, signal: Signal, true: Bools, numbers: Numbers) -> Stretch | None:
        """Return the time in which a condition on a signal's points held, at least for the threshold ``hold``.

        The condition may fail for the share 1 - ``steady`` of that time. Of several results, the last one counts if the
        job runs and the time lasts to the end of the samples. Otherwise the longest one counts.
        """
        found = signal.find_stretches(true, numbers["hold"], numbers["steady"])
        if not found:
            return None
        if self.job.state is JobState.RUNNING and found[-1].end >= self.span.end_ms - numbers["recent"]:
            return found[-1]
        return max(found, key=lambda stretch: stretch.length)

    def name_signal(self, signal: Signal) -> str:
        """Return the name of a signal's member: ``worker-87 (node-18, gpu7)``, or ``node-18`` for a node."""
        owner = signal.replica or (self.find_owner(signal.node, signal.device) if signal.device else "")
        return self.name_member(owner, signal.node, signal.device)

    def name_subject(self, subject: Subject, time: int | None = None) -> str:
        """Return the name of a subject, see ``name_signal``, with a device's owner at a time (None: the last owner).

        The name of a node, link or filesystem includes the replicas there. Empty for the job.
        """
        if subject.kind == "job":
            return ""
        if subject.kind == "replica":
            return self.name_member(subject.name)
        node, _, part = subject.name.partition(":" if subject.kind == "filesystem" else "/")
        if subject.kind == "device":
            return self.name_member(self.find_owner(node, part, time), node, part)
        place = f"{part} of {node}" if part else node
        names = self.list_replicas_on(node)
        if not names or names == [node]:
            return place
        return f"{place} ({', '.join(names) if len(names) <= _FEW else f'{len(names)} replicas'})"

    def list_replicas_on(self, node: str) -> list[str]:
        """Return the replicas that are or were on a node."""
        return list(dict.fromkeys(one.name for one in self.view.replicas if one.node == node))

    def list_replicas(self, subject: Subject, time: int | None = None) -> list[str]:
        """Return the replicas that a finding about a subject names.

        A replica names itself. A device names its owners and its partitions' owners at ``time``; None means the last
        owners.
        """
        if subject.kind == "replica":
            return [subject.name]
        node, _, device = subject.name.partition("/")
        if subject.kind != "device":
            return []
        had = (one.device for one in self.view.allocations if (one.node or one.replica) == node)
        parts = dict.fromkeys(name for name in had if name.startswith(f"{device}:"))
        owners = (self.find_owner(node, name, time) for name in (device, *parts))
        return list(dict.fromkeys(filter(None, owners)))

    def find_owner(self, node: str, device: str, time: int | None = None) -> str:
        """Return the replica that had a device at a time, or a moment before; the last owner for None.

        Empty if no replica had it.
        """
        own = [one for one in self.view.allocations if (one.node or one.replica, one.device) == (node, device)]
        if time is not None:
            own = [one for one in own if one.start <= time and (one.end is None or time <= one.end + MINUTE)]
        if own:
            return own[-1].replica
        return "" if self.view.allocations else self._find_measured_owner(node, device)

    def _find_measured_owner(self, node: str, device: str) -> str:
        """Return the replica whose series has the device, for a job without records of who has which device."""
        members = (one.member for signals in self.means.values() for one in signals)
        return next((one[0] for one in members if (one[1] or one[0], one[2]) == (node, device)), "")

    def find_subject_at(self, node: str, addresses: Iterable[str]) -> Subject:
        """Return the device of a node at one of the PCI addresses, as the node's agent named it.

        Return the node if no agent has reported the address.
        """
        device = next((name for one in addresses if (name := self.addresses.get((node, one)))), "")
        return Subject("device", f"{node}/{device}") if device else Subject("node", node)

    def name_member(self, replica: str, node: str = "", device: str = "") -> str:
        """Return the name of a replica or a device, see ``name_signal``; a replica's node is its last one."""
        if not node:
            node = next((one.node for one in reversed(self.view.replicas) if one.name == replica), "")
        if not replica:
            return f"{device} of {node}" if device and node else device or node
        place = ", ".join(filter(None, (node if node != replica else "", device)))
        return f"{replica} ({place})" if place else replica

    def map_by_member(self, metric: str) -> Mapping[Member, Signal]:
        """Return the means of a metric by member, over the whole span."""
        if metric not in self._by_metric:
            self._by_metric[metric] = {signal.member: signal for signal in self.means.get(metric, ())}
        return self._by_metric[metric]

    @cached_property
    def _by_metric(self) -> dict[str, Mapping[Member, Signal]]:
        return {}

    def _select_measured_enough(
        self, signals: Signals, metric: str, numbers: Numbers, reaching: float = -np.inf
    ) -> Iterator[Signal]:
        if not signals.get(metric):
            return
        # Most rules ask for the same signals with the same thresholds.
        key = signals is self.nodes, metric, numbers["warm_up"], numbers["warm_up_share"], numbers["coverage"]
        found = self._measured_enough.get(key)
        if found is None:
            span = self.skip_warm_up(numbers)
            inside = (signal.cut(span.start_ms, span.end_ms) for signal in signals[metric])
            # The coverage of a member's own life: it may have started later, or ended earlier, than the job.
            found = [one for one in inside if len(one) and one.coverage >= numbers["coverage"]]
            self._measured_enough[key] = found
        if reaching > -np.inf:
            yield from (one for one in found if one.value.max() >= reaching)
        else:
            yield from found

    @cached_property
    def _measured_enough(self) -> dict[tuple[bool, str, float, float, float], list[Signal]]:
        return {}


_WORKED, _WRITTEN = "storage.processes", "storage.files.written"
_SIZE, _AVAILABLE = "node.filesystem.size", "node.filesystem.available"


def find_used_mounts(
    executor: Executor, scope: Scope, view: JobView, nodes: Signals, span: TimeRange, share: float = 0.0
) -> Mapping[str, UsedMounts]:
    """Find the mount points that a job used in a span, by node. Nodes without reports of its processes are left out.

    ``nodes`` are the signals of the job's nodes. If each filesystem of a node was less full than ``share``, nothing is
    read for the node.
    """
    if not _has_full_mount(nodes, share):
        return {}
    key = compute_job_key(view.job.project, view.job.id)
    question = SeriesQuestion(metrics=frozenset({_WORKED, _WRITTEN}), jobs=(key,), since_ms=span.start_ms)
    found: dict[str, dict[str, set[str]]] = {}
    for series in executor.run(question, scope).series:
        mounts = found.setdefault(series.node, {_WORKED: set(), _WRITTEN: set()})
        mounts[series.metric].add(dict(series.labels).get("mount", ""))
    return {
        node: UsedMounts(worked=frozenset(mounts[_WORKED]), written=frozenset(mounts[_WRITTEN]))
        for node, mounts in found.items()
    }


def _has_full_mount(nodes: Signals, share: float) -> bool:
    sizes = {(one.node, one.part): one for one in nodes.get(_SIZE, ())}
    for free in nodes.get(_AVAILABLE, ()):
        size = sizes.get((free.node, free.part))
        if size is not None and len(free) and free.value.min() <= (1 - share) * size.value.max():
            return True
    return False
