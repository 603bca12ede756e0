"""A job hangs, as the usage of its processes and devices shows."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from jobmeter.diagnose.devices import PREFIXES
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import Signal, make_metric_evidence
from jobmeter.diagnose.wording import find_title, format_metric_amount
from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.catalog import CATALOG
from jobmeter.model.event import STACK_EVIDENCE, Level

_FLOWS = ("network.receive", "network.transmit", "disk.read", "disk.write", "gpu.nvlink.transmit", "gpu.nvlink.receive")
_CPU = ("cpu.usage",)
_TENSOR, _SM, _BUSY, _POWER = (
    tuple(f"{prefix}.{name}" for prefix in PREFIXES) for name in ("tensor.active", "sm.active", "utilization", "power")
)
_KINDS = {"flow": _FLOWS, "tensor": _TENSOR, "sm": _SM, "busy": _BUSY, "cpu": _CPU, "power": _POWER}
"""The metrics by their kind, first the likeliest ones to show that a job works."""
_FEWEST = 3
"""Fewest samples that show that a signal stands still."""
_SPINS = 0.5
"""Utilization above which a device is busy."""


class Still(msgspec.Struct, frozen=True):
    """A signal that stays at ``level`` from ``since`` (epoch ms) to its end; ``before`` is its earlier usual level.

    ``before`` is NaN if it never moved. ``quiet`` is True for a level near zero, ``fell`` if there was work before.
    """

    kind: str
    signal: Signal
    since: int
    level: float
    before: float
    quiet: bool
    fell: bool


def find_standstill(case: Case, numbers: Numbers) -> int | None:
    """Return the time since which all ranks of a job stand still, for at least a minute; None if they move."""
    still = _find_suspicious(case, numbers)
    return _begin(still) if still else None


def _find_suspicious(case: Case, numbers: Numbers) -> list[Still]:
    """Return the signals of a job of several ranks that stand still for the time ``suspect``; else an empty list."""
    if len({replica.name for replica in case.view.replicas}) < 2:
        return []
    return _stand_still(case, numbers, numbers["suspect"], is_open=False)


def _is_shown(case: Case, still: Sequence[Still], numbers: Numbers) -> bool:
    """True if the newest stacks since then name stuck ranks that the others wait for.

    A stuck rank uses no CPU. An event of level info is about a rank that may be slow, for example while it writes a
    file.
    """
    since = _begin(still)
    compared = [one for one in case.events if one.reason == STACK_EVIDENCE and one.time >= since]
    newest = max((one.time for one in compared), default=0)
    events = [one for one in compared if one.time == newest and one.replica]
    named = {one.replica for one in events}
    # A share of the usual level of many cores is enough for one thread to compute.
    least = numbers["work_cpu"]
    resting = {one.signal.replica for one in still if one.kind == "cpu" and one.quiet and one.level <= least}
    sure = bool(named) and all(one.level is not Level.INFO for one in events)
    return sure and named <= resting and named < {one.signal.replica for one in still}


def _stand_still(case: Case, numbers: Numbers, hold_ms: float, *, is_open: bool) -> list[Still]:
    """Return the signals of a job if all of them stand still for a time; else an empty list."""
    still: list[Still] = []
    for kind, signal in _list_measured_to_end(case) if case.may_hang else ():
        one = _measure_standstill(kind, signal, numbers, max(hold_ms, _FEWEST * signal.interval), is_open=is_open)
        if one is None:
            return []
        still.append(one)
    # The last part of a job that has hung for long shows no work any more.
    if not still or not (is_open or _has_stopped(still, numbers)):
        return []
    return still if _end(still) - _begin(still) >= hold_ms else []


def _begin(still: Sequence[Still]) -> int:
    return max(one.since for one in still)


def _end(still: Sequence[Still]) -> int:
    return max(one.signal.span[1] for one in still)


def _list_measured_to_end(case: Case) -> list[tuple[str, Signal]]:
    """Return the signals with samples up to the end: a signal without samples shows nothing."""
    found = [
        (kind, signal)
        for kind, metrics in _KINDS.items()
        for metric in metrics
        for signal in case.means.get(metric, ())
        if len(signal) > 2
    ]
    last = max((signal.span[1] for _, signal in found), default=0)
    return [one for one in found if one[1].span[1] >= last - 3 * max(one[1].interval, case.step_ms)]


def _measure_standstill(kind: str, signal: Signal, numbers: Numbers, hold_ms: float, *, is_open: bool) -> Still | None:
    """Return the start of a signal's final level; None if the level changes, or if it is shorter than the hold time."""
    end = signal.span[1]
    usual = 0.0 if is_open else _find_usual_level(signal.value)
    tail = signal.cut(end - int(hold_ms), end).value
    level = float(np.median(tail)) if len(tail) else 0.0
    if len(tail) < 2 or float(_find_stays(kind, tail, level, usual, numbers).mean()) < numbers["steady"]:
        return None
    stretches = signal.find_stretches(
        _find_stays(kind, signal.value, level, usual, numbers), hold_ms, numbers["steady"]
    )
    if not stretches or stretches[-1].end < end - 2 * signal.interval:
        return None
    since = stretches[-1].start
    earlier = signal.cut(0, since).value
    before = float(np.median(earlier)) if len(earlier) > 2 else np.nan
    quiet = level <= _get_zero_limit(kind, np.nan_to_num(before), numbers)
    return Still(kind, signal, since, level, before, quiet, quiet and before >= numbers[f"work_{kind}"])


