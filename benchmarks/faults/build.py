"""Generation of jobs for the diagnosis: series of a healthy job with noise and gaps, which a fault then changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.steps import Steps
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.running import STEPS as RUNNING_STEPS
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Bools, Float64s, Int64s
from jobmeter.model.event import Event, Level
from jobmeter.model.job import Allocation, Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.time import HOUR, MINUTE, NS_PER_MS, SECOND, TimeRange
from jobmeter.query.defaults import choose_step

START = 1_767_225_600_000
STEP = 10 * SECOND
GIB = 2.0**30
_STEPS = 720
_POINTS = 250_000
"""Maximum samples of one metric of a drawn job."""
_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60)

_MISSED = 0.025
"""Share of the readings of a replica that are missing."""

Key = tuple[str, str, str]
"""Key of a series: (metric, replica, device)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """Size, sampling and levels of a job. Most tests use ``USUAL``; ``draw_shape`` draws others.

    Times are milliseconds. ``noise`` multiplies the spread of every series. ``profiled`` is False for a node without
    DCGM or GPM, whose devices have only utilization, power, clock, temperature and memory. ``clock_share`` is the
    clock as a share of the highest clock. ``onset`` is the share of the job's life after which a fault begins, for
    faults that need not last all of it.
    """

    replicas: int = 4
    devices: int = 2
    length: int = 2 * HOUR
    interval: int = STEP
    phase: int = 0
    jitter: int = 0
    noise: float = 1.0
    busy: float = 0.92
    sm: float = 0.75
    tensor: float = 0.4
    power_limit: float = 700.0
    power: float = 0.8
    clock: float = 1.70e9
    cores: float = 3.0
    clock_share: float = 0.95
    profiled: bool = True
    onset: float = 0.0


USUAL = JobShape()


