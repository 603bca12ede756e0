"""One rank works differently from the others, in jobs without devices."""

import re
from collections.abc import Iterator

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY, has_devices
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, median_without, replica, together
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools
from jobmeter.model.finding import Evidence, Severity
from jobmeter.query.stretches import sustained


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """A replica whose CPU differs from that of the others of its role, most of the time and at the end."""
    if has_devices(case, numbers):
        return  # straggler_gpu covers jobs with devices
    pressure = {signal.replica: signal for signal in case.signals("pressure.cpu", numbers)}
    for signals in _roles(case.signals("cpu.usage", numbers), int(numbers["replicas"])):
        time, values = together(signals)
        others = median_without(values)
        large = np.abs(values - others) > numbers["cores"]
        apart = ((values > numbers["ratio"] * others) | (values * numbers["ratio"] < others)) & large
        if all(signal.replica in pressure for signal in signals):
            waits = np.vstack([pressure[signal.replica].at(time) for signal in signals])
            apart |= (values > numbers["ratio"] * others) & _cpu_demand_differs(values + waits, numbers)
        odd = [row for row in range(len(signals)) if _most(time, apart[row], numbers)]
        # More than a third is no straggler: then the job is uneven by design.
        if odd and len(odd) <= len(signals) / 3:
            for row in odd:
                signal, where = signals[row], apart[row]
                mine, usual = float(np.nanmean(values[row, where])), float(np.nanmean(others[row, where]))
                excess = min(abs(mine - usual) / (4 * numbers["cores"]), 0.9)
                confidence = min(0.95, 0.6 + 0.4 * float(where.mean()) * excess)
                evidence = list(_evidence(signal, mine, usual, pressure.get(signal.replica)))
                yield rule.finding(replica(signal), Severity.WARNING, signal.span, evidence, confidence)


def _cpu_demand_differs(wanted: np.ndarray, numbers: Numbers) -> Bools:
    """Where a replica wants more CPU than the others, cores in use and time of waiting for one taken together.

    On a machine that has little to spare, one that computes gets hardly more than those that wait for it.
    """
    others = median_without(wanted)
    more: Bools = (wanted > numbers["ratio"] * others) & (wanted - others > numbers["cores"])
    return more


def _most(time: np.ndarray, apart: Bools, numbers: Numbers) -> bool:
    """True where it is so for most of the time, long enough."""
    interval = int(np.median(np.diff(time))) if len(time) > 1 else 0
    long_enough = len(time) > 1 and int(time[-1]) - int(time[0]) + interval >= numbers["hold"]
    # A short break (a checkpoint, say) does not end it.
    return bool(
        long_enough and apart.mean() >= numbers["share"] and sustained(time, _smoothed(apart), numbers["hold"] / 2)
    )


def _smoothed(apart: Bools) -> Bools:
    count: np.ndarray = np.convolve(apart, np.ones(5), mode="same")
    smoothed: Bools = count >= 2
    return smoothed


def _roles(signals: list[Signal], least: int) -> Iterator[list[Signal]]:
    """Replicas that do the same: those whose names differ in their number alone."""
    roles: dict[str, list[Signal]] = {}
    for signal in signals:
        roles.setdefault(re.sub(r"\d+$", "", signal.replica), []).append(signal)
    return (own for own in roles.values() if len(own) >= least)


def _evidence(signal: Signal, mine: float, usual: float, waiting: Signal | None) -> Iterator[Evidence]:
    text = f"{signal.replica} used {mine:.2f} cores where the others' median was {usual:.2f}"
    yield signal.evidence(text, mine, usual, "{core}")
    if waiting is not None:
        share = float(waiting.value.mean())
        yield waiting.evidence(f"{signal.replica} waited for a CPU in {share:.0%} of the time", share, None, "1")


RULE = Rule(
    name="straggler_rank",
    sees="One rank computes while the others of its role wait for it, or the other way round.",
    advice="Look at that rank's node and data shard: uneven shards, a busy neighbour, a slow disk or clock.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    find=find,
    metrics=("cpu.usage", "pressure.cpu", *BUSY),
    running=True,
)