def _find_usual_level(value: Float64s) -> float:
    """Return the 90th percentile: the level of a job that worked, unless it hung nearly always."""
    place = (len(value) - 1) * 9 // 10
    return float(np.partition(value, place)[place])  # a tenth of what NumPy's own quantile takes


def _find_stays(kind: str, value: Float64s, level: float, usual: float, numbers: Numbers) -> Bools:
    """Return where a signal stays: a flow at zero, the CPU at zero or one level, all others at one level."""
    nothing: Bools = value <= _get_zero_limit(kind, usual, numbers)
    wobble = numbers["wobble"] * level if kind in {"cpu", "power"} else 3 * numbers["spread"]
    same: Bools = np.abs(value - level) <= wobble
    return {"flow": nothing, "cpu": nothing | same}.get(kind, same)


def _get_zero_limit(kind: str, usual: float, numbers: Numbers) -> float:
    """Return the highest level that counts as zero for a kind of signal, beside its usual level."""
    least = {"flow": numbers["traffic"], "cpu": numbers["cores"]}.get(kind, numbers["spread"])
    return float(max(least, numbers[f"rest_{kind}"] * usual))


def _has_stopped(still: Sequence[Still], numbers: Numbers) -> bool:
    """True if work has stopped, by the available kinds of signals."""
    kinds = {one.kind for one in still}
    fell = {one.kind for one in still if one.fell}
    several = len({one.signal.replica for one in still}) > 1
    idle_cpu = "cpu" in fell and all(one.quiet for one in still if one.kind == "cpu")
    if not kinds & {"busy", "sm", "tensor", "power"}:
        return idle_cpu
    if any(one.kind == "tensor" and one.level > numbers["work_tensor"] for one in still):
        return False
    # Ranks of a job that no longer exchange data wait for each other, unless they compute.
    no_traffic = "flow" in fell and several and ("power" in fell or "power" not in kinds)
    busy = [one for one in still if one.kind == "busy"]
    if any(one.level > _SPINS for one in busy):
        # Devices that were idle before may have begun to compute. A device that spins may be as busy as before: then it
        # has no level before.
        levels = (one.level if np.isnan(one.before) else one.before for one in busy)
        return bool(fell & {"tensor", "sm"}) or (no_traffic and all(level > _SPINS for level in levels))
    return idle_cpu or ("flow" in fell and several)


def _name_ranks(case: Case, still: Sequence[Still]) -> str:
    names = {one.signal.replica for one in still}
    if len(names) > 1:
        return f"All {len(names)} ranks stand still"
    return f"{case.name_subject(Subject('replica', names.pop()))} stands still"


def _describe_activity(still: Sequence[Still]) -> str:
    """Describe the ranks' activity meanwhile."""
    busy = [one.level for one in still if one.kind == "busy"]
    if busy and max(busy) > _SPINS:
        level = format_metric_amount("gpu.utilization", max(busy))
        return f"devices are busy at {level} with a collective that does not end, and no data moves"
    return "they use no CPU, move no data, and their devices are idle" if busy else "no CPU is used and no data moves"


def _evidence(still: Sequence[Still], start: int) -> Iterator[Evidence]:
    """Yield the level before and now, by metric; first the signals that fell."""
    chosen = [one for one in still if one.fell] or list(still[:1])
    for metric in dict.fromkeys(one.signal.metric for one in chosen):
        own = [one for one in chosen if one.signal.metric == metric]
        level = float(np.median([one.level for one in own]))
        before = float(np.median([one.before for one in own]))
        text = f"{find_title(metric)}: {format_metric_amount(metric, level)}"
        if not np.isnan(before):
            text += f", before that {format_metric_amount(metric, before)}"
        unit = CATALOG[metric].answer_unit
        yield make_metric_evidence(
            metric, text, level, None if np.isnan(before) else float(f"{before:.6g}"), unit, time=start
        )


@Rule(
    title="Hang: no activity",
    sees="Replicas that worked before move no data and use no CPU, or spin, and their devices stay at one level. "
    "Notebooks and shells, which wait for a person, are left out.",
    advice="See where each rank is (jobmeter diagnose JOB --stacks): in a lock, in a collective, on a dead mount.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    metrics=tuple(metric for metrics in _KINDS.values() for metric in metrics),
    running=True,
    suspects=find_standstill,
    waits=True,
    hides=frozenset({"gpu_busy_but_empty", "gpu_idle_allocated", "gpu_low_util", "cpu_bound_input", "cpu_overrequest"}),
)
def hang_hw(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find jobs in which nothing moves up to the end of the samples, in any replica and device, after earlier work.

    Devices stay at one level: idle, or busy with a collective that waits for a rank. A shorter time suffices if the
    stacks of the ranks show that the others wait for a stuck rank.
    """
    still = _stand_still(case, numbers, numbers["hold"], is_open=rule.name in case.open_rules)
    if not still:
        suspicious = _find_suspicious(case, numbers)
        still = suspicious if suspicious and _is_shown(case, suspicious, numbers) else []
    if still:
        span, evidence = (_begin(still), _end(still)), list(_evidence(still, _begin(still)))
        sentence = f"{_name_ranks(case, still)}: {_describe_activity(still)}"
        yield rule.report(case.subject, Severity.CRITICAL, span, evidence, 0.85, sentence=sentence)
