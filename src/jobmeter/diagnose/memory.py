"""Shared by rules about memory: a share of a limit over time, and lasting growth."""

from collections.abc import Callable, Iterator, Sequence

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, trend
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.finding import Severity, Subject


def leaks(
    rule: Rule, case: Case, numbers: Numbers, subject_of: Callable[[Signal], Subject], *, limit_by_record: bool = False
) -> Findings:
    """Steady growth of the first metric of a rule that reaches the limit soon.

    The second metric is the limit; where nobody measured it, with ``limit_by_record``, that of the job's record.
    """
    used, limits = rule.metrics
    recorded = case.job.limits.get(limits) if limit_by_record else None
    for signal in case.signals(used, numbers):
        limit = limit_of(case.means.get(limits, ()), signal, recorded)
        leak = growth(signal, limit, numbers)
        if leak is None:
            continue
        slope, fit, rest = leak
        subject = subject_of(signal)
        until = "" if rest is None else f", {rest / 60:.1f} min from its limit"
        text = f"memory of {subject.name} grew by {slope * 60 / 2**20:.1f} MiB a minute{until}"
        evidence = signal.evidence(text, float(signal.value[-1]), limit, "By")
        yield rule.finding(subject, Severity.WARNING, signal.span, [evidence], 0.95 * fit)


def near_limits(
    rule: Rule, case: Case, numbers: Numbers, subject_of: Callable[[Signal], Subject], severity: Severity
) -> Findings:
    """The metric of a rule, a utilization, was above the share for long enough."""
    share = numbers["share"]
    for signal in case.signals(rule.metrics[0], numbers, reaching=share):
        longest = case.stretch(signal, signal.value > share, numbers)
        if longest is not None:
            subject = subject_of(signal)
            most = float(signal.during(longest).max())
            text = f"memory of {subject.name} reached {most:.1%} of its limit"
            evidence = signal.evidence(text, most, share, "1", time=longest.start)
            yield rule.finding(subject, severity, (longest.start, longest.end), [evidence], 0.95)


def growth(signal: Signal, limit: float | None, numbers: Numbers) -> tuple[float, float, float | None] | None:
    """Bytes a second, how well a line fits, and seconds until ``limit`` (None: unknown), where memory leaks.

    It grows on a straight line up to the end of the samples, in each third of the time, by enough of the limit and of
    itself; and, where there is a limit, it reaches it soon.
    """
    if len(signal) < 9 or int(signal.time[-1]) - int(signal.time[0]) + signal.interval < numbers["hold"]:
        return None
    whole = trend(signal.time, signal.value)
    if whole.fit < numbers["fit"] or whole.slope <= 0:
        return None
    if any(trend(*part).slope < 0.4 * whole.slope for part in _thirds(signal)):
        return None
    seconds = (int(signal.time[-1]) - int(signal.time[0])) / 1000
    grown = whole.slope * seconds
    if grown < numbers["relative"] * max(whole.start, 0.0) or (limit and grown < numbers["growth"] * limit):
        return None
    rest = None if not limit else max(limit - float(signal.value[-1]), 0.0) / whole.slope
    if rest is not None and rest * 1000 > numbers["full"]:
        return None
    return whole.slope, whole.fit, rest


def _thirds(signal: Signal) -> Iterator[tuple[Int64s, Float64s]]:
    cut = len(signal) // 3
    parts = (slice(0, cut), slice(cut, 2 * cut), slice(2 * cut, None))
    return ((signal.time[part], signal.value[part]) for part in parts)


def limit_of(limits: Sequence[Signal], signal: Signal, otherwise: float | None) -> float | None:
    """The highest limit measured for the owner of the line; else ``otherwise``."""
    own = [float(one.value.max()) for one in limits if one.member == signal.member and len(one)]
    return max(own, default=otherwise)
