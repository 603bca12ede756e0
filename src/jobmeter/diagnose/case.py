"""The input of rules: one job's record, arrays, events and lines, read once for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from jobmeter.diagnose.signal import Member, Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools
from jobmeter.model.event import Event
from jobmeter.model.finding import Subject
from jobmeter.model.job import Job, JobState, JobView
from jobmeter.model.log import LogLine
from jobmeter.model.time import TimeRange
from jobmeter.query.stretches import Stretch

Signals = Mapping[str, Sequence[Signal]]
_NOTHING: Signals = {}
_WINDOWS = 5
"""Windows in a hold time over which a level is averaged."""


class UsedMounts(msgspec.Struct, frozen=True):
    """The mount points of a node that a job used: those its processes worked in, and those it had files to write on."""

    worked: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()


class Case(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A job and its stored data over ``span`` (its life, until now while it runs).

    ``means`` are gauges and rates of counters by metric, in the unit of an answer; ``increases`` the increase of
    counters in each step. ``nodes`` are gauges and rates of the nodes that it was on. ``events`` and ``lines`` are in
    order of time; of many lines those that warn and the last ones are there. ``kernel`` are lines of the kernels of its
    nodes that are about the job or its devices, ``faults`` events about its devices of which no line is there.
    ``open_rules`` are the rules with an open finding of the job. For a running job ``span`` may be the last part alone;
    ``began_ms`` is its real start. ``mounts`` are the filesystems that the job used, by node, where an agent saw them.
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

    @property
    def job(self) -> Job:
        """The job itself."""
        return self.view.job

    @property
    def may_hang(self) -> bool:
        """False for a job that has succeeded, has not started, or may have ended unobserved."""
        return self.job.state in {JobState.RUNNING, JobState.FAILED, JobState.STOPPED}

    @property
    def subject(self) -> Subject:
        """The job, as what a finding is about."""
        return Subject("job", self.job.id)

    def judged(self, numbers: Numbers) -> TimeRange:
        """The job's life without its warm-up: the rule's own, or max(warm_up, a share of the life)."""
        start, end = self.span.start_ms, self.span.end_ms
        began = start if self.began_ms is None else self.began_ms
        warm_up = numbers["warm_up"]
        if warm_up:
            warm_up = max(warm_up, numbers["warm_up_share"] * (end - began))
        return TimeRange(min(max(began + int(warm_up), start), end), end)

    def signals(self, metric: str, numbers: Numbers, reaching: float = -np.inf) -> list[Signal]:
        """The means of a metric after the warm-up, where enough of the time was sampled.

        ``reaching`` leaves out most of those that are below it all the time: they need not be looked at in full.
        """
        return list(self._enough(self.means, metric, numbers, reaching))

    def levels(self, metric: str, numbers: Numbers, reaching: float = -np.inf) -> list[Signal]:
        """Return ``signals`` averaged over windows of a fifth of the hold time: samples scatter around a level."""
        return [one.averaged(numbers["hold"] / _WINDOWS) for one in self._enough(self.means, metric, numbers, reaching)]

    def has_signals(self, metric: str, numbers: Numbers) -> bool:
        """Whether there are ``signals``."""
        return next(self._enough(self.means, metric, numbers), None) is not None

    def of_nodes(self, metric: str, numbers: Numbers) -> list[Signal]:
        """As ``signals``, of the nodes that the job was on."""
        return list(self._enough(self.nodes, metric, numbers))

    def levels_of_nodes(self, metric: str, numbers: Numbers) -> dict[tuple[str, str], Signal]:
        """Return ``of_nodes`` averaged as ``levels`` are, by node and part."""
        length = numbers["hold"] / _WINDOWS
        return {(one.node, one.part): one.averaged(length) for one in self._enough(self.nodes, metric, numbers)}

    def stretch(self, signal: Signal, true: Bools, numbers: Numbers, hold: str = "hold") -> Stretch | None:
        """The time in which a condition on a signal's points held for as long as the threshold ``hold`` says.

        The condition was seen to hold for the share ``steady`` of that time. Of several such times: the one that lasts
        to the end of what was measured, where the job runs; else the longest.
        """
        found = signal.stretches(true, numbers[hold], numbers["steady"])
        if not found:
            return None
        if self.job.state is JobState.RUNNING and found[-1].end >= self.span.end_ms - numbers["recent"]:
            return found[-1]
        return max(found, key=lambda stretch: stretch.length)

    def name_of(self, signal: Signal) -> str:
        """The member that a signal is of, as people know it: ``worker-87 (node-18, gpu7)``; ``node-18`` of a node."""
        return self._name(signal.replica, signal.node, signal.device)

    def name_of_subject(self, subject: Subject) -> str:
        """A subject as people know it, see ``name_of``; empty for the job."""
        if subject.kind == "job":
            return ""
        if subject.kind == "replica":
            return self._name(subject.name, "", "")
        node, _, device = subject.name.partition("/")
        return self._name("", node, device) if subject.kind == "device" else subject.name

    def _name(self, replica: str, node: str, device: str) -> str:
        if device and not replica:
            owners = [one.replica for one in self.view.allocations if (one.node, one.device) == (node, device)]
            replica = owners[-1] if owners else ""
        if not node:
            node = next((one.node for one in reversed(self.view.replicas) if one.name == replica), "")
        if not replica:
            return f"{node}/{device}" if device else node
        place = ", ".join(filter(None, (node, device)))
        return f"{replica} ({place})" if place else replica

    def by_member(self, metric: str) -> Mapping[Member, Signal]:
        """The means of a metric by member, over the whole span."""
        if metric not in self._by_metric:
            self._by_metric[metric] = {signal.member: signal for signal in self.means.get(metric, ())}
        return self._by_metric[metric]

    @cached_property
    def _by_metric(self) -> dict[str, Mapping[Member, Signal]]:
        return {}

    def _enough(self, signals: Signals, metric: str, numbers: Numbers, reaching: float = -np.inf) -> Iterator[Signal]:
        span, least = self.judged(numbers), numbers["coverage"]
        for signal in signals.get(metric, ()):
            if reaching > -np.inf and signal.value.max(initial=-np.inf) < reaching:
                continue
            inside = signal.within(span.start_ms, span.end_ms)
            # The coverage of a member's own life: it may have started later, or ended earlier, than the job.
            if len(inside) and inside.coverage >= least:
                yield inside
