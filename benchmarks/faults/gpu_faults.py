"""Generated jobs whose devices have a fault or are used badly, and healthy jobs that resemble them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks.faults.build import GIB, START, USUAL, JobShape, Made, training
from benchmarks.faults.changes import Change, Fault, change_all, devices, scale_level, set_level, whole
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Float64s
from jobmeter.model.job import Allocation
from jobmeter.model.time import MINUTE, SECOND

WORK = ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active")
"""Metrics of a device's load."""


def idle(*, always: bool = False) -> Change:
    """Return a change that makes a device compute nothing."""
    levels = (("gpu.utilization", 0.0, 0.002), ("gpu.sm.active", 0.0, 0.001), ("gpu.tensor.active", 0.0, 0.001))
    return change_all(*(set_level(*level, always=always) for level in (*levels, ("gpu.power", 90.0, 2.0))))


def scale_work(made: Made, share: Float64s | float, replica: str, device: str) -> None:
    """Scale a device's load by ``share``, a number or float64[n]. Its power falls with it, down to that of idling."""
    for metric in WORK:
        if (metric, replica, device) in made.series:
            made.series[metric, replica, device] *= share
    at_rest = 0.13 * made.shape.power_limit
    power = made.series["gpu.power", replica, device]
    made.series["gpu.power", replica, device] = at_rest + (power - at_rest) * np.minimum(share, 1.0)


@whole(training)
def _underused(made: Made) -> None:
    """Let every device wait for a part of each training step."""
    share = float(made.random.uniform(0.35, 0.65))
    for replica, device in made.gpus:
        scale_work(made, share * float(made.random.normal(1, 0.03)), replica, device)


@whole(_underused)
def _small_batch(made: Made) -> None:
    used = float(made.random.uniform(0.1, 0.6))
    for replica, device in made.gpus:
        made.series["gpu.memory.utilization", replica, device] = made.noise(used, 0.003)
        made.series["gpu.memory.usage", replica, device] = made.noise(used * 80 * GIB, 0.2 * GIB)


@whole(training)
def _bursts(made: Made) -> None:
    """Let every device wait for seconds or minutes before each batch."""
    step_ms = made.case().step_ms
    rest = float(made.random.uniform(0.3, 0.6))
    # The steps of a case would hide a shorter period.
    shortest = max(20 * SECOND, 1.3 * max(step_ms, made.shape.interval) / min(rest, 1 - rest))
    period = float(made.random.uniform(shortest, 290 * SECOND))
    for replica, device in made.gpus:
        late = float(made.random.uniform(0, SECOND))
        rests = (made.time - START + late) % period < rest * period
        scale_work(made, np.where(rests, made.random.uniform(0, 0.04), 1.0), replica, device)


def _one_device(base: Fault) -> Fault:
    """Return a maker of jobs like ``base``, but with one replica and one device."""

    def make(random: np.random.Generator, shape: JobShape = USUAL) -> Made:
        return base(random, replace(shape, replicas=1, devices=1))

    return make


@whole(_one_device(training))
def _slice(made: Made) -> None:
    """Make a small program on a large device. Its CPU limit is little above its usage."""
    replica, device = made.gpus[0]
    busy = float(made.random.uniform(0.03, 0.13))
    scale_work(made, busy / made.shape.busy, replica, device)
    used, total = float(made.random.uniform(1e9, 9e9)), float(made.random.choice([24e9, 40e9, 80e9]))
    made.series["gpu.memory.usage", replica, device] = made.noise(used, 0.01 * used)
    made.series["gpu.memory.limit", replica, device][:] = total
    made.series["gpu.memory.utilization", replica, device] = made.noise(used / total, 0.002)
    cores = float(made.random.uniform(0.3, 0.95))
    made.series["cpu.usage", replica, ""] = made.noise(cores, 0.1 * cores)
    made.series["cpu.limit", replica, ""][:] = 2.0
    made.series["cpu.utilization", replica, ""] = made.noise(cores / 2, 0.05 * cores)


