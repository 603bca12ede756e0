"""Simulates training runs of steps with waiting, computing and communicating, and their agent samples.

The truth is a list of time intervals. A sample is the mean over the interval before it, as with devices and counters.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from jobmeter.model.event import Event
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.query.course import Course
from jobmeter.query.phases import MeasuredRun, PhaseFacts, compute_phases

CREATED = 1_767_225_600_000
SIGNALS = {
    # order: utilization, SM activity, tensor activity, NVLink, CPU, I/O pressure, writes
    "start": (0.0, 0.0, 0.0, 0.0, 0.3, 0.2, 1e4),
    "wait_io": (0.0, 0.0, 0.0, 0.0, 0.1, 0.9, 1e4),
    "wait_cpu": (0.0, 0.0, 0.0, 0.0, 0.97, 0.02, 1e4),
    "wait": (0.0, 0.0, 0.0, 0.0, 0.05, 0.01, 1e4),
    "compute": (1.0, 0.8, 0.45, 0.0, 0.1, 0.01, 1e4),
    "communicate": (1.0, 0.1, 0.0, 4e10, 0.1, 0.01, 1e4),
    "save": (0.0, 0.0, 0.0, 0.0, 0.2, 0.1, 2e9),
    "end": (0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 1e4),
}
NAMES = (
    "gpu.utilization",
    "gpu.sm.active",
    "gpu.tensor.active",
    "gpu.nvlink.transmit",
    "cpu.utilization",
    "pressure.io",
    "disk.write",
)
BEFORE = {"queued", "prepare"}


@dataclass(frozen=True)
class Plan:
    """Durations of the phases of a run in seconds. ``save_every`` and ``fails_at`` count steps."""

    queued: float = 60.0
    prepare: float = 30.0
    start: float = 120.0
    steps: int = 1500
    waits: float = 0.2
    computes: float = 2.0
    communicates: float = 0.3
    save_every: int = 400
    saves: float = 40.0
    fails_at: int | None = None
    down: float = 90.0
    end: float = 20.0
    waits_for: str = "wait_io"
    slowdown: float = 1.0
    """Factor by which computing takes longer and the clock is lower."""
    interval: float = 10.0
    ranks: int = 2
    noise: float = 0.02
    seed: int = 0
    name: str = "run"


@dataclass
class Run:
    """Run with its true seconds by kind, and its intervals (kind, start ms, end ms, attempt) in order of time."""

    plan: Plan
    pieces: list[tuple[str, int, int, int]] = field(default_factory=list)

    @property
    def truth(self):
        found: dict[str, int] = {}
        for kind, start, end, _ in self.pieces:
            found[kind] = found.get(kind, 0) + (end - start)
        return found

    @property
    def end(self):
        return self.pieces[-1][2]

    def of(self, *kinds):
        return [one for one in self.pieces if one[0] in kinds]


def make(plan):
    """Simulate the run of a plan."""
    run, at, attempt = Run(plan), float(CREATED), 0

    def add(kind, seconds):
        nonlocal at
        start, at = at, at + seconds * 1000
        if round(at) > round(start):
            run.pieces.append((kind, round(start), round(at), attempt))

    add("queued", plan.queued)
    add("prepare", plan.prepare)
    add("start", plan.start)
    for step in range(1, plan.steps + 1):
        add(plan.waits_for, plan.waits)
        add("compute", plan.computes * plan.slowdown)
        add("communicate", plan.communicates)
        if plan.fails_at == step:
            add("down", plan.down)
            attempt += 1
            add("start", plan.start)
        elif step % plan.save_every == 0:
            add("save", plan.saves)
    add("end", plan.end)
    return run


def courses(run, names=NAMES):
    """Return the lines of a run, sampled with noise. No sample exists while no process runs."""
    plan, random = run.plan, np.random.default_rng(run.plan.seed)
    edges = np.array([run.pieces[0][1], *(end for _, _, end, _ in run.pieces)], np.float64)
    began = run.of("start")[0][1]
    phase = int(random.integers(plan.interval * 1000))
    time = np.arange(began + phase, run.end, plan.interval * 1000).astype(np.int64)
    away = np.zeros(len(time), np.bool_)
    for _, start, end, _ in run.of("down"):
        away |= (time + plan.interval * 1000 > start) & (time < end)
    time = time[~away]
    until = np.append(time[1:], run.end)
    until = np.minimum(until, time + round(plan.interval * 1000))
    found = {}
    for at, name in enumerate(NAMES):
        level = [SIGNALS.get(kind, (0.0,) * 7)[at] for kind, _, _, _ in run.pieces]
        whole = np.append(0.0, np.cumsum(np.array(level) * np.diff(edges)))
        mean = (np.interp(until, edges, whole) - np.interp(time, edges, whole)) / np.maximum(until - time, 1)
        value = np.maximum(mean * (1 + random.normal(0, plan.noise, len(mean))), 0.0)
        found[name] = Course(time, until, value)
    clock = 1.8e9 / plan.slowdown * (1 + random.normal(0, 0.003, len(time)))
    found["gpu.clock.sm"] = Course(time, until, clock)
    return {
        name: course for name, course in found.items() if name in names or (name == "gpu.clock.sm" and names is NAMES)
    }


def view(run):
    """Return the record of a run."""
    plan, attempts = run.plan, 1 + run.pieces[-1][3]
    starts = [run.of("start")[attempt][1] for attempt in range(attempts)]
    ends = [*(start for _, start, _, _ in run.of("down")), run.end]
    replicas = [
        Replica(name=f"worker-{rank}", rank=rank, attempt=attempt, start=starts[attempt], end=ends[attempt])
        for rank in range(plan.ranks)
        for attempt in range(attempts)
    ]
    job = Job(id=plan.name, state=JobState.SUCCEEDED, created=CREATED, start=starts[0], end=run.end, recorded=True)
    return JobView(job=job, replicas=replicas, allocations=[])


def facts(run, names=NAMES, *, scheduled=True):
    """Return the stored facts of a run besides its record."""
    at = CREATED + round(run.plan.queued * 1000)
    events = [Event(time=at, job=run.plan.name, reason="Scheduled")] if scheduled else []
    return PhaseFacts(courses=courses(run, names), events=events)


def measured(plan, names=NAMES):
    """Return a run with its measurements."""
    run = make(plan)
    own = facts(run, names)
    record = view(run)
    return MeasuredRun(job=record.job, phases=compute_phases(record, own, run.end), courses=own.courses)


def changed(plan, **more):
    return replace(plan, **more)
