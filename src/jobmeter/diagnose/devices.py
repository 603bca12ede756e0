"""What rules about accelerators share."""

from dataclasses import replace

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Subject

PREFIXES = ("gpu", "npu")


def device(signal: Signal) -> Subject:
    """The device of a line."""
    return Subject("device", signal.device_name)


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


def of_replica(signals: list[Signal], replica: str) -> Signal | None:
    """The mean of a replica's devices as one line; None where it has none."""
    own = [signal for signal in signals if signal.replica == replica]
    if not own:
        return None
    time = max(own, key=len).time
    values = np.vstack([signal.at(time) for signal in own])
    known = ~np.isnan(values).all(axis=0)
    return replace(own[0], device="", time=time[known], value=np.nanmean(values[:, known], axis=0))
