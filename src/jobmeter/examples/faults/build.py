"""Builds cases out of nothing: a healthy job's series with noise and gaps, which a fault then changes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.event import Event, Level
from jobmeter.model.job import Allocation, Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.time import HOUR, MINUTE, NS_PER_MS, SECOND, TimeRange
from jobmeter.query.defaults import default_step
from jobmeter.query.gaps import Presence

START = 1_767_225_600_000
STEP = 10 * SECOND
GIB = 2.0**30
_STEPS = 720
_POINTS = 250_000
"""Samples of one metric of a drawn job, at most."""
_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60)

_Join = Callable[..., float]
Key = tuple[str, str, str]
"""(metric, replica, device)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Size of a job, its sampling and its levels. The usual one is that of most tests; ``draw_shape`` draws others.

    Times in ms. ``noise`` multiplies the spread of every series. ``profiled`` False: a node without DCGM or GPM, whose
    devices have utilization, power, clock, temperature and memory alone. ``onset`` is the share of the life after
    which a fault begins that need not last for all of it.
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
    profiled: bool = True
    onset: float = 0.0


USUAL = Shape()


def draw_shape(random: np.random.Generator) -> Shape:
    """Draw a job: 4 to 64 replicas of 1 to 8 devices, 1.5 to 8 hours, an interval of 1 to 60 s, any phase and jitter.

    A job of many devices is shorter or sampled less often, so that its size stays bounded.
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
    return Shape(
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
        profiled=bool(random.random() < 0.6),
        onset=float(random.choice([0.0, random.uniform(0.1, 0.5)])),
    )


@dataclass(eq=False)
class Made:
    """A job in the making. Series are float64[n] at ``time``; a fault changes them, then ``case`` drops some points."""

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
    shape: Shape = USUAL

    @cached_property
    def time(self) -> Int64s:
        """The moments of all samples, in ms: int64[n], ascending."""
        time = np.arange(START + self.shape.phase, START + self.length, self.shape.interval)
        if not self.shape.jitter:
            return time
        early = self.random.integers(0, self.shape.jitter + 1, len(time))
        return np.maximum.accumulate(np.maximum(time - early, START))

    def at(self, share: float) -> int:
        """The index of the sample at a share of the job's life."""
        return int(np.searchsorted(self.time, START + share * self.length))

    @property
    def names(self) -> list[str]:
        """The replicas."""
        return [f"worker-{rank}" for rank in range(self.replicas)]

    @property
    def gpus(self) -> list[tuple[str, str]]:
        """(replica, device) of all devices."""
        return [(name, f"gpu{place}") for name in self.names for place in range(self.devices)]

    def noise(self, mean: float, spread: float) -> Float64s:
        """A level with noise, not below 0."""
        return np.maximum(self.random.normal(mean, spread * self.shape.noise, len(self.time)), 0.0)

    def put(self, metric: str, make: Callable[[], Float64s]) -> None:
        """A series of a metric for each replica, or for each device where it is one's."""
        members = self.gpus if metric.startswith("gpu.") else [(name, "") for name in self.names]
        for replica, device in members:
            self.series[metric, replica, device] = make()

    def say(self, text: str, at: int, replica: str = "worker-0", level: Level | None = None) -> None:
        """A log line ``at`` ms after the start."""
        stream = "stderr" if level is Level.ERROR else "stdout"
        number = len(self.lines)
        moment = (START + at) * NS_PER_MS + number
        self.lines.append(LogLine(time_ns=moment, text=text, job="made", replica=replica, stream=stream, level=level))

    def say_kernel(self, text: str, at: int, node: str = "node-worker-1") -> None:
        """A line of the kernel of a node ``at`` ms after the start."""
        moment = (START + at) * NS_PER_MS + len(self.kernel)
        self.kernel.append(LogLine(time_ns=moment, text=text, node=node, stream="kernel", facility="kern"))

    def fail(self, replica: str, code: int, *texts: str, early: int = 0, reason: str = "") -> None:
        """A replica that failed at the job's end, ``early`` ms before it, after these lines."""
        self.state = JobState.FAILED
        end = self.length - early
        for text in texts:
            self.say(text, end - 200, replica, Level.ERROR)
        self.ends[replica] = (START + end, code, reason)

    def case(self) -> Case:
        """Return the rules' view of the job: about one sample in 40 is missing, the others are joined into steps."""
        span = TimeRange(START, START + self.length)
        step_ms = max(default_step(span, _STEPS), STEP) if self.shape is USUAL else default_step(span, _STEPS)
        return Case(
            view=self._view(),
            span=span,
            now_ms=span.end_ms,
            step_ms=step_ms,
            means=_grouped(self._signals(self.series, step_ms, np.mean)),
            increases=_grouped(self._signals(self.increases, step_ms, np.sum)),
            nodes=_grouped(self._of_nodes(step_ms)),
            events=self.events,
            lines=sorted(self.lines, key=lambda line: line.order),
            kernel=sorted(self.kernel, key=lambda line: line.order),
        )

    def _signals(self, series: dict[Key, Float64s], step_ms: int, join: _Join) -> Iterator[Signal]:
        for (metric, replica, device), value in series.items():
            time = self.time[: len(value)]
            selected = np.ones(len(time), np.bool_)
            if join is np.mean:
                selected = self.random.random(len(time)) > 0.025
            if self.gap and self.gap[0] == replica:
                selected &= (time < START + self.gap[1]) | (time >= START + self.gap[2])
            node = f"node-{replica}" if device or join is np.sum else ""
            found, joined, presence = _in_steps(time[selected], value[selected], step_ms, join)
            signal = Signal(metric, found, joined, replica, node, device)
            yield signal.sampled_until(presence.until)

    def _of_nodes(self, step_ms: int) -> Iterator[Signal]:
        for (metric, node, part), value in self.nodes.items():
            found, joined, presence = _in_steps(self.time[: len(value)], value, step_ms, np.mean)
            yield Signal(metric, found, joined, node=node, part=part).sampled_until(presence.until)

    def _view(self) -> JobView:
        ended = self.state.finished
        end = START + self.length if ended else None
        replicas = [self._replica(name, end) for name in self.names]
        codes = [code for _, code, _ in sorted(self.ends.values()) if code]
        job = Job(
            id="made",
            state=self.state,
            start=START,
            end=end,
            error=self.error,
            exit_code=codes[0] if codes else None,
            recorded=True,
            updated=end,
            last_sample=self.last_sample or int(self.time[-1]),
        )
        allocations = [
            Allocation(replica=name, node=f"node-{name}", device=device, start=START, end=end)
            for name, device in self.gpus
        ]
        return JobView(job=job, replicas=replicas, allocations=allocations)

    def _replica(self, name: str, end: int | None) -> Replica:
        own = self.ends.get(name)
        code = own[1] if own else 0 if end else None
        state = JobState.FAILED if code else self.state if not end else JobState.SUCCEEDED
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


