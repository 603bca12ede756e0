"""Oracle of OpenTSDB's arithmetic: a slow, simple implementation of its documentation, point after point.

Series are lists of (time in ms, value); None is a value that a fill policy omitted.
"""

import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

LINEAR = {"avg", "dev", "diff", "max", "median", "min", "mult", "multiply", "sum"}
ZERO = {"count", "first", "last", "squareSum", "zimsum"}
SKIP = {"mimmin", "mimmax", "none"}
PARTS = {"50": 0.5, "75": 0.75, "90": 0.9, "95": 0.95, "99": 0.99, "999": 0.999}


def percentile(name, values):
    ordered = sorted(values)
    size = len(ordered)
    if name.endswith("r3"):
        part = PARTS[name[2:-2]]
        place = 0.0 if part <= 0.5 / size else round(size * part)  # halves round to the even neighbour
    elif name.endswith("r7"):
        part = PARTS[name[2:-2]]
        place = 1 + (size - 1) * part
    else:
        place = PARTS[name[1:]] * (size + 1)
    if place < 1:
        return ordered[0]
    if place >= size:
        return ordered[-1]
    below = math.floor(place)
    return ordered[below - 1] + (place - below) * (ordered[below] - ordered[below - 1])


FUNCTIONS: dict[str, Callable[[Any], float]] = {
    "avg": lambda values: math.fsum(values) / len(values),
    "count": lambda values: float(len(values)),
    "dev": statistics.pstdev,
    "diff": lambda values: values[-1] - values[0],
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "max": max,
    "median": lambda values: sorted(values)[len(values) // 2],
    "mimmax": max,
    "mimmin": min,
    "min": min,
    "mult": math.prod,
    "multiply": math.prod,
    "none": lambda values: values[-1],
    "pfsum": math.fsum,
    "squareSum": lambda values: math.fsum(value * value for value in values),
    "sum": math.fsum,
    "zimsum": math.fsum,
}


def apply(name, values):
    return FUNCTIONS[name](values) if name in FUNCTIONS else percentile(name, values)


def downsampled(series, interval, name):
    buckets: dict[int, list[float]] = {}
    for time, value in series:
        buckets.setdefault(time - time % interval, []).append(value)
    return [(start, apply(name, values)) for start, values in sorted(buckets.items())]


def filled(series, interval, start, end, value):
    found = dict(series)
    first = -(-start // interval) * interval
    return [(time, found.get(time, value)) for time in range(first, end + 1, interval)]


def rated(series, counter=False, counter_max=2**63 - 1, reset_value=0, drop_resets=False):
    found: list[tuple[int, float | None]] = []
    for (t0, v0), (t1, v1) in pairwise(series):
        seconds = (t1 - t0) / 1000
        if v0 is None or v1 is None:
            found.append((t1, None))
            continue
        change = v1 - v0
        if counter and change < 0:
            if drop_resets:
                continue
            rate = (counter_max - v0 + v1) / seconds
            found.append((t1, 0.0 if reset_value > 0 and rate > reset_value else rate))
        else:
            found.append((t1, change / seconds))
    return found


def taking_part(group, first, last, *, fill):
    """Return the series with a point inside, or, without filling, with points on both sides."""
    found = []
    for series in group:
        times = [time for time, _ in series]
        inside = any(first <= time <= last for time in times)
        if inside or (not fill and times and times[0] < first and times[-1] > last):
            found.append(series)
    return found


def at(series, time, rule):
    """Return the contribution of a series at a time; None if it has none."""
    if not series or time < series[0][0] or time > series[-1][0]:
        return None
    before: Any = None
    after: Any = None
    for moment, value in series:
        if moment == time:
            return value
        if moment < time:
            before = (moment, value)
        elif after is None:
            after = (moment, value)
    if rule == "skip":
        return None
    if rule == "zero":
        return 0.0
    if rule == "previous":
        return before[1]
    (x0, y0), (x1, y1) = before, after
    return y0 + (time - x0) * (y1 - y0) / (x1 - x0)


def rule_of(name, *, rate=False, fill=False):
    if rate:
        return "previous"
    if fill:
        return "skip"
    if name == "pfsum":
        return "previous"
    if name in ZERO:
        return "zero"
    return "skip" if name in SKIP else "linear"


def joined(group, name, rule):
    times = sorted({time for series in group for time, _ in series})
    found = []
    for time in times:
        values = [value for value in (at(series, time, rule) for series in group) if value is not None]
        found.append((time, apply(name, values) if values else None))
    return found
