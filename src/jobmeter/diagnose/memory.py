"""Shared by rules about memory: a share of a limit over time, and lasting growth."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, compute_trend
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.wording import find_title, format_amount, format_length
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.finding import Evidence, Severity, Subject


def find_leaks(
    rule: Rule, case: Case, numbers: Numbers, subject_of: Callable[[Signal], Subject], *, limit_by_record: bool = False
) -> Findings:
    """Find memory that grows steadily up to the end and will reach its limit soon.

    The metrics of the rule are pairs of used memory and its limit. With ``limit_by_record`` the limit of the job's
    record replaces a limit without measurements.
    """
    for used, limits in zip(rule.metrics[::2], rule.metrics[1::2], strict=True):
        recorded = case.job.limits.get(limits) if limit_by_record else None
        for signal in case.select_signals(used, numbers):
            limit = limit_of(case.means.get(limits, ()), signal, recorded)
            leak = next((found for part in _ends(signal, numbers) if (found := find_leak(part, limit, numbers))), None)
            if leak is not None:
                yield rule.report(*_leak(signal, subject_of(signal), leak, limit))


def _leak(
    signal: Signal, subject: Subject, leak: "Leak", limit: float | None
) -> tuple[Subject, Severity, tuple[int, int], list[Evidence], float]:
    until = (
        ""
        if leak.rest is None
        else f", {format_length(leak.rest * 1000)} from its limit of {format_amount(limit or 0.0, 'By')}"
    )
    text = f"{find_title(signal.metric)} grows by {format_amount(leak.slope * 60, 'By')} a minute{until}"
    now = float(signal.value[-1])
    evidence = [signal.cite(text, now, limit, "By", time=leak.span[0])]
    return subject, Severity.WARNING, leak.span, evidence, 0.95 * leak.fit


def find_near_limits(
    rule: Rule, case: Case, numbers: Numbers, subject_of: Callable[[Signal], Subject], severity: Severity
) -> Findings:
    """Find signals of a rule's metric, a utilization, that were above the share for long enough."""
    share = numbers["share"]
    for metric in rule.metrics:
        for signal in case.average_signals(metric, numbers, reaching=share):
            longest = case.find_stretch(signal, signal.value > share, numbers)
            if longest is not None:
                most = float(signal.select_values(longest).max())
                text = f"{find_title(metric)} is at {format_amount(most, '1')} of its limit"
                evidence = signal.cite(text, most, share, "1", time=longest.start)
                yield rule.report(subject_of(signal), severity, longest.span, [evidence], 0.95)


class Leak(msgspec.Struct, frozen=True):
    """Growing memory: ``slope`` in bytes a second, the fit of a line, and seconds to the limit (None: unknown)."""

    slope: float
    fit: float
    rest: float | None
    span: tuple[int, int]


def _ends(signal: Signal, numbers: Numbers) -> Iterator[Signal]:
    """Yield the signal, and its last half, quarter and so on down to the hold time: growth may begin at any time."""
    start, end = signal.span
    length = end - start
    while length >= numbers["hold"]:
        yield signal.cut(end - length, end)
        length //= 2


def find_leak(signal: Signal, limit: float | None, numbers: Numbers) -> Leak | None:
    """Return the leak; None without one.

    Memory leaks if it grows on a straight line up to the end of the samples, in each third of the time, by enough of
    the limit and of itself. If there is a limit, memory must reach it soon.
    """
    if len(signal) < 9 or signal.span[1] - signal.span[0] < numbers["hold"]:
        return None
    tenth = max(len(signal) // 10, 1)
    rise = float(np.median(signal.value[-tenth:]) - np.median(signal.value[:tenth]))
    least = max(numbers["relative"] * float(np.median(signal.value[:tenth])), numbers["growth"] * (limit or 0.0))
    if rise < least / 2:  # most memory does not grow, and a line takes longer to find
        return None
    whole = compute_trend(signal.time, signal.value)
    if whole.fit < numbers["fit"] or whole.slope <= 0:
        return None
    if any(compute_trend(*part).slope < 0.4 * whole.slope for part in _thirds(signal)):
        return None
    grown = whole.slope * (int(signal.time[-1]) - int(signal.time[0])) / 1000
    if grown < numbers["relative"] * max(whole.start, 0.0) or (limit and grown < numbers["growth"] * limit):
        return None
    rest = None if not limit else max(limit - float(signal.value[-1]), 0.0) / whole.slope
    if rest is not None and rest * 1000 > numbers["full"]:
        return None
    return Leak(whole.slope, whole.fit, rest, signal.span)


def _thirds(signal: Signal) -> Iterator[tuple[Int64s, Float64s]]:
    cut = len(signal) // 3
    parts = (slice(0, cut), slice(cut, 2 * cut), slice(2 * cut, None))
    return ((signal.time[part], signal.value[part]) for part in parts)


def limit_of(limits: Sequence[Signal], signal: Signal, otherwise: float | None) -> float | None:
    """Return the highest measured limit of the line's owner, else ``otherwise``."""
    own = [float(one.value.max()) for one in limits if one.member == signal.member and len(one)]
    return max(own, default=otherwise)
