"""Shared by rules about accelerators."""

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, device
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools
from jobmeter.model.finding import Severity
from jobmeter.query.stretches import Stretch

PREFIXES = ("gpu", "npu")
BUSY = tuple(f"{prefix}.{name}" for prefix in PREFIXES for name in ("utilization", "sm.active"))
"""The metrics that ``busy`` reads."""
_MOMENTS = 0.02
"""Share of the time in which a device that does not work may be above idle: a monitor looks at it."""


def raised_flags(rule: Rule, case: Case, _numbers: Numbers, severity: Severity, text: str) -> Findings:
    """The metric of a rule, a flag, was raised at any time; ``text`` says what that means."""
    for signal in case.means.get(rule.metrics[0], ()):
        up = signal.value > 0
        if up.any():
            span = int(signal.time[up][0]), max(int(signal.until[up][-1]), int(signal.time[up][-1]) + 1)
            evidence = signal.evidence(text, 1.0, 0.0, "", time=span[0])
            yield rule.finding(device(signal), severity, span, [evidence], 0.99)


def busy(case: Case, numbers: Numbers) -> list[Signal]:
    """How busy each device was: the higher one of its utilization and of its active multiprocessors."""
    found = []
    for prefix in PREFIXES:
        active = {one.member: one for one in case.signals(f"{prefix}.sm.active", numbers)}
        for signal in case.signals(f"{prefix}.utilization", numbers):
            other = active.pop(signal.member, None)
            beside = None if other is None else other.at(signal.time)
            found.append(signal if beside is None else replace(signal, value=np.fmax(signal.value, beside)))
        found.extend(active.values())
    return found


def works(signal: Signal, numbers: Numbers) -> bool:
    """True for a device that is above ``idle`` for more than a moment now and then."""
    return float(np.mean(signal.value > numbers["idle"])) > _MOMENTS


def has_devices(case: Case, numbers: Numbers) -> bool:
    """Whether there are ``busy`` lines."""
    return any(case.has_signals(name, numbers) for name in BUSY)


def of_replica(signals: list[Signal], replica: str) -> Signal | None:
    """The mean of a replica's devices as one line; None where it has none."""
    own = [signal for signal in signals if signal.replica == replica]
    if not own:
        return None
    time = max(own, key=len).time
    values = np.vstack([signal.at(time) for signal in own])
    valid = ~np.isnan(values).all(axis=0)
    return replace(own[0], device="", time=time[valid], value=np.nanmean(values[:, valid], axis=0))


def bound(signal: Signal, true: Bools, numbers: Numbers) -> Stretch | None:
    """Return the time in which a replica was bound by its input for the share of it that the thresholds say.

    It is at least the hold time, or all of a shorter job.
    """
    start, end = signal.span
    hold_ms = max(min(numbers["hold"], end - start), numbers["least"])
    found = signal.stretches(true, hold_ms, numbers["share"])
    return max(found, key=lambda stretch: stretch.length, default=None)
