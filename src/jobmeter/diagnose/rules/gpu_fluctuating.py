"""Devices swing between high utilization and idle, many times an hour."""

from collections.abc import Iterator

import msgspec
import numpy as np

from jobmeter.diagnose.devices import BUSY, measure_load, works
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, make_metric_evidence
from jobmeter.diagnose.wording import format_amount, format_length

_BURSTS = 0.95


class Bursts(msgspec.Struct, frozen=True):
    """Swings of a device: its share of idle time, its level in bursts, and its usual cycle in ms."""

    idle: float
    level: float
    cycle: float


@Rule(
    title="GPU fluctuating",
    advice="Find what delays each step: read ahead (more workers, prefetch), write checkpoints in the background.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#low-gpu-utilization",
    metrics=BUSY,
    hides=frozenset({"gpu_underused_p95", "batch_small", "gpu_low_util", "straggler_gpu"}),
)
def gpu_fluctuating(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find jobs most of whose working devices swing between high and idle many times in nearly every window.

    The samples of the devices hit different moments of a cycle, so the devices seem to differ. That makes none of them
    a straggler.
    """
    used = [one for one in measure_load(case, numbers) if works(one, numbers)]
    found = [bursts for one in used if (bursts := _bursts(one, numbers)) is not None]
    if not found or len(found) < numbers["devices"] * len(used):
        return
    idle, level, cycle = (
        float(np.median([getattr(one, name) for one in found])) for name in ("idle", "level", "cycle")
    )
    devices = "device swings" if len(found) == 1 else "devices swing"
    text = f"{len(found)} {devices} between {format_amount(level, '1')} and idle every {format_length(cycle)}, "
    text += f"idle for {format_amount(idle, '1')} of the time"
    evidence = make_metric_evidence(used[0].metric, text, idle, numbers["least"], "1")
    span = case.skip_warm_up(numbers)
    severity = Severity.WARNING if idle >= numbers["much"] else Severity.INFO
    yield rule.report(case.subject, severity, (span.start_ms, span.end_ms), [evidence], 0.85)


def _bursts(signal: Signal, numbers: Numbers) -> Bursts | None:
    """Return a device's swings; None for a device that does not swing all its life.

    A service or a notebook also works in bursts, but has long rests between them.
    """
    windows = list(_windows(signal, numbers))
    found = [one for part in windows if (one := _measure_bursts(part, numbers)) is not None]
    if not found or len(found) < numbers["share"] * len(windows):
        return None
    return Bursts(*(float(np.median([getattr(one, name) for one in found])) for name in Bursts.__struct_fields__))


def _windows(signal: Signal, numbers: Numbers) -> Iterator[Signal]:
    """Yield the parts of the hold time, each with enough of its time measured."""
    start, end = signal.span
    count = int((end - start) // numbers["hold"])
    length = (end - start) / count if count else 0.0
    for at in range(count):
        part = signal.cut(int(start + at * length), int(start + (at + 1) * length))
        if len(part) > 1 and int((part.until - part.time).sum()) >= numbers["coverage"] * length:
            yield part


def _measure_bursts(part: Signal, numbers: Numbers) -> Bursts | None:
    width, level = part.until - part.time, float(np.quantile(part.value, _BURSTS))
    # Points may be means over a part of a burst and a part of a rest.
    idle = 1 - float(np.average(part.value, weights=width)) / max(level, numbers["high"])
    if level < numbers["high"] or not numbers["least"] <= idle <= numbers["most"]:
        return None
    low, high = part.value < numbers["low"] * level, part.value >= (1 - numbers["low"]) * level
    between = float(width[~low & ~high].sum()) / float(width.sum())
    # One cycle from rest to burst after another; values between the two are on the way.
    sides = low[low | high]
    cycles = int(np.count_nonzero(sides[:-1] & ~sides[1:]))
    longest = float(np.diff(part.time[high]).max()) if np.count_nonzero(high) > 1 else np.inf
    if between > numbers["between"] or cycles < numbers["cycles"] or longest > numbers["rest"]:
        return None
    return Bursts(idle, level, float(width.sum()) / cycles)
