"""Rules about memory, one in each table of ``memory.toml``: a raised flag, a nearly reached limit, lasting growth."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files

import msgspec
import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, compute_trend, name_device, name_replica
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.wording import find_title, format_amount, format_length
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.model.finding import Severity, Subject


class RaisedFlag(Rule, frozen=True, kw_only=True, tag_field="kind", tag="flag"):
    """A rule that finds devices whose flag, the metric, was raised at any time. ``text`` explains the flag."""

    text: str
    severity: Severity

    def evaluate(self, case: Case, _numbers: Numbers) -> Findings:
        """Find devices with the flag."""
        for signal in case.means.get(self.metrics[0], ()):
            up = signal.value > 0
            if up.any():
                span = int(signal.time[up][0]), max(int(signal.until[up][-1]), int(signal.time[up][-1]) + 1)
                evidence = signal.cite(self.text, 1.0, 0.0, "", time=span[0])
                yield self.report(name_device(signal), self.severity, span, [evidence], 0.99)


class NearLimit(Rule, frozen=True, kw_only=True, tag_field="kind", tag="near limit"):
    """A rule that finds devices or replicas whose memory utilization, a metric, was above a share for long enough."""

    severity: Severity

    def evaluate(self, case: Case, numbers: Numbers) -> Findings:
        """Find memory near its limit."""
        share = numbers["share"]
        for metric in self.metrics:
            for signal in case.average_signals(metric, numbers, reaching=share):
                longest = case.find_stretch(signal, signal.value > share, numbers)
                if longest is not None:
                    most = float(signal.select_values(longest).max())
                    text = f"{find_title(metric)} is at {format_amount(most, '1')} of its limit"
                    evidence = signal.cite(text, most, share, "1", time=longest.start)
                    yield self.report(_name_owner(signal), self.severity, longest.span, [evidence], 0.95)


class MemoryLeak(Rule, frozen=True, kw_only=True, tag_field="kind", tag="leak"):
    """A rule that finds memory that grows steadily up to the end and will reach its limit soon.

    The metrics are pairs of used memory and its limit. With ``limit_by_record`` the limit of the job's record replaces
    a limit without measurements.
    """

    limit_by_record: bool = False

    def evaluate(self, case: Case, numbers: Numbers) -> Findings:
        """Find growing memory."""
        for used, limits in zip(self.metrics[::2], self.metrics[1::2], strict=True):
            recorded = case.job.limits.get(limits) if self.limit_by_record else None
            for signal in case.select_signals(used, numbers):
                limit = get_limit(case.means.get(limits, ()), signal, recorded)
                parts = (find_growth(part, limit, numbers) for part in _ends(signal, numbers))
                growth = next(filter(None, parts), None)
                if growth is not None:
                    now, text = float(signal.value[-1]), _describe_growth(signal, growth, limit)
                    evidence = signal.cite(text, now, limit, "By", time=growth.span[0])
                    subject, confidence = _name_owner(signal), 0.95 * growth.fit
                    yield self.report(subject, Severity.WARNING, growth.span, [evidence], confidence)


def load_memory_rules() -> Iterator[Rule]:
    """Yield the rules of ``memory.toml``."""
    for name, table in tomllib.loads(files("jobmeter.diagnose").joinpath("memory.toml").read_text("utf-8")).items():
        yield msgspec.convert({"name": name, **table}, RaisedFlag | NearLimit | MemoryLeak)


def _name_owner(signal: Signal) -> Subject:
    return name_device(signal) if signal.device else name_replica(signal)


def _describe_growth(signal: Signal, growth: "MemoryGrowth", limit: float | None) -> str:
    text = f"{find_title(signal.metric)} grows by {format_amount(growth.slope * 60, 'By')} a minute"
    if growth.rest is None:
        return text
    return f"{text}, {format_length(growth.rest * 1000)} from its limit of {format_amount(limit or 0.0, 'By')}"


class MemoryGrowth(msgspec.Struct, frozen=True):
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


def find_growth(signal: Signal, limit: float | None, numbers: Numbers) -> MemoryGrowth | None:
    """Return the growth of leaking memory; None for other memory.

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
    return MemoryGrowth(whole.slope, whole.fit, rest, signal.span)


def _thirds(signal: Signal) -> Iterator[tuple[Int64s, Float64s]]:
    cut = len(signal) // 3
    parts = (slice(0, cut), slice(cut, 2 * cut), slice(2 * cut, None))
    return ((signal.time[part], signal.value[part]) for part in parts)


def get_limit(limits: Sequence[Signal], signal: Signal, otherwise: float | None) -> float | None:
    """Return the highest measured limit of the line's owner, else ``otherwise``."""
    own = [float(one.value.max()) for one in limits if one.member == signal.member and len(one)]
    return max(own, default=otherwise)
