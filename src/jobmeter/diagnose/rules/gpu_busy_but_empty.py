"""A device reports high utilization but does hardly any work."""

from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import PREFIXES
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, device, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Float64s
from jobmeter.model.finding import Evidence, Severity
from jobmeter.query.stretches import Stretch


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """High utilization beside few active multiprocessors, idle tensor cores, little power or empty memory."""
    for prefix in PREFIXES:
        for signal in case.signals(f"{prefix}.utilization", numbers):
            signs = [sign for sign in _signs(case, prefix, signal, numbers) if sign is not None]
            if signs:
                stretches, evidence = zip(*signs, strict=True)
                span = min(one.start for one in stretches), max(one.end for one in stretches)
                confidence = min(0.95, 0.6 + 0.15 * len(signs))
                yield rule.finding(device(signal), Severity.WARNING, span, evidence, confidence)


def _signs(case: Case, prefix: str, signal: Signal, numbers: Numbers) -> Iterator[tuple[Stretch, Evidence] | None]:
    for metric in ("sm.active", "tensor.active", "power", "memory.utilization"):
        value = _beside(case, f"{prefix}.{metric}", signal)
        if metric == "power":
            most = _beside(case, f"{prefix}.power.limit", signal)
            value = None if value is None or most is None else value / np.where(most > 0, most, np.nan)
        if value is None or (metric == "tensor.active" and not np.nanmax(value, initial=0.0) > 0):
            continue
        yield _sign(case, signal, f"{prefix}.{metric}", value, numbers[metric.partition(".")[0]], numbers)


def _beside(case: Case, metric: str, signal: Signal) -> Float64s | None:
    other = case.by_member(metric).get(signal.member)
    return None if other is None else other.at(signal.time)


def _sign(
    case: Case, signal: Signal, metric: str, value: Float64s, limit: float, numbers: Numbers
) -> tuple[Stretch, Evidence] | None:
    longest = case.stretch(signal, (signal.value >= numbers["busy"]) & (value < limit), numbers)
    if longest is None:
        return None
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
            for prefix in PREFIXES
            for name in ("utilization", "sm.active", "tensor.active", "power", "memory.utilization")
        ),
        "gpu.power.limit",
    ),
)
