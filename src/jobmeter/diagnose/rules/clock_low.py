"""A device computes at a low clock, although neither its power cap nor heat limits it."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from jobmeter.diagnose.devices import measure_load, read_level_at, read_level_beside
from jobmeter.diagnose.rule import Case, Evidence, Finding, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Member, Signal, name_device
from jobmeter.diagnose.wording import format_metric_amount
from jobmeter.model.batch import Bools
from jobmeter.query.stretches import Stretch

_CLOCK, _LIMIT = "gpu.clock.sm", "gpu.clock.sm.limit"
_HOLDS = {
    "gpu.throttle.power": "throttled",
    "gpu.throttle.power.brake": "throttled",
    "gpu.throttle.thermal.software": "throttled",
    "gpu.throttle.thermal.hardware": "throttled",
    "gpu.throttle.sync": "throttled",
    "gpu.temperature": "hot",
}
"""Metrics of reasons for a low clock that other rules report, with the threshold of each."""


class Low(msgspec.Struct, frozen=True, eq=False):
    """A device with a low clock: its clock and the highest possible one, in Hz, and the start."""

    signal: Signal
    clock: float
    limit: float
    stretch: Stretch


@Rule(
    title="Low clock",
    advice="See `nvidia-smi -q -d CLOCK,PERFORMANCE`: unlock locked clocks (`nvidia-smi -rgc`), else reset the device.",
    source="https://github.com/facebookresearch/gcm",
    metrics=("gpu.utilization", "gpu.sm.active", _CLOCK, _LIMIT, "gpu.power", "gpu.power.limit", *_HOLDS),
    running=True,
    hides=frozenset({"straggler_gpu", "gpu_busy_but_empty"}),
)
def clock_low(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a clock below a share of its limit while the device is busy, below its power cap, cool and not throttled."""
    load = {one.member: one for one in measure_load(case, numbers)}
    clocks = [one for one in case.average_signals(_CLOCK, numbers) if one.member in load]
    low = [found for one in clocks if (found := _find_low(case, one, load, numbers)) is not None]
    # A low clock of all devices is a setting.
    alike = len(low) > 1 and len(low) == len(clocks)
    if alike:
        yield _make_common_finding(rule, case, low, numbers)
        return
    others = [one.mean for one in clocks if one.member not in {found.signal.member for found in low}]
    for one in low:
        beside_others = f"; the median of the others is {_hertz(float(np.median(others)))}" if others else ""
        text = f"{case.name_signal(one.signal)} {_text(one)}{beside_others}"
        far = bool(others) or one.clock < numbers["far"] * one.limit
        severity = Severity.WARNING if far else Severity.INFO
        yield rule.report(name_device(one.signal), severity, one.stretch.span, [_evidence(one, text, numbers)], 0.85)


def _find_low(case: Case, clock: Signal, load: Mapping[Member, Signal], numbers: Numbers) -> Low | None:
    limit = read_level_beside(case, _LIMIT, clock, numbers)
    if limit is None:
        return None
    with np.errstate(invalid="ignore"):
        true = clock.value < numbers["share"] * limit
        true &= read_level_at(load[clock.member], clock, numbers) >= numbers["load"]
    free = _free(case, clock, numbers) if true.any() else None
    stretch = None if free is None else case.find_stretch(clock, true & free, numbers)
    if stretch is None:
        return None
    part = stretch.points
    return Low(clock, float(np.median(clock.value[part])), float(np.nanmedian(limit[part])), stretch)


def _free(case: Case, clock: Signal, numbers: Numbers) -> Bools | None:
    """Return the times without a measured reason for a lower clock; None if power is not measured at all."""
    power, most = (read_level_beside(case, metric, clock, numbers) for metric in ("gpu.power", "gpu.power.limit"))
    throttled = read_level_beside(case, "gpu.throttle.power", clock, numbers)
    if throttled is None and (power is None or most is None):
        return None
    free = np.ones(len(clock), np.bool_)
    with np.errstate(invalid="ignore"):
        if power is not None and most is not None:
            free &= ~(power >= numbers["power"] * most)
        for metric, threshold in _HOLDS.items():
            held = read_level_beside(case, metric, clock, numbers)
            if held is not None:
                free &= ~(held >= numbers[threshold])
    return free


def _make_common_finding(rule: Rule, case: Case, low: Sequence[Low], numbers: Numbers) -> Finding:
    worst = min(low, key=lambda one: one.clock / one.limit)
    text = f"all {len(low)} devices of the job are alike: {case.name_signal(worst.signal)} {_text(worst)}"
    severity = Severity.WARNING if worst.clock < numbers["far"] * worst.limit else Severity.INFO
    span = min(one.stretch.start for one in low), max(one.stretch.end for one in low)
    return rule.report(case.subject, severity, span, [_evidence(worst, text, numbers)], 0.8)


def _evidence(one: Low, text: str, numbers: Numbers) -> Evidence:
    limit = numbers["share"] * one.limit
    return one.signal.cite(text, one.clock, float(f"{limit:.6g}"), "Hz", time=one.stretch.start)


def _text(one: Low) -> str:
    text = f"computes at a clock of {_hertz(one.clock)}, its highest clock is {_hertz(one.limit)}; "
    return f"{text}neither power nor heat limits it"


def _hertz(value: float) -> str:
    return format_metric_amount(_CLOCK, value)
