"""What rules about memory share: a part of a limit, for long; and growth that goes on."""

from collections.abc import Sequence

from jobmeter.diagnose.signal import Signal, Stretch, held, trend
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Float64s, Int64s


def near_limit(signal: Signal, numbers: Numbers) -> Stretch | None:
    """The longest time in which a utilization was above the share."""
    stretches = held(signal.time, signal.value > numbers["share"], numbers["hold"])
    return max(stretches, key=lambda stretch: stretch.length, default=None)


def growth(signal: Signal, limit: float | None, numbers: Numbers) -> tuple[float, float, float | None] | None:
    """Bytes a second, how well a line fits, and seconds until ``limit`` (None: unknown), where memory leaks.

    It grows on a straight line up to the end of what is known, in each third of the time, by enough of the limit and of
    itself; and, where there is a limit, it reaches it soon.
    """
    if len(signal) < 9 or int(signal.time[-1]) - int(signal.time[0]) + signal.interval < numbers["hold"]:
        return None
    whole = trend(signal.time, signal.value)
    thirds = [trend(*part) for part in _thirds(signal)]
    if whole.fit < numbers["fit"] or any(part.slope < 0.4 * whole.slope for part in thirds) or whole.slope <= 0:
        return None
    seconds = (int(signal.time[-1]) - int(signal.time[0])) / 1000
    grown = whole.slope * seconds
    if grown < numbers["relative"] * max(whole.start, 0.0) or (limit and grown < numbers["growth"] * limit):
        return None
    rest = None if not limit else max(limit - float(signal.value[-1]), 0.0) / whole.slope
    if rest is not None and rest * 1000 > numbers["full"]:
        return None
    return whole.slope, whole.fit, rest


def _thirds(signal: Signal) -> Sequence[tuple[Int64s, Float64s]]:
    cut = len(signal) // 3
    parts = (slice(0, cut), slice(cut, 2 * cut), slice(2 * cut, None))
    return [(signal.time[part], signal.value[part]) for part in parts]


def limit_of(limits: Sequence[Signal], signal: Signal, otherwise: float | None) -> float | None:
    """The highest limit that was measured for whoever the line is of; else ``otherwise``."""
    own = [float(one.value.max()) for one in limits if one.member == signal.member and len(one)]
    return max(own, default=otherwise)
