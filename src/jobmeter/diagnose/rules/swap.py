"""A node of the job keeps writing to swap, or keeps reading pages back while tasks wait for memory."""

from collections.abc import Iterator

from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.wording import format_length, format_metric_amount
from jobmeter.model.batch import Bools

_OUT, _FAULTS, _PRESSURE = "node.swap.out", "node.memory.major.faults", "node.pressure.memory"


@Rule(
    title="Swapping",
    advice="Use less memory on the node (smaller batches, fewer loader workers), or request a node with more.",
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
    nodes=(_OUT, _FAULTS, _PRESSURE),
    hides=frozenset({"straggler_rank", "io_bound_input", "cpu_overrequest"}),
    running=True,
)
def swap(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find lasting writes to swap, or major faults while tasks wait for memory: mapped files cause faults, too."""
    for signal, true, evidence in _conditions(case, numbers):
        longest = case.find_stretch(signal, true, numbers)
        if longest is None:
            continue
        mean = float(signal.select_values(longest).mean())
        verb = "writes to swap" if signal.metric == _OUT else "has major page faults and waits for memory"
        text = f"{signal.node} {verb} for {format_length(longest.length)}: {format_metric_amount(signal.metric, mean)}"
        limit, unit = (numbers["out"], "By/s") if signal.metric == _OUT else (numbers["faults"], "{fault}/s")
        head = signal.cite(text, mean, limit, unit, time=longest.start)
        yield rule.report(Subject("node", signal.node), Severity.WARNING, longest.span, [head, *evidence], 0.9)


def _conditions(case: Case, numbers: Numbers) -> Iterator[tuple[Signal, Bools, list[Evidence]]]:
    """Yield the signal of the first symptom of each node, the points at which it holds, and further evidence."""
    pressure = case.average_nodes(_PRESSURE, numbers)
    written = case.average_nodes(_OUT, numbers)
    for (node, part), faults in case.average_nodes(_FAULTS, numbers).items():
        waiting = pressure.get((node, part))
        out = written.pop((node, part), None)
        if out is not None and case.find_stretch(out, out.value > numbers["out"], numbers):
            yield out, out.value > numbers["out"], []
        elif waiting is not None:
            beside = waiting.read_at(faults.time)
            share = float(waiting.value.max())
            text = f"tasks wait for memory in up to {share:.0%} of the time"
            evidence = [waiting.cite(text, share, numbers["waiting"], "1")]
            yield faults, (faults.value > numbers["faults"]) & (beside > numbers["waiting"]), evidence
    yield from ((out, out.value > numbers["out"], []) for out in written.values())
