"""A job hangs, as the usage of its processes and devices shows."""

from collections.abc import Sequence

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity

_FLOWS = ("network.receive", "network.transmit", "disk.read", "disk.write")


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """At the end of the samples: no CPU, no traffic, devices at one level, where there was work before."""
    if not case.may_hang:
        return
    cpus = case.means.get("cpu.usage", ())
    if not cpus:
        return
    last = max(int(signal.time[-1]) for signal in cpus)
    quiet = [_quiet_since(signal, numbers["cores"]) for signal in cpus if int(signal.time[-1]) + _slack(signal) >= last]
    start = max(quiet, default=last)
    end = last + cpus[0].interval
    # The last part of a job that has hung for long shows no work any more.
    worked = rule.name in case.open_rules or _worked(cpus, start, numbers)
    if end - start < numbers["hold"] or not worked or not _still(case, start, end, numbers):
        return
    highest = max(float(signal.within(start, end).value.max(initial=0.0)) for signal in cpus)
    text = f"no replica used more than {highest:.3f} cores for {(end - start) / 60000:.1f} min, after work before"
    evidence = measured("cpu.usage", text, highest, numbers["cores"], "{core}", time=start)
    yield rule.finding(case.subject, Severity.CRITICAL, (start, end), [evidence], 0.85)


def _slack(signal: Signal) -> int:
    return 3 * max(signal.interval, 1)


def _quiet_since(signal: Signal, cores: float) -> int:
    """Since when the line stays below, up to its end; its end where it does not."""
    loud = np.flatnonzero(signal.value > cores)
    if not len(loud):
        return int(signal.time[0])
    at = int(loud[-1]) + 1
    return int(signal.time[at]) if at < len(signal) else int(signal.time[-1]) + signal.interval


def _worked(cpus: Sequence[Signal], start: int, numbers: Numbers) -> bool:
    earlier = [signal.within(0, start) for signal in cpus]
    return any(len(signal) and float(signal.value.max()) >= numbers["before"] for signal in earlier)


def _still(case: Case, start: int, end: int, numbers: Numbers) -> bool:
    """True when nothing flowed and no device's use changed."""
    for metrics, measure, most in ((_FLOWS, np.median, numbers["traffic"]), (BUSY, np.std, numbers["spread"])):
        for signal in (signal for metric in metrics for signal in case.means.get(metric, ())):
            inside = signal.within(start, end).value
            if len(inside) and float(measure(inside)) > most:
                return False
    return True


RULE = Rule(
    name="hang_hw",
    sees="Replicas that worked before use no CPU and move no bytes, and their devices stay at one level.",
    advice="Dump the stacks of a process (py-spy dump --pid PID, /proc/PID/stack): a lock, a collective, a dead mount.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    find=find,
    metrics=("cpu.usage", *_FLOWS, *BUSY),
    running=True,
)
