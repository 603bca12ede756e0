"""The devices of a replica work and wait in turn, and it reads or prepares data while they wait."""

import numpy as np

from jobmeter.diagnose.devices import BUSY, average_replica, measure_load
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_replica
from jobmeter.diagnose.wording import find_title, format_amount
from jobmeter.model.batch import Float64s
from jobmeter.model.catalog import CATALOG

_LOADS = ("disk.read", "network.receive", "cpu.usage")
_FEWEST = 20
"""Fewest points in which a wave is found."""
_TAIL = 0.05
"""Share of the lowest and of the highest points that is ignored."""
_SHIFT = 1 / 8
"""Longest time by which reads may lead or follow the devices, as a share of the length of a wave."""


@Rule(
    title="Data loading too slow",
    advice="Load data while the devices work: more loader workers, a larger prefetch factor, pinned memory.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#low-gpu-utilization",
    metrics=(*_LOADS, *BUSY),
    hides=frozenset({"gpu_fluctuating", "gpu_low_util"}),
    running=True,
)
def dataloader_starved(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a square wave of a replica's devices, with its reads or its CPU swinging in the opposite phase.

    A pause in which the replica also reads less (a checkpoint, an evaluation) is no lack of data.
    """
    devices = measure_load(case, numbers)
    loads = {name: {one.replica: one for one in case.select_signals(name, numbers)} for name in _LOADS if devices}
    for name in dict.fromkeys(one.replica for one in devices):
        whole = average_replica(devices, name)
        gpu, length = (whole, 0.0) if whole is None else _wave(whole, numbers)
        if gpu is None or len(gpu) < _FEWEST:
            continue
        low, high = np.quantile(gpu.value, (_TAIL, 1 - _TAIL)).tolist()
        lost = 1 - gpu.mean / float(np.median(gpu.value[gpu.value >= high / 2])) if high > 0 else 0.0
        if low > numbers["low"] or high < numbers["high"] or lost < numbers["lost"]:
            continue
        # A wave that is shifted by half of its length rises where it fell.
        lag = min(int(numbers["lag"]), int(_SHIFT * length / max(gpu.interval, 1)))
        against = [(_correlate_inversely(gpu, one[name], lag), one[name]) for one in loads.values() if name in one]
        strength, load = max(against, key=lambda one: one[0], default=(0.0, gpu))
        then, otherwise = _levels(gpu, load, high / 2)
        if strength > numbers["correlation"] and then > numbers["more"] * otherwise:
            verb = "prepares" if load.metric == "cpu.usage" else "reads"
            text = (
                f"{case.name_signal(gpu)} loses {format_amount(lost, '1')} of its devices' time: they wait "
                f"while it {verb} data"
            )
            head = gpu.cite(text, lost, numbers["lost"], "1", time=gpu.span[0])
            evidence = [head, _evidence(load, then, otherwise)]
            yield rule.report(name_replica(gpu), Severity.WARNING, gpu.span, evidence, min(0.95, strength))


def _wave(gpu: Signal, numbers: Numbers) -> tuple[Signal | None, float]:
    """Return the longest part in which devices fell to less than half of their work again and again.

    Also returns the mean time between two falls, in ms. None without such a part.
    """
    if gpu.value.min() > gpu.value.max() / 2:  # most devices never fall so low, and quantiles take longer to find
        return None, 0.0
    works = gpu.value > float(np.quantile(gpu.value, 1 - _TAIL)) / 2
    fell = gpu.time[1:][works[:-1] & ~works[1:]]
    most = numbers["hold"] / numbers["waves"]
    runs = np.split(fell, np.flatnonzero(np.diff(fell) > most) + 1)
    run = max(runs, key=lambda one: int(one[-1] - one[0]) if len(one) else 0)
    if len(run) < 2:
        return None, 0.0
    length = float(run[-1] - run[0]) / (len(run) - 1)
    part = gpu.cut(int(run[0]), int(run[-1] + length))
    return (part if part.span[1] - part.span[0] >= numbers["hold"] else None), length


def _correlate_inversely(gpu: Signal, load: Signal, lag: int) -> float:
    """Return how closely a load rises when the devices fall, 0 to 1: the highest value over shifts up to ``lag``."""
    beside = load.read_at(gpu.time)
    most = 0.0
    for shift in range(-lag, lag + 1):
        first, second = (gpu.value[shift:], beside) if shift >= 0 else (gpu.value, beside[-shift:])
        size = min(len(first), len(second))
        most = max(most, -_correlation(first[:size], second[:size]))
    return most


def _correlation(first: Float64s, second: Float64s) -> float:
    valid = ~(np.isnan(first) | np.isnan(second))
    first, second = first[valid], second[valid]
    if len(first) < _FEWEST or not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _levels(gpu: Signal, load: Signal, half: float) -> tuple[float, float]:
    """Return the mean of a load while the devices wait, and while they work."""
    beside = load.read_at(gpu.time)
    waits, valid = gpu.value < half, ~np.isnan(beside)
    parts = (beside[waits & valid], beside[~waits & valid])
    first, second = (float(one.mean()) if len(one) else 0.0 for one in parts)
    return first, second


def _evidence(load: Signal, then: float, otherwise: float) -> Evidence:
    unit = CATALOG[load.metric].answer_unit
    text = (
        f"{find_title(load.metric)}: {format_amount(then, unit)} while they wait, "
        f"{format_amount(otherwise, unit)} while they work"
    )
    return load.cite(text, then, otherwise, unit)
