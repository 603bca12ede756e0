"""Processes outside the job take the CPUs that it asked for."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.wording import amount
from jobmeter.model.batch import Float64s
from jobmeter.model.finding import Evidence, Finding, Severity, Subject

_TIME, _COUNT, _USED, _LIMIT = "node.cpu.time", "node.cpu.count", "cpu.usage", "cpu.limit"
_WAITS, _NODE_WAITS, _RUNNABLE = "pressure.cpu", "node.pressure.cpu", "node.processes.running"
_REST = frozenset({"idle", "iowait"})


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """A full node on which others use more CPUs than the job left them, while the job gets less and waits for more."""
    members: dict[str, set[str]] = {}
    for one in case.view.replicas:
        members.setdefault(one.node, set()).add(one.name)
    used = case.levels(_USED, numbers)
    for node, total in _totals(case, numbers).items():
        own = [one for one in used if one.replica in members.get(node, ())]
        count = max((float(one.value.max()) for one in case.nodes.get(_COUNT, ()) if one.node == node), default=0.0)
        limit = sum(_limit(case, one) for one in own)
        if own and limit and count:
            found = _hog(rule, case, total, own, (count, min(limit, count)), numbers)
            if found is not None:
                yield found


def _hog(
    rule: Rule, case: Case, total: Signal, own: Sequence[Signal], cpus: tuple[float, float], numbers: Numbers
) -> Finding | None:
    """Return the finding of one node, of which ``cpus`` are all there are and those that the job may use."""
    count, limit = cpus
    mine = np.sum([np.nan_to_num(one.at(total.time)) for one in own], axis=0)
    outside = total.value - mine
    taken = outside - (count - limit)
    wanted, waits = _wanted(case, total, own, count, numbers)
    full = total.value > numbers["full"] * count
    true = full & (taken > max(numbers["taken"] * limit, numbers["cores"])) & (mine < limit) & wanted
    longest = case.stretch(total, true, numbers)
    if longest is None:
        return None
    inside = slice(longest.first, longest.last + 1)
    others, got = float(outside[inside].mean()), float(mine[inside].mean())
    text = (
        f"processes outside the job use {others:.1f} of the {count:g} CPUs of {total.node}; the job gets {got:.1f} of "
        f"the {limit:g} that it may use"
    )
    evidence = [total.evidence(text, others, count - limit, "{core}", time=longest.start)]
    if waits is not None:
        share = float(np.nanmean(waits[inside]))
        waiting = f"it waits for a CPU in {amount(share, '1')} of the time"
        evidence.append(Evidence(kind="metric", text=waiting, metric=_WAITS, value=share, unit="1"))
    subject = Subject("node", total.node)
    return rule.finding(subject, Severity.WARNING, (longest.start, longest.end), evidence, 0.85)


def _totals(case: Case, numbers: Numbers) -> dict[str, Signal]:
    """Return the CPUs in use of each node: the sum of its modes but those in which it rests."""
    modes: dict[str, list[Signal]] = {}
    for (node, mode), signal in case.levels_of_nodes(_TIME, numbers).items():
        if mode not in _REST:
            modes.setdefault(node, []).append(signal)
    return {
        node: replace(own[0], value=np.sum([np.nan_to_num(one.at(own[0].time)) for one in own], axis=0), part="")
        .sampled_until(own[0].until)
        for node, own in modes.items()
    }  # fmt: skip


def _limit(case: Case, signal: Signal) -> float:
    own = [float(one.value.max()) for one in case.means.get(_LIMIT, ()) if one.replica == signal.replica and len(one)]
    return max(own, default=case.job.limits.get(_LIMIT, 0.0))


def _wanted(
    case: Case, total: Signal, own: Sequence[Signal], count: float, numbers: Numbers
) -> tuple[np.ndarray, Float64s | None]:
    """Return where the job waits for a CPU, and for how much of the time.

    Without pressure of its own that of the node counts; without any, more runnable processes than CPUs.
    """
    names = {one.replica for one in own}
    pressure = [one.at(total.time) for one in case.levels(_WAITS, numbers) if one.replica in names]
    if not pressure:
        pressure = [
            one.at(total.time) for one in case.levels_of_nodes(_NODE_WAITS, numbers).values() if one.node == total.node
        ]
    if pressure:
        share = np.nanmax(np.vstack([np.nan_to_num(one) for one in pressure]), axis=0)
        return share > numbers["waiting"], share
    runnable = [one for one in case.levels_of_nodes(_RUNNABLE, numbers).values() if one.node == total.node]
    return (runnable[0].at(total.time) > count if runnable else np.zeros(len(total), np.bool_)), None


RULE = Rule(
    name="cpu_hog",
    sees="Processes outside the job take CPUs of a node that the job asked for, while it waits for them.",
    advice="Look on the node for who that is (top, systemd-cgtop); ask for the node alone, or for CPUs that are bound.",
    source="https://docs.kernel.org/accounting/psi.html",
    find=find,
    metrics=(_USED, _LIMIT, _WAITS),
    nodes=(_TIME, _COUNT, _NODE_WAITS, _RUNNABLE),
    hides=frozenset({"straggler_rank", "straggler_gpu", "cpu_bound_input", "cpu_overrequest"}),
    running=True,
)