def _slow_clock(made: Made, replica: str, device: str, share: float) -> None:
    first = made.begin(made.shape.onset)
    limit = made.series["gpu.clock.sm.limit", replica, device]
    clock = made.series["gpu.clock.sm", replica, device]
    power = made.series["gpu.power", replica, device]
    power[first:] *= np.clip(share * limit[first:] / clock[first:], 0.5, 1.0)
    clock[first:] *= (share * limit / np.mean(clock))[first:]


def _low_clock(made: Made, replica: str, device: str) -> None:
    _slow_clock(made, replica, device, float(made.random.uniform(0.3, 0.72)))


@whole(training)
def _low_clocks(made: Made) -> None:
    share = float(made.random.uniform(0.4, 0.72))
    for replica, device in made.gpus:
        _slow_clock(made, replica, device, share)


def _power(low: float, high: float) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        level = float(made.random.uniform(low, high)) * made.shape.power_limit
        first = made.begin(made.shape.onset)
        made.series["gpu.power", replica, device][first:] = made.noise(level, 0.03 * level)[first:]

    return change


def _link(metric: str, *values: float) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        made.series[metric, replica, device][made.begin(made.shape.onset) :] = float(made.random.choice(values))

    return change


@whole(training)
def _links_of_a_node(made: Made) -> None:
    name = made.names[int(made.random.integers(made.replicas))]
    for place in range(made.devices):
        _link("gpu.pcie.width", 4.0, 8.0)(made, name, f"gpu{place}")


def _replays(made: Made, replica: str, device: str) -> None:
    """Add replays of PCIe packets at random times, with a constant mean rate of 15 to 300 a minute."""
    rate = float(made.random.uniform(15, 300))
    steps = np.diff(made.time, prepend=made.time[0] - made.shape.interval) / MINUTE
    grown = made.random.poisson(rate * steps).astype(np.float64)
    grown[: made.begin(made.shape.onset)] = 0.0
    made.increases["gpu.pcie.replay", replica, device] = grown


def _without_process(made: Made, replica: str, device: str) -> None:
    idle()(made, replica, device)
    for metric in ("gpu.processes", "gpu.memory.usage", "gpu.memory.utilization"):
        made.series[metric, replica, device][made.begin(made.shape.onset) :] = 0.0


def _leftover(made: Made, replica: str, device: str) -> None:
    """Leave memory of an ended process on a device. The job's own process there starts late or never."""
    until = made.at(min(1.0, float(made.random.uniform(10 * MINUTE, 2 * made.length)) / made.length))
    for metric in (*WORK, "gpu.processes"):
        if (metric, replica, device) in made.series:
            made.series[metric, replica, device][:until] = 0.0
    made.series["gpu.power", replica, device][:until] = 90.0
    used = float(made.random.uniform(2, 60)) * GIB
    made.series["gpu.memory.usage", replica, device][:until] = made.noise(used, 0.001 * used)[:until]
    made.series["gpu.memory.utilization", replica, device][:until] = used / (80 * GIB)


def _stray(made: Made, replica: str, device: str) -> None:
    """Put a process that belongs to no job on a device. Until it ends, the device is measured without the job."""
    node, end = f"node-{replica}", made.at(float(made.random.uniform(0.1, 1.0)))
    used = float(made.random.uniform(2, 60)) * GIB
    levels = {"gpu.memory.usage": used, "gpu.processes": 1.0, "gpu.processes.foreign": 1.0, "gpu.utilization": 0.0}
    last = max(end, made.at(min(0.9, 12 * MINUTE / made.length)))
    for metric, level in levels.items():
        made.of_nodes.append(Signal(metric, made.time[:last], np.full(last, level), node=node, device=device))
    for key in [key for key in made.series if key[1:] == (replica, device)]:
        made.begins[key] = last
    made.allocations.append(Allocation(replica=replica, node=node, device=device, start=START))


def _without(metric: str) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        del made.series[metric, replica, device]

    return change


SLOW_CLOCK = change_all(scale_level("gpu.clock.sm", 0.76), _without("gpu.clock.sm.limit"))
"""Change of a device: a low clock, while the driver does not report the highest one."""