def _in_steps(time: Int64s, value: Float64s, step_ms: int, join: _Join) -> tuple[Int64s, Float64s, Presence]:
    """Join the samples of each step, as an answer does: first times, values, and when the samples were taken."""
    if not len(time):
        return time, value, Presence.of_samples(time)
    starts = np.flatnonzero(np.append(True, np.diff(time // step_ms) > 0))
    count = np.diff(np.append(starts, len(time)))
    total = np.add.reduceat(value, starts)
    last = time[np.append(starts[1:], len(time)) - 1]
    presence = Presence(time[starts], last, count)
    return time[starts], total / count if join is np.mean else total, presence


def _grouped(signals: Iterable[Signal]) -> dict[str, list[Signal]]:
    found: dict[str, list[Signal]] = {}
    for one in signals:
        found.setdefault(one.metric, []).append(one)
    return found


def training(random: np.random.Generator, shape: Shape = USUAL) -> Made:
    """A healthy training job; the usual one has 4 replicas with 2 GPUs each, 2 hours, samples each 10 s."""
    made = Made(random, shape.replicas, shape.devices, shape.length, shape=shape)
    made.put("gpu.utilization", lambda: np.minimum(made.noise(shape.busy, 0.04), 1.0))
    if shape.profiled:
        made.put("gpu.sm.active", lambda: np.minimum(made.noise(shape.sm, 0.04), 1.0))
        made.put("gpu.tensor.active", lambda: made.noise(shape.tensor, 0.03))
    made.put("gpu.power", lambda: made.noise(shape.power * shape.power_limit, 0.022 * shape.power_limit))
    made.put("gpu.power.limit", lambda: np.full(len(made.time), shape.power_limit))
    made.put("gpu.clock.sm", lambda: made.noise(shape.clock, 0.007 * shape.clock))
    made.put("gpu.temperature", lambda: made.noise(64, 2))
    made.put("gpu.memory.usage", lambda: made.noise(60 * GIB, 0.2 * GIB))
    made.put("gpu.memory.limit", lambda: np.full(len(made.time), 80 * GIB))
    made.put("gpu.memory.utilization", lambda: made.noise(0.75, 0.003))
    made.put("gpu.throttle.power", lambda: made.noise(0.02, 0.01))
    _host(made, cores=shape.cores, limit=shape.cores * 8 / 3)
    return made


def batch(random: np.random.Generator, shape: Shape | None = None) -> Made:
    """A healthy job without devices; the usual one has 4 replicas and takes an hour."""
    shape = shape or USUAL
    made = Made(random, shape.replicas, 0, HOUR if shape is USUAL else shape.length, shape=shape)
    _host(made, cores=shape.cores / 2, limit=shape.cores / 2 * 4 / 3)
    return made


def _host(made: Made, cores: float, limit: float) -> None:
    made.put("cpu.usage", lambda: made.noise(cores, 0.1 * cores))
    made.put("cpu.limit", lambda: np.full(len(made.time), limit))
    made.put("cpu.utilization", lambda: made.noise(cores / limit, 0.1 * cores / limit))
    made.put("cpu.throttled.time", lambda: made.noise(0.02, 0.02))
    made.put("memory.usage", lambda: made.noise(20 * GIB, 0.3 * GIB))
    made.put("memory.limit", lambda: np.full(len(made.time), 64 * GIB))
    made.put("memory.utilization", lambda: made.noise(20 / 64, 0.005))
    made.put("pressure.io", lambda: made.noise(0.03, 0.02))
    made.put("network.receive", lambda: made.noise(2e8, 2e7))
    made.put("disk.read", lambda: made.noise(5e7, 5e6))
    for at in range(0, made.length, 60 * SECOND):
        made.say(f"step {at // 1000} loss {2.0 / (1 + at / HOUR):.3f}", at)
    for name in made.names:
        node = f"node-{name}"
        made.nodes["node.filesystem.size", node, "/data"] = np.full(len(made.time), 1e12)
        made.nodes["node.filesystem.available", node, "/data"] = made.noise(6e11, 1e9)
        made.nodes["node.processes.blocked", node, ""] = (made.random.random(len(made.time)) < 0.03).astype(np.float64)
