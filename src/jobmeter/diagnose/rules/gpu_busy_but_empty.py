"""A device reports high utilization but does hardly any work."""

from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.finding import Evidence, Finding, Severity
from jobmeter.query.stretches import Stretch, sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """High utilization beside few active multiprocessors, idle tensor cores, little power or empty memory."""
    found = []
    for prefix in ("gpu", "npu"):
        for signal in case.signals(f"{prefix}.utilization", numbers):
            signs = [sign for sign in _signs(case, prefix, signal, numbers) if sign is not None]
            if signs:
                stretches = [stretch for stretch, _ in signs]
                span = min(one.start for one in stretches), max(one.end for one in stretches)
                confidence = min(0.95, 0.6 + 0.15 * len(signs))
                found.append(
                    RULE.finding(
                        device(signal), Severity.WARNING, span, [evidence for _, evidence in signs], confidence
                    )
                )
    return found


def _signs(case: Case, prefix: str, signal: Signal, numbers: Numbers) -> Iterator[tuple[Stretch, Evidence] | None]:
    full = signal.value >= numbers["busy"]
    sm = _beside(case, f"{prefix}.sm.active", signal)
    if sm is not None:
        yield _sign(signal, f"{prefix}.sm.active", full & (sm < numbers["sm"]), sm, numbers["sm"], numbers)
    tensor = _beside(case, f"{prefix}.tensor.active", signal)
    if tensor is not None and np.nanmax(tensor, initial=0.0) > 0:
        low = full & (tensor < numbers["tensor"])
        yield _sign(signal, f"{prefix}.tensor.active", low, tensor, numbers["tensor"], numbers)
    power, most = _beside(case, f"{prefix}.power", signal), _beside(case, f"{prefix}.power.limit", signal)
    if power is not None and most is not None:
        share = power / np.where(most > 0, most, np.nan)
        yield _sign(signal, f"{prefix}.power", full & (share < numbers["power"]), share, numbers["power"], numbers)
    memory = _beside(case, f"{prefix}.memory.utilization", signal)
    if memory is not None:
        empty = full & (memory < numbers["memory"])
        yield _sign(signal, f"{prefix}.memory.utilization", empty, memory, numbers["memory"], numbers)


def _beside(case: Case, metric: str, signal: Signal) -> Float64s | None:
    other = case.by_member(metric).get(signal.member)
    return None if other is None else other.at(signal.time)


def _sign(
    signal: Signal, metric: str, low: Bools, value: Float64s, limit: float, numbers: Numbers
) -> tuple[Stretch, Evidence] | None:
    stretches = sustained(signal.time, low, numbers["hold"])
    if not stretches:
        return None
    longest = max(stretches, key=lambda stretch: stretch.length)
    mean = float(np.nanmean(value[longest.first : longest.last + 1]))
    if metric.endswith(".power"):
        text = f"{signal.device_name} drew {mean:.0%} of its power limit while it was busy"
    else:
        text = f"{metric} of {signal.device_name} was {mean:.1%} while it was busy"
    return longest, measured(metric, text, mean, limit, "1", time=longest.start, replica=signal.replica)


RULE = Rule(
    name="gpu_busy_but_empty",
    sees="A device is busy all the time with kernels that fill little of it.",
    advice="Larger batches, mixed precision and fused kernels give each launch more to do; a profiler tells which.",
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html#metrics",
    find=find,
    metrics=(
        *(
            f"{prefix}.{name}"
            for prefix in ("gpu", "npu")
            for name in ("utilization", "sm.active", "tensor.active", "power", "memory.utilization")
        ),
        "gpu.power.limit",
    ),
)
