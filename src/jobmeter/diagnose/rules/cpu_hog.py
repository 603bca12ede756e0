"""Processes outside the job use CPUs of a node that the job requested, while the job waits for a CPU."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.rule import Case, Finding, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import Signal, make_metric_evidence
from jobmeter.diagnose.wording import format_amount
from jobmeter.model.batch import Float64s
from jobmeter.model.grouping import group_pairs

_TIME, _COUNT, _USED, _LIMIT = "node.cpu.time", "node.cpu.count", "cpu.usage", "cpu.limit"
_WAITS, _NODE_WAITS, _RUNNABLE = "pressure.cpu", "node.pressure.cpu", "node.processes.running"
_REST = frozenset({"idle", "iowait"})


@Rule(
    title="CPU taken by other processes",
    advice="Find these processes on the node (top, systemd-cgtop); request the whole node, or dedicated CPUs.",
    source="https://docs.kernel.org/accounting/psi.html",
    metrics=(_USED, _LIMIT, _WAITS),
    nodes=(_TIME, _COUNT, _NODE_WAITS, _RUNNABLE),
    hides=frozenset({"straggler_rank", "straggler_gpu", "cpu_bound_input", "cpu_overrequest"}),
    running=True,
)
def cpu_hog(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find full nodes on which others use more CPUs than the job left them, while the job waits for CPU."""
    counts = {one.node: float(one.value.max()) for one in case.nodes.get(_COUNT, ()) if len(one)}
    totals = {
        node: total
        for node, total in _totals(case, numbers).items()
        if float(total.value.max()) > numbers["full"] * counts.get(node, np.inf)
    }
    if not totals:
        return
    places = {one.name: one.node for one in case.view.replicas}
    used, pressure = (
        group_pairs((places.get(one.replica, ""), one) for one in case.average_signals(_USED, numbers)),
        group_pairs((places.get(one.replica, ""), one) for one in case.average_signals(_WAITS, numbers)),
    )
    limits = {one.replica: float(one.value.max()) for one in case.means.get(_LIMIT, ()) if len(one)}
    for node, total in totals.items():
        own = used.get(node, [])
        limit = sum(limits.get(one.replica, case.job.limits.get(_LIMIT, 0.0)) for one in own)
        if own and limit:
            waits = _waits(case, total, pressure.get(node, []), counts[node], numbers)
            found = _hog(rule, case, total, own, (counts[node], min(limit, counts[node])), waits, numbers)
            if found is not None:
                yield found


def _hog(
    rule: Rule,
    case: Case,
    total: Signal,
    own: Sequence[Signal],
    cpus: tuple[float, float],
    waits: Float64s,
    numbers: Numbers,
) -> Finding | None:
    """Return the finding of one node. ``cpus`` has the number of its CPUs and of those that the job may use."""
    count, limit = cpus
    mine = np.sum([np.nan_to_num(one.read_at(total.time)) for one in own], axis=0)
    outside = total.value - mine
    taken = outside - (count - limit)
    full = total.value > numbers["full"] * count
    true = full & (taken > max(numbers["taken"] * limit, numbers["cores"])) & (waits > numbers["waiting"])
    longest = case.find_stretch(total, true & (mine < limit), numbers)
    if longest is None:
        return None
    inside = longest.points
    others, got = float(outside[inside].mean()), float(mine[inside].mean())
    text = (
        f"processes outside the job use {others:.1f} of the {count:g} CPUs of {total.node}; the job gets {got:.1f} of "
        f"the {limit:.3g} that it may use"
    )
    share = float(waits[inside].mean())
    waiting = f"tasks wait for a CPU in {format_amount(share, '1')} of the time"
    evidence = [
        total.cite(text, others, count - limit, "{core}", time=longest.start),
        make_metric_evidence(_WAITS, waiting, share, numbers["waiting"], "1"),
    ]
    subject = Subject("node", total.node)
    return rule.report(subject, Severity.WARNING, longest.span, evidence, 0.85)


def _totals(case: Case, numbers: Numbers) -> dict[str, Signal]:
    """Return the used CPUs of each node: the sum over all busy modes."""
    parts = case.average_nodes(_TIME, numbers).items()
    modes = group_pairs((node, signal) for (node, mode), signal in parts if mode not in _REST)
    return {node: _sum(own) for node, own in modes.items()}


def _sum(modes: Sequence[Signal]) -> Signal:
    first = modes[0]
    value = np.sum([np.nan_to_num(one.read_at(first.time)) for one in modes], axis=0)
    return replace(first, value=value, part="").with_ends(first.until)


def _waits(case: Case, total: Signal, pressure: Sequence[Signal], count: float, numbers: Numbers) -> Float64s:
    """Return the share of time in which tasks of the job wait for a CPU, at the times of a signal.

    Without pressure of the job, the pressure of the node counts. Without either, runnable processes beyond the number
    of CPUs count.
    """
    of_node = case.average_nodes(_NODE_WAITS, numbers).get((total.node, ""))
    own = pressure or ([] if of_node is None else [of_node])
    if own:
        found: Float64s = np.max([np.nan_to_num(one.read_at(total.time)) for one in own], axis=0)
        return found
    runnable = case.average_nodes(_RUNNABLE, numbers).get((total.node, ""))
    if runnable is None:
        return np.zeros(len(total))
    return np.clip(np.nan_to_num(runnable.read_at(total.time)) / count - 1, 0.0, 1.0)