GPU_FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "gpu_underused_p95": (_underused,),
    "batch_small": (_small_batch,),
    "gpu_fluctuating": (_bursts,),
    "mig_candidate": (_slice,),
    "clock_low": (devices(_low_clock, only=True), _low_clocks, _one_device(devices(_low_clock))),
    "power_implausible": (devices(_power(0.0, 0.06), only=True), devices(_power(1.5, 4.0), only=True)),
    "pcie_degraded": (
        devices(_link("gpu.pcie.width", 1.0, 2.0, 4.0, 8.0), only=True),
        devices(_link("gpu.pcie.generation", 1.0, 2.0, 3.0, 4.0), only=True),
        _links_of_a_node,
        devices(_replays, only=True),
    ),
    "gpu_no_process": (devices(_without_process, only=True), devices(_without_process)),
    "gpu_leftover_memory": (devices(_leftover, only=True), devices(_stray, only=True)),
}
"""Makers of jobs with a fault, by the rule that the diagnosis must name as the root cause."""

GPU_COMPANIONS: Mapping[str, frozenset[str]] = {
    "gpu_no_process": frozenset({"gpu_partly_unused", "gpu_low_util"}),
    "gpu_leftover_memory": frozenset({"gpu_partly_unused", "gpu_no_process"}),
    "mig_candidate": frozenset({"mem_overrequest"}),
}
"""Rules whose findings are correct beside the finding of a fault's own rule, by that rule."""


# Healthy jobs that resemble one of these faults for a while.


@whole(training)
def _evaluates(made: Made) -> None:
    """Lower the load of all devices for some minutes in each period, as evaluation does."""
    period, length = made.random.uniform(25, 60) * MINUTE, made.random.uniform(3, 8) * MINUTE
    share = np.where((made.time - START) % period > period - length, float(made.random.uniform(0.3, 0.7)), 1.0)
    for replica, device in made.gpus:
        scale_work(made, share, replica, device)


@whole(training)
def _starts_late(made: Made) -> None:
    """Leave devices without a process for the first minutes, with slow links and low clocks."""
    first = made.at(float(made.random.uniform(1, 8)) * MINUTE / made.length)
    for (metric, _, device), value in made.series.items():
        if device and metric in {*WORK, "gpu.processes", "gpu.memory.usage", "gpu.memory.utilization"}:
            value[:first] = 0.0
        elif device and metric in {"gpu.pcie.generation", "gpu.clock.sm", "gpu.power"}:
            value[:first] *= 0.2


@whole(training)
def _rests(made: Made) -> None:
    """Pause devices for checkpoints, with slow links and low clocks."""
    rests = (made.time - START) % (made.random.uniform(8, 14) * MINUTE) < made.random.uniform(10, 50) * SECOND
    for (metric, _, device), value in made.series.items():
        if device and metric in {*WORK, "gpu.pcie.generation", "gpu.clock.sm", "gpu.power"}:
            value[rests] *= 0.2


@whole(training)
def _capped(made: Made) -> None:
    """Lower the clocks a little, as a power cap does."""
    share = float(made.random.uniform(0.75, 0.85)) / made.shape.clock_share
    for replica, device in made.gpus:
        made.series["gpu.clock.sm", replica, device] *= share
        made.series["gpu.power", replica, device] = made.noise(
            0.975 * made.shape.power_limit, 0.01 * made.shape.power_limit
        )
        made.series["gpu.throttle.power", replica, device] = made.noise(0.14, 0.02)


@whole(training)
def _hotter_work(made: Made) -> None:
    """Set clocks to the level that a chip reaches under load, and links to the speed of an older board."""
    generation, width = float(made.random.choice([3, 4])), float(made.random.choice([8, 16]))
    share = float(made.random.uniform(0.86, 0.95))
    for replica, device in made.gpus:
        clock = made.series["gpu.clock.sm", replica, device]
        clock *= share * made.series["gpu.clock.sm.limit", replica, device] / clock.mean()
        for name, value in (("generation", generation), ("width", width)):
            made.series[f"gpu.pcie.{name}", replica, device][:] = value
            made.series[f"gpu.pcie.{name}.limit", replica, device][:] = value


