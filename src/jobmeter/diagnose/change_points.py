"""Change points of a job: changes of level of its metrics, and minutes with many warnings."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.signal import Signal
from jobmeter.model.batch import Float64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.event import Level
from jobmeter.model.time import MINUTE, NS_PER_MS

METRICS = ("cpu.usage", "cpu.utilization", "gpu.utilization", "npu.utilization", "memory.usage", "gpu.memory.usage")
"""The metrics whose levels are compared, among the metrics that rules read."""
WINDOW = 12
"""Points on either side of a change."""
MOST_OF_ONE, MOST = 3, 200
_RELATIVE, _NOISE, _LEAST_SHARE = 0.5, 4.0, 0.02
PEAK_LINES, PEAK_FACTOR = 20, 5
"""Fewest warnings of a minute that make a peak, and their least ratio to the median minute."""


class ChangePoint(msgspec.Struct, frozen=True):
    """A change of a metric's level, or a peak of warning lines, at ``time`` (epoch ms)."""

    time: int
    name: str
    text: str
    replica: str = ""
    node: str = ""


def find_metric_changes(case: Case) -> list[ChangePoint]:
    """Find changes of level: the means of twelve points after and before a moment differ by far.

    Far means by half of the higher mean, by four times the spread on either side, and by a fiftieth of the highest
    value.
    """
    found = [one for name in METRICS for signal in case.means.get(name, ()) for one in _changes(signal)]
    return sorted(found, key=lambda one: one.time)[:MOST]


def _changes(signal: Signal) -> Iterator[ChangePoint]:
    value = signal.value
    places = len(value) - 2 * WINDOW + 1
    if places < 1:
        return
    before, spread_before = _windows(value[: len(value) - WINDOW])
    after, spread_after = _windows(value[WINDOW:])
    step = np.abs(after - before)
    least = np.maximum(_RELATIVE * np.maximum(np.abs(before), np.abs(after)), _LEAST_SHARE * float(np.abs(value).max()))
    score = np.where(step > np.maximum(least, _NOISE * np.maximum(spread_before, spread_after)), step, 0.0)
    unit = f" {CATALOG[signal.metric].read_unit}".removesuffix(" 1").rstrip()
    for _ in range(MOST_OF_ONE):
        at = int(score.argmax())
        if not score[at]:
            return
        whose = signal.device_name if signal.device else signal.replica
        verb = "rose" if after[at] > before[at] else "fell"
        text = f"{signal.metric} of {whose} {verb} from {before[at]:.4g} to {after[at]:.4g}{unit}"
        yield ChangePoint(int(signal.time[at + WINDOW]), signal.metric, text, signal.replica, signal.node)
        score[max(at - WINDOW, 0) : at + WINDOW] = 0.0


def _windows(value: Float64s) -> tuple[Float64s, Float64s]:
    windows = np.lib.stride_tricks.sliding_window_view(value, WINDOW)
    return windows.mean(axis=1), windows.std(axis=1)


def log_peaks(case: Case) -> list[ChangePoint]:
    """Find minutes with many more warnings and errors of a replica than its median minute with any."""
    counts: dict[str, Counter[int]] = {}
    for line in case.lines:
        if line.level in {Level.WARNING, Level.ERROR}:
            minute = line.time_ns // NS_PER_MS // MINUTE * MINUTE
            counts.setdefault(line.replica, Counter())[minute] += 1
    found = [
        ChangePoint(minute, "warnings", f"{count} warnings and errors in a minute", replica)
        for replica, of_minute in counts.items()
        for minute, count in of_minute.items()
        if count >= PEAK_LINES
        and (len(of_minute) == 1 or count >= PEAK_FACTOR * float(np.median(list(of_minute.values()))))
    ]
    return sorted(found, key=lambda one: one.time)[:MOST]
