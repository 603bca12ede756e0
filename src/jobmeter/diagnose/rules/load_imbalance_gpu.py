"""Many of the job's devices always do much less than the others of their role."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.devices import PREFIXES
from jobmeter.diagnose.peers import Peers, iterate_peers
from jobmeter.diagnose.rule import Case, Finding, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, compute_median
from jobmeter.diagnose.wording import find_title, format_amount
from jobmeter.model.batch import Bools, Float64s
from jobmeter.model.catalog import CATALOG
from jobmeter.query.stretches import find_steady_stretches

_TAIL = 1 / 16
"""Share of the least and of the most busy devices that is ignored, at least one: one slow device is a straggler."""
_NAMED = 4


@Rule(
    title="GPU load imbalance",
    advice="Give all ranks the same work: equal shards, balanced pipeline stages, sequences sorted by length.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#load-balancing",
    metrics=tuple(f"{prefix}.{name}" for prefix in PREFIXES for name in ("utilization", "sm.active")),
    running=True,
)
def load_imbalance_gpu(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices of one role that constantly do much less than the others.

    Active multiprocessors are compared if all devices have them, because a device that waits in a collective has a high
    utilization.
    """
    for prefix in PREFIXES:
        busy = case.select_signals(f"{prefix}.utilization", numbers)
        active = case.select_signals(f"{prefix}.sm.active", numbers)
        if busy and _find_usual_level(busy) < numbers["saturated"]:
            continue  # Nobody waits for the others: replicas of a service have their own loads.
        signals = active if active and len(active) >= len(busy) else busy
        metric = signals[0].metric if signals else ""
        for scales in iterate_peers(
            {metric: signals} if signals else {}, [metric], numbers["devices"], {metric: 0}, numbers
        ):
            found = _imbalance(rule, case, scales[0], metric, numbers)
            if found is not None:
                yield found


def _find_usual_level(signals: Sequence[Signal]) -> float:
    """Return the usual utilization of the busier half of the devices."""
    levels = np.sort([float(np.median(one.value)) for one in signals if len(one)])
    return float(np.median(levels[len(levels) // 2 :])) if len(levels) else 0.0


def _imbalance(rule: Rule, case: Case, peers: Peers, metric: str, numbers: Numbers) -> Finding | None:
    value = peers.metrics[metric].value
    order = _sort_by_level(value)
    measured, less, more = _measure_groups(value, order)
    # Devices that are idle, or that all wait, do not share work unevenly.
    apart = (more - less > numbers["apart"] * more) & (less > numbers["idle"]) & (more > numbers["waiting"])
    begin = peers.length * np.flatnonzero(measured)
    stretches = find_steady_stretches(begin, begin + peers.length, apart, numbers["hold"], numbers["share"])
    taking_turns = float(np.mean(less - more > numbers["apart"] * less)) > 1 - numbers["share"]
    if not stretches or taking_turns:
        return None
    longest = max(stretches, key=lambda one: one.length)
    inside = np.flatnonzero(measured)[longest.points]
    # A device that was slow only in the stretch is not at the end of the order of the whole time.
    order = _sort_by_level(value[:, inside])
    _, less, more = _measure_groups(value[:, inside], order)
    mine, usual = float(less.mean()), float(more.mean())
    if usual - mine <= numbers["apart"] * usual:
        return None
    span = int(peers.time[inside[0]]), int(peers.time[inside[-1]]) + peers.length
    names = ", ".join(case.name_signal(peers.signals[row]) for row in order[:_NAMED])
    text = (
        f"{len(order)} devices share the work unevenly: the least busy ones ({names}, ...) are at "
        f"{format_amount(mine, '1')}, "
        f"the busier half at {format_amount(usual, '1')} ({find_title(metric)})"
    )
    evidence = peers.signals[order[0]].cite(text, mine, usual, CATALOG[metric].answer_unit, time=span[0])
    return rule.report(case.subject, Severity.WARNING, span, [replace(evidence, replica="")], 0.8)


def _measure_groups(value: Float64s, order: Sequence[int]) -> tuple[Bools, Float64s, Float64s]:
    """Return the windows in which both groups were measured, and the level of each group in them.

    The groups are the least busy devices and the busier half, without the ends of ``order``.
    """
    tail = max(1, int(_TAIL * len(order)))
    low, high = order[tail : tail + max(1, len(order) // 8)], order[len(order) // 2 : len(order) - tail]
    measured = np.logical_not(np.isnan(value[low]).all(axis=0) | np.isnan(value[high]).all(axis=0))
    return measured, compute_median(value[low][:, measured]), compute_median(value[high][:, measured])


def _sort_by_level(value: Float64s) -> list[int]:
    """Return the rows of float64[device, window] that have values, least busy first."""
    rows = np.flatnonzero(~np.isnan(value).all(axis=1))
    level = np.nanmedian(value[rows], axis=1)
    return [int(row) for row in rows[np.argsort(level, kind="stable")]]