def _demand(made: Made) -> Float64s:
    """Return the load of a service, 0 to 1, float64[n]: a daily wave with random drift."""
    day = made.random.uniform(0.3, 1.0) * made.length
    course = 0.5 + 0.5 * np.sin(2 * np.pi * ((made.time - START) / day + made.random.random()))
    drift = np.interp(made.time, np.linspace(made.time[0], made.time[-1], 40), made.random.normal(0, 0.06, 40))
    return np.clip(0.3 + 0.55 * course + drift, 0.03, 0.97)


def _serve(made: Made, loads: Mapping[str, Float64s]) -> None:
    """Give each replica of a service its load in ``loads``, with noise."""
    for replica, device in made.gpus:
        own = np.clip(loads[replica] * made.random.normal(1, 0.06, len(made.time)), 0.02, 1.0)
        scale_work(made, own / made.shape.busy, replica, device)
        if device == "gpu0":
            for metric in ("cpu.usage", "cpu.utilization"):
                made.series[metric, replica, ""] *= 0.85 + 0.15 * own


@whole(training)
def _service(made: Made) -> None:
    """Make an inference service with busy and quiet hours."""
    demand = _demand(made)
    _serve(made, dict.fromkeys(made.names, demand))


@whole(training)
def _uneven_service(made: Made) -> None:
    """Make a service whose replicas have different loads. One replica gets clearly fewer or more requests."""
    demand = _demand(made) * float(made.random.uniform(0.75, 1.0))
    weights = {name: float(made.random.lognormal(0, 0.08)) for name in made.names}
    odd = made.names[int(made.random.integers(made.replicas))]
    weights[odd] = float(made.random.choice([made.random.uniform(0.35, 0.7), made.random.uniform(1.2, 1.5)]))
    _serve(made, {name: np.clip(demand * weight, 0.03, 0.97) for name, weight in weights.items()})


@whole(_one_device(training))
def _notebook(made: Made) -> None:
    """Make a notebook whose cells run for minutes, with pauses between them."""
    busy = np.zeros(len(made.time), np.bool_)
    at = float(made.time[0])
    while at < made.time[-1]:
        run, rest = made.random.uniform(3, 20) * MINUTE, min(1 + made.random.exponential(6), 13) * MINUTE
        busy |= (made.time >= at) & (made.time < at + run)
        at += run + rest
    replica, device = made.gpus[0]
    scale_work(made, np.where(busy, 1.0, 0.0), replica, device)
    for metric in ("gpu.clock.sm", "gpu.pcie.generation"):
        made.series[metric, replica, device][~busy] *= 0.2


@whole(training)
def _restarts(made: Made) -> None:
    """Restart the job once. Its devices have no process and no memory in use for some minutes."""
    first = made.at(float(made.random.uniform(0.3, 0.7)))
    last = int(np.searchsorted(made.time, made.time[first] + made.random.uniform(1, 8) * MINUTE))
    for (metric, _, device), value in made.series.items():
        if device and metric in {*WORK, "gpu.processes", "gpu.memory.usage", "gpu.memory.utilization"}:
            value[first:last] *= 0.0
        elif device and metric in {"gpu.pcie.generation", "gpu.clock.sm", "gpu.power"}:
            value[first:last] *= 0.2


@whole(training)
def _few_replays(made: Made) -> None:
    """Add a few replays of PCIe packets, as on any machine."""
    for replica, device in made.gpus:
        made.increases["gpu.pcie.replay", replica, device] = made.random.poisson(
            2e-4 * made.shape.interval / SECOND, len(made.time)
        ).astype(np.float64)


GPU_CLEAN: Mapping[str, Fault] = {
    "evaluation": _evaluates,
    "late start": _starts_late,
    "pauses with low clocks": _rests,
    "power cap": _capped,
    "an older board": _hotter_work,
    "service": _service,
    "uneven service": _uneven_service,
    "notebook": _notebook,
    "restart": _restarts,
    "few replays": _few_replays,
}
"""Makers of healthy jobs with devices, by name."""