def draw_shape(random: np.random.Generator) -> JobShape:
    """Draw the shape of a job: 4 to 64 replicas with 1 to 8 devices, 1.5 to 8 hours, samples every 1 to 60 s.

    Phase and jitter of the samples are random. A job with many devices is shorter or sampled less often, so that its
    size stays bounded.
    """
    replicas, devices = int(random.choice([4, 5, 8, 16, 32, 64])), int(random.choice([1, 2, 4, 8]))
    interval = int(random.choice(_INTERVALS)) * SECOND
    length = int(random.integers(90, 480)) * MINUTE
    while replicas * devices * length / interval > _POINTS:
        if length > 90 * MINUTE:
            length = max(length // 2, 90 * MINUTE)
        else:
            interval *= 2
    interval = min(interval, 60 * SECOND)
    return JobShape(
        replicas=replicas,
        devices=devices,
        length=length,
        interval=interval,
        phase=int(random.integers(interval)),
        jitter=int(random.integers(interval // 20 + 1)),
        noise=float(random.uniform(0.3, 1.3)),
        busy=float(random.uniform(0.88, 0.97)),
        sm=float(random.uniform(0.6, 0.85)),
        tensor=float(random.uniform(0.2, 0.5)),
        power_limit=float(random.choice([300, 400, 700, 1000])),
        power=float(random.uniform(0.65, 0.92)),
        clock=float(random.uniform(1.3e9, 1.98e9)),
        cores=float(random.uniform(2.5, 8.0)),
        clock_share=float(random.uniform(0.86, 1.0)),
        profiled=bool(random.random() < 0.6),
        onset=float(random.choice([0.0, random.uniform(0.1, 0.5)])),
    )


class _Joined:
    """Cache of the steps of each member (replica, node or device) within the span of a case."""

    def __init__(self, time: Int64s, case: Case) -> None:
        self._time, self._span, self._step_ms = time, case.span, case.step_ms
        self._found: dict[tuple[str, int, int], Steps] = {}

    def steps(self, member: str, size: int, selected: Bools, begin: int = 0) -> Steps:
        """Return the steps of a member's first ``size`` samples, from the sample ``begin`` on.

        ``selected`` tells which samples exist. Series of one member share their steps, as in the answer to a query.
        """
        key = member, size, begin
        if key not in self._found:
            time = self._time[:size]
            inside = (time >= self._span.start_ms) & (time < self._span.end_ms) & (np.arange(size) >= begin)
            self._found[key] = Steps(time, np.flatnonzero(selected[:size] & inside), self._step_ms)
        return self._found[key]


@dataclass(eq=False)
class Made:
    """Generated job. Series are float64[n] at ``time``. A fault changes them, then ``case`` drops some samples."""

    random: np.random.Generator
    replicas: int = 4
    devices: int = 2
    length: int = 2 * HOUR
    state: JobState = JobState.RUNNING
    series: dict[Key, Float64s] = field(default_factory=dict)
    increases: dict[Key, Float64s] = field(default_factory=dict)
    nodes: dict[tuple[str, str, str], Float64s] = field(default_factory=dict)
    ends: dict[str, tuple[int, int | None, str]] = field(default_factory=dict)
    lines: list[LogLine] = field(default_factory=list)
    kernel: list[LogLine] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    error: str = ""
    last_sample: int | None = None
    gap: tuple[str, int, int] | None = None
    allocations: list[Allocation] = field(default_factory=list)
    of_nodes: list[Signal] = field(default_factory=list)
    """Series of devices from the time when they were measured without the job."""
    begins: dict[Key, int] = field(default_factory=dict)
    """Index of the first sample that a series of a member has for the job, 0 by default."""
    shape: JobShape = USUAL
    began: int = START
    """Time when the fault began, in epoch ms."""
    dropped: dict[str, Bools] = field(default_factory=dict)
    """Samples that were read of each replica, by its name: bool[n], True for a sample that is not missing."""

    @cached_property
    def time(self) -> Int64s:
        """Return the times of all samples in epoch ms: int64[n], ascending."""
        time = np.arange(START + self.shape.phase, START + self.length, self.shape.interval)
        if not self.shape.jitter:
            return time
        early = self.random.integers(0, self.shape.jitter + 1, len(time))
        return np.maximum.accumulate(np.maximum(time - early, START))

    def at(self, share: float) -> int:
        """Return the index of the sample at a share of the job's life, 0 to 1."""
        return int(np.searchsorted(self.time, START + share * self.length))

    @property
    def names(self) -> list[str]:
        """Return the names of the replicas."""
        return [f"worker-{rank}" for rank in range(self.replicas)]

    @property
    def gpus(self) -> list[tuple[str, str]]:
        """Return (replica, device) of each device."""
        return [(name, f"gpu{place}") for name in self.names for place in range(self.devices)]

    def noise(self, mean: float, spread: float) -> Float64s:
        """Return float64[n]: a level with noise, not below 0."""
        return np.maximum(self.random.normal(mean, spread * self.shape.noise, len(self.time)), 0.0)

    def put(self, metric: str, make: Callable[[], Float64s]) -> None:
        """Set the series of a metric for each replica, or for each device if the metric's name starts with ``gpu.``."""
        members = self.gpus if metric.startswith("gpu.") else [(name, "") for name in self.names]
        for replica, device in members:
            self.series[metric, replica, device] = make()

    def say(self, text: str, at: int, replica: str = "worker-0", level: Level | None = None) -> None:
        """Add a log line of a replica, ``at`` ms after the start."""
        stream = "stderr" if level is Level.ERROR else "stdout"
        number = len(self.lines)
        moment = (START + at) * NS_PER_MS + number
        self.lines.append(LogLine(time_ns=moment, text=text, job="made", replica=replica, stream=stream, level=level))

    def say_kernel(self, text: str, at: int, node: str = "node-worker-1") -> None:
        """Add a log line of a node's kernel, ``at`` ms after the start."""
        moment = (START + at) * NS_PER_MS + len(self.kernel)
        self.kernel.append(LogLine(time_ns=moment, text=text, node=node, stream="kernel", facility="kern"))

    def fail(self, replica: str, code: int, *texts: str, early: int = 0, reason: str = "") -> None:
        """Let a replica fail ``early`` ms before the job's end. ``texts`` are its last log lines."""
        self.state = JobState.FAILED
        end = self.length - early
        for text in texts:
            self.say(text, end - 200, replica, Level.ERROR)
        self.ends[replica] = (START + end, code, reason)

    def begin(self, share: float) -> int:
        """Note that the fault begins at a share of the job's life; return the index of its first sample."""
        self.began = START + int(share * self.length)
        return self.at(share)

    def case(self) -> Case:
        """Return the job as the rules see it after its end.

        About one of 40 readings is missing. The others are joined into steps.
        """
        span = TimeRange(START, START + self.length)
        step_ms = max(choose_step(span, _STEPS), STEP) if self.shape is USUAL else choose_step(span, _STEPS)
        case = Case(
            view=self._view(self.state),
            span=span,
            now_ms=span.end_ms,
            step_ms=step_ms,
            events=self.events,
            lines=sorted(self.lines, key=lambda line: line.order),
            kernel=sorted(self.kernel, key=lambda line: line.order),
        )
        return self._measured(case)

    def running_case(self, now_ms: int, window_ms: int, which: Rule) -> Case:
        """Return the job as one rule sees it at ``now_ms``, while the job runs, over the last ``window_ms``."""
        span = TimeRange(max(START, now_ms - window_ms), now_ms)
        case = Case(
            view=self._view(JobState.RUNNING),
            span=span,
            now_ms=now_ms,
            step_ms=choose_step(span, RUNNING_STEPS),
            events=[event for event in self.events if event.time <= now_ms],
            lines=sorted(
                (line for line in self.lines if line.time_ns < now_ms * NS_PER_MS), key=lambda line: line.order
            ),
            began_ms=START,
        )
        return self._measured(case, which)

    def _measured(self, case: Case, which: Rule | None = None) -> Case:
        """Return the case with the series in its span; with ``which`` only the series that this rule needs."""
        joined = _Joined(self.time, case).steps
        means, increases, nodes = [], [], []
        for (metric, replica, device), value in self.series.items():
            if which is None or metric in which.metrics:
                found = joined(replica, len(value), self._read(replica), self.begins.get((metric, replica, device), 0))
                means.append(
                    found.signal(metric, found.means(value), replica, f"node-{replica}" if device else "", device)
                )
        for (metric, replica, device), value in self.increases.items():
            if which is None or metric in which.counters:
                begin = self.begins.get((metric, replica, device), 0)
                found = joined("+" + replica, len(value), self._attended(replica), begin)
                increases.append(found.signal(metric, found.sums(value), replica, f"node-{replica}", device))
        for (metric, node, part), value in self.nodes.items():
            if which is None or metric in which.nodes:
                found = joined(node, len(value), np.ones(len(self.time), np.bool_))
                nodes.append(found.signal(metric, found.means(value), node=node, part=part))
        for one in self.of_nodes:
            if which is None or one.metric in which.nodes:
                size = len(one.value)
                found = joined(f"{one.node}/{one.device}", size, np.ones(size, np.bool_))
                nodes.append(found.signal(one.metric, found.means(one.value), node=one.node, device=one.device))
        return replace(case, means=_grouped(means), increases=_grouped(increases), nodes=_grouped(nodes))

    def _attended(self, replica: str) -> Bools:
        """Return bool[n]: whether the agent of a replica ran at each sample."""
        time = self.time
        if self.gap is None or self.gap[0] != replica:
            return np.ones(len(time), np.bool_)
        return (time < START + self.gap[1]) | (time >= START + self.gap[2])

    def _read(self, replica: str) -> Bools:
        """Return bool[n]: whether a replica was read at each sample."""
        if replica not in self.dropped:
            self.dropped[replica] = self.random.random(len(self.time)) > _MISSED
        return self.dropped[replica] & self._attended(replica)

    def _view(self, state: JobState) -> JobView:
        ended = state.finished
        end = START + self.length if ended else None
        replicas = [self._replica(name, end, state) for name in self.names]
        codes = [code for _, code, _ in sorted(self.ends.values()) if code]
        job = Job(
            id="made",
            state=state,
            start=START,
            end=end,
            error=self.error,
            exit_code=codes[0] if codes else None,
            recorded=True,
            updated=end,
            last_sample=self.last_sample or int(self.time[-1]),
        )
        allocated = {(one.replica, one.device) for one in self.allocations}
        others = [
            Allocation(replica=name, node=f"node-{name}", device=device, start=START, end=end)
            for name, device in self.gpus
            if (name, device) not in allocated
        ]
        return JobView(job=job, replicas=replicas, allocations=[*self.allocations, *others])

    def _replica(self, name: str, end: int | None, job_state: JobState) -> Replica:
        own = self.ends.get(name) if job_state is self.state else None
        code = own[1] if own else 0 if end else None
        state = JobState.FAILED if code else job_state if not end else JobState.SUCCEEDED
        return Replica(
            name=name,
            rank=int(name.rpartition("-")[2]),
            node=f"node-{name}",
            state=state,
            start=START,
            end=own[0] if own else end,
            exit_code=code,
            reason=own[2] if own else "",
        )


def _grouped(signals: Iterable[Signal]) -> dict[str, list[Signal]]:
    found: dict[str, list[Signal]] = {}
    for one in signals:
        found.setdefault(one.metric, []).append(one)
    return found


def training(random: np.random.Generator, shape: JobShape = USUAL) -> Made:
    """Make a healthy training job. The usual one has 4 replicas with 2 GPUs, and samples every 10 s for 2 hours."""
    made = Made(random, shape.replicas, shape.devices, shape.length, shape=shape)
    made.put("gpu.utilization", lambda: np.minimum(made.noise(shape.busy, 0.04), 1.0))
    if shape.profiled:
        made.put("gpu.sm.active", lambda: np.minimum(made.noise(shape.sm, 0.04), 1.0))
        made.put("gpu.tensor.active", lambda: made.noise(shape.tensor, 0.03))
    made.put("gpu.power", lambda: made.noise(shape.power * shape.power_limit, 0.022 * shape.power_limit))
    _always(made, "gpu.power.limit", shape.power_limit)
    made.put("gpu.clock.sm", lambda: made.noise(shape.clock, 0.007 * shape.clock))
    _always(made, "gpu.clock.sm.limit", shape.clock / shape.clock_share)
    for name, value in (("generation", 5.0), ("width", 16.0)):
        _always(made, f"gpu.pcie.{name}", value)
        _always(made, f"gpu.pcie.{name}.limit", value)
    _always(made, "gpu.processes", 1.0)
    _always(made, "gpu.processes.foreign", 0.0)
    made.put("gpu.temperature", lambda: made.noise(64, 2))
    made.put("gpu.memory.usage", lambda: made.noise(60 * GIB, 0.2 * GIB))
    _always(made, "gpu.memory.limit", 80 * GIB)
    made.put("gpu.memory.utilization", lambda: made.noise(0.75, 0.003))
    made.put("gpu.throttle.power", lambda: made.noise(0.02, 0.01))
    _host(made, cores=shape.cores, limit=shape.cores * 8 / 3)
    return made


def _always(made: Made, metric: str, value: float) -> None:
    made.put(metric, lambda: np.full(len(made.time), value))


def batch(random: np.random.Generator, shape: JobShape | None = None) -> Made:
    """Make a healthy job without devices. The usual one has 4 replicas and runs for an hour."""
    shape = shape or USUAL
    made = Made(random, shape.replicas, 0, HOUR if shape is USUAL else shape.length, shape=shape)
    _host(made, cores=shape.cores / 2, limit=shape.cores / 2 * 4 / 3)
    return made


def _host(made: Made, cores: float, limit: float) -> None:
    made.put("cpu.usage", lambda: made.noise(cores, 0.1 * cores))
    _always(made, "cpu.limit", limit)
    made.put("cpu.utilization", lambda: made.noise(cores / limit, 0.1 * cores / limit))
    made.put("cpu.throttled.time", lambda: made.noise(0.02, 0.02))
    made.put("memory.usage", lambda: made.noise(20 * GIB, 0.3 * GIB))
    _always(made, "memory.limit", 64 * GIB)
    made.put("memory.utilization", lambda: made.noise(20 / 64, 0.005))
    made.put("pressure.io", lambda: made.noise(0.03, 0.02))
    made.put("pressure.cpu", lambda: made.noise(0.02, 0.01))
    made.put("network.receive", lambda: made.noise(2e8, 2e7))
    made.put("network.transmit", lambda: made.noise(2e8, 2e7))
    made.put("disk.write", lambda: made.noise(1e6, 2e5))
    made.put("disk.read", lambda: made.noise(5e7, 5e6))
    for at in range(0, made.length, 60 * SECOND):
        made.say(f"step {at // 1000} loss {2.0 / (1 + at / HOUR):.3f}", at)
    levels = _node_levels(made, cores, limit)
    for name in made.names:
        moved = int(made.random.integers(len(made.time)))  # nodes have the same levels at different times
        for (metric, part), value in levels.items():
            made.nodes[metric, f"node-{name}", part] = np.roll(value, moved)


def _node_levels(made: Made, cores: float, limit: float) -> dict[tuple[str, str], Float64s]:
    """Return the series of a healthy node, half of whose CPUs the job may use, by metric and part.

    Counters are given as rates.
    """
    one, count = np.ones(len(made.time)), 2 * limit
    busy = made.noise(cores + 0.1 * limit, 0.1 * cores)
    return {
        ("node.cpu.count", ""): count * one,
        ("node.cpu.time", "user"): busy,
        ("node.cpu.time", "idle"): np.maximum(count - busy, 0.0),
        ("node.memory.total", ""): 256 * GIB * one,
        ("node.memory.major.faults", ""): made.noise(5, 10),
        ("node.swap.out", ""): 0.0 * one,
        ("node.network.speed", "eth0"): 25e9 / 8 * one,
        ("node.network.receive", "eth0"): made.noise(2e8, 2e7),
        ("node.network.transmit", "eth0"): made.noise(2e8, 2e7),
        ("node.network.packets", "eth0 receive"): made.noise(4e4, 4e3),
        ("node.network.packets", "eth0 transmit"): made.noise(4e4, 4e3),
        ("node.network.errors", "eth0 receive"): 0.0 * one,
        ("node.network.dropped", "eth0 receive"): made.noise(0.5, 0.5),
        ("node.tcp.sent", ""): made.noise(4e4, 4e3),
        ("node.tcp.retransmitted", ""): made.noise(20, 20),
        ("node.filesystem.size", "/data"): 1e12 * one,
        ("node.filesystem.available", "/data"): made.noise(6e11, 1e9),
        ("node.processes.blocked", ""): (made.random.random(len(made.time)) < 0.03).astype(np.float64),
    }
