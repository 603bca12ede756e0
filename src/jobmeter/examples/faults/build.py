"""Builds cases out of nothing: a healthy job's series with noise and gaps, which a fault then changes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.event import Event, Level
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.log import LogLine
from jobmeter.model.time import HOUR, SECOND, TimeRange

START = 1_767_225_600_000
STEP = 10 * SECOND
GIB = 2.0**30
_NS = 1_000_000

Key = tuple[str, str, str]
"""(metric, replica, device)."""


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

    @property
    def time(self) -> Int64s:
        """The moments of all series, in ms."""
        return np.arange(START, START + self.length, STEP)

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
        return np.maximum(self.random.normal(mean, spread, len(self.time)), 0.0)

    def put(self, metric: str, make: Callable[[], Float64s]) -> None:
        """A series of a metric for each replica, or for each device where it is one's."""
        members = self.gpus if metric.startswith("gpu.") else [(name, "") for name in self.names]
        for replica, device in members:
            self.series[metric, replica, device] = make()

    def say(self, text: str, at: int, replica: str = "worker-0", level: Level | None = None) -> None:
        """A log line ``at`` ms after the start."""
        stream = "stderr" if level is Level.ERROR else "stdout"
        number = len(self.lines)
        moment = (START + at) * _NS + number
        self.lines.append(LogLine(time_ns=moment, text=text, job="made", replica=replica, stream=stream, level=level))

    def say_kernel(self, text: str, at: int, node: str = "node-worker-1") -> None:
        """A line of the kernel of a node ``at`` ms after the start."""
        moment = (START + at) * _NS + len(self.kernel)
        self.kernel.append(LogLine(time_ns=moment, text=text, node=node, stream="kernel", facility="kern"))

    def fail(self, replica: str, code: int, *texts: str, early: int = 0, reason: str = "") -> None:
        """A replica that failed at the job's end, ``early`` ms before it, after these lines."""
        self.state = JobState.FAILED
        end = self.length - early
        for text in texts:
            self.say(text, end - 200, replica, Level.ERROR)
        self.ends[replica] = (START + end, code, reason)

    def case(self) -> Case:
        """What the rules see: about one point in 40 is missing."""
        time = self.time
        increases = (
            Signal(metric, time, value, replica, f"node-{replica}", device)
            for (metric, replica, device), value in self.increases.items()
        )
        nodes = (
            Signal(metric, time, value, node=node, part=part) for (metric, node, part), value in self.nodes.items()
        )
        return Case(
            view=self._view(),
            span=TimeRange(START, START + self.length),
            now_ms=START + self.length,
            step_ms=STEP,
            means=_grouped(self._means(time)),
            increases=_grouped(increases),
            nodes=_grouped(nodes),
            events=self.events,
            lines=sorted(self.lines, key=lambda line: line.order),
            kernel=sorted(self.kernel, key=lambda line: line.order),
        )

    def _means(self, time: Int64s) -> Iterator[Signal]:
        for (metric, replica, device), value in self.series.items():
            selected = self.random.random(len(time)) > 0.025
            if self.gap and self.gap[0] == replica:
                selected &= (time < START + self.gap[1]) | (time >= START + self.gap[2])
            node = f"node-{replica}" if device else ""
            yield Signal(metric, time[selected], value[selected], replica, node, device)

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
        return JobView(job=job, replicas=replicas, allocations=[])

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


def _grouped(signals: Iterable[Signal]) -> dict[str, list[Signal]]:
    found: dict[str, list[Signal]] = {}
    for one in signals:
        found.setdefault(one.metric, []).append(one)
    return found


def training(random: np.random.Generator) -> Made:
    """A healthy training job: 4 replicas with 2 GPUs each, 2 hours of samples each 10 s, lines each minute."""
    made = Made(random)
    made.put("gpu.utilization", lambda: np.minimum(made.noise(0.92, 0.04), 1.0))
    made.put("gpu.sm.active", lambda: np.minimum(made.noise(0.75, 0.04), 1.0))
    made.put("gpu.tensor.active", lambda: made.noise(0.4, 0.03))
    made.put("gpu.power", lambda: made.noise(560, 15))
    made.put("gpu.power.limit", lambda: np.full(len(made.time), 700.0))
    made.put("gpu.clock.sm", lambda: made.noise(1.70e9, 1.2e7))
    made.put("gpu.temperature", lambda: made.noise(64, 2))
    made.put("gpu.memory.usage", lambda: made.noise(60 * GIB, 0.2 * GIB))
    made.put("gpu.memory.limit", lambda: np.full(len(made.time), 80 * GIB))
    made.put("gpu.memory.utilization", lambda: made.noise(0.75, 0.003))
    made.put("gpu.throttle.power", lambda: made.noise(0.02, 0.01))
    _host(made, cores=3.0, limit=8.0)
    return made


def batch(random: np.random.Generator) -> Made:
    """A healthy job without devices: 4 replicas, an hour."""
    made = Made(random, devices=0, length=HOUR)
    _host(made, cores=1.5, limit=2.0)
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
        made.nodes["node.processes.blocked", node, ""] = (made.random.random(len(made.time)) < 0.1).astype(np.float64)
