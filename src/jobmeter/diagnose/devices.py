"""Shared by rules about accelerators."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.signal import Member, Signal, align_signals
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.time import MINUTE
from jobmeter.query.stretches import Stretch

PREFIXES = ("gpu", "npu")
BUSY = tuple(f"{prefix}.{name}" for prefix in PREFIXES for name in ("utilization", "sm.active"))
"""The metrics that ``measure_load`` reads."""
_OFTEN = 0.95
_MOMENTS = 0.02
"""Share of the time in which an unused device may be above idle, because a monitoring program reads it."""


def measure_load(case: Case, numbers: Numbers) -> list[Signal]:
    """Return the load of each device: the higher one of its utilization and its active multiprocessors."""
    found = []
    for prefix in PREFIXES:
        active = {one.member: one for one in case.select_signals(f"{prefix}.sm.active", numbers)}
        for signal in case.select_signals(f"{prefix}.utilization", numbers):
            other = active.pop(signal.member, None)
            beside = None if other is None else other.read_at(signal.time)
            found.append(signal if beside is None else replace(signal, value=np.fmax(signal.value, beside)))
        found.extend(active.values())
    return found


def read_level_beside(case: Case, metric: str, signal: Signal, numbers: Numbers) -> Float64s | None:
    """Return the level of another metric of the same device, at the times of a signal; see ``read_level_at``."""
    other = case.map_by_member(metric).get(signal.member)
    return None if other is None else read_level_at(other, signal, numbers)


def read_level_at(other: Signal, signal: Signal, numbers: Numbers) -> Float64s:
    """Return the level of another signal at the times of a signal, NaN at times without a measurement.

    A metric that is read once a minute begins later than one that is read often. So its first level also counts for the
    time before.
    """
    level = other.average_over(numbers["hold"] / 5)
    value = level.read_at(signal.time)
    if not len(level):
        return value
    early = level.time[0] - signal.time
    return np.where((early > 0) & (early <= MINUTE + level.interval), level.value[0], value)


def average_by_minute(signal: Signal) -> Signal:
    """Return the means of minutes: a level that does not depend on the interval at which a device was sampled."""
    return signal.average_over(MINUTE)


def find_low_level(case: Case, numbers: Numbers) -> tuple[list[Signal], float] | None:
    """Return the devices of a job that works steadily below the level ``busiest``, and that level.

    The devices are averaged by minute. The level is the 95th percentile of the busiest device. Steady means: for the
    share ``share`` of the time each device stays within the share ``spread`` of its median. A service or a notebook
    follows a demand and is not steady. None for a job that is not steady or not low.
    """
    used = [average_by_minute(one) for one in measure_load(case, numbers) if works(one, numbers)]
    if not used or case.skip_warm_up(numbers).length_ms < numbers["hold"]:
        return None
    level = max(float(np.quantile(one.value, _OFTEN)) for one in used)
    if level >= numbers["busiest"] or not all(_is_steady(one.value, numbers) for one in used):
        return None
    return used, level


def _is_steady(value: Float64s, numbers: Numbers) -> bool:
    middle = float(np.median(value))
    return float(np.mean(np.abs(value - middle) <= numbers["spread"] * middle)) >= numbers["share"]


def find_growth_storms(case: Case, metric: str, numbers: Numbers) -> Iterator[tuple[Signal, float, tuple[int, int]]]:
    """Yield signals of a counter that grew by more than ``rate`` a minute, with the rate and the time.

    The growth lasts at least for the hold time, without a longer pause.
    """
    for signal in case.increases.get(metric, ()):
        grown = np.flatnonzero(signal.value > 0)
        if len(grown) < 2:
            continue
        start, end = int(signal.time[grown[0]]), int(signal.time[grown[-1]]) + case.step_ms
        if end - start < numbers["hold"] or np.diff(signal.time[grown]).max() > numbers["hold"]:
            continue
        rate = float(signal.value[grown].sum()) / ((end - start) / MINUTE)
        if rate > numbers["rate"]:
            yield signal, rate, (start, end)


def works(signal: Signal, numbers: Numbers) -> bool:
    """True for a device that is sometimes above ``idle`` for more than a moment."""
    return float(np.mean(signal.value > numbers["idle"])) > _MOMENTS


def has_devices(case: Case, numbers: Numbers) -> bool:
    """True if ``measure_load`` returns any signals."""
    return any(case.has_signals(name, numbers) for name in BUSY)


def average_replica(signals: list[Signal], replica: str) -> Signal | None:
    """Average the signals of a replica's devices to one; None without devices."""
    own = [signal for signal in signals if signal.replica == replica]
    if not own:
        return None
    time, values = align_signals(own)
    valid = ~np.isnan(values).all(axis=0)
    return replace(own[0], device="", time=time[valid], value=np.nanmean(values[:, valid], axis=0))


def group_models(case: Case, metrics: Sequence[str], least: float) -> dict[Member, tuple[int, ...]]:
    """Return the model group of each device, by each of some limits.

    Limits within one group differ by less than the share ``least`` from the next one. A device without a limit counts
    for the largest group.
    """
    members = {one.member: None for metric in metrics for one in case.means.get(metric, ())}
    groups = []
    for metric in metrics:
        own = case.map_by_member(metric)
        level = np.array([np.median(own[one].value) if one in own and len(own[one]) else np.nan for one in members])
        known = np.sort(level[~np.isnan(level)])
        edges = known[1:][known[1:] > (1 + least) * known[:-1]]
        group = np.searchsorted(edges, level, side="right")
        group[np.isnan(level)] = np.argmax(np.bincount(group[~np.isnan(level)], minlength=1))
        groups.append(group.tolist())
    return dict(zip(members, zip(*groups, strict=True), strict=True))


def find_input_bound(signal: Signal, true: Bools, numbers: Numbers) -> Stretch | None:
    """Return the time in which a replica was bound by its input, for the share of time in the thresholds.

    The time lasts at least for the hold time, or for the whole of a shorter job.
    """
    start, end = signal.span
    hold_ms = max(min(numbers["hold"], end - start), numbers["least"])
    found = signal.find_stretches(true, hold_ms, numbers["share"])
    return max(found, key=lambda stretch: stretch.length, default=None)
