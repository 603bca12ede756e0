"""A replica waits for storage while its devices, or its CPU if it has none, have little to do."""

from jobmeter.diagnose.devices import BUSY, average_replica, find_input_bound, measure_load
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_replica
from jobmeter.diagnose.wording import find_title, format_amount
from jobmeter.model.grouping import group_pairs


@Rule(
    title="Input bound by storage",
    advice="Cache or stage the data set on a local disk, read larger blocks, prefetch more.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#io-bottleneck",
    metrics=("pressure.io", "cpu.utilization", *BUSY),
    nodes=("node.pressure.io",),
    hides=frozenset({"cpu_overrequest"}),
    running=True,
)
def io_bound_input(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find pressure on storage for most of the time, beside idle devices, or an idle CPU for jobs without devices."""
    devices = measure_load(case, numbers)
    cpus = case.map_by_member("cpu.utilization")
    for io in _pressure(case, numbers):
        gpu = average_replica(devices, io.replica)
        waiting, limit = (gpu, numbers["gpu"]) if gpu else (cpus.get((io.replica, "", "")), numbers["cpu"])
        waiting = waiting or next((one for who, one in cpus.items() if who[0] == io.replica), None)
        if waiting is None:
            continue
        beside = waiting.read_at(io.time)
        waits = (io.value > numbers["io"]) & (beside < limit)
        longest = find_input_bound(io, waits, numbers)
        if longest is None:
            continue
        inside = longest.points
        share = float(io.value[inside][waits[inside]].mean())
        rest = float(beside[inside][waits[inside]].mean())
        text = f"{case.name_signal(io)} waits for storage for {format_amount(share, '1')} of the time"
        evidence = [
            io.cite(text, share, numbers["io"], "1", time=longest.start),
            waiting.cite(f"{find_title(waiting.metric)}: {format_amount(rest, '1')} meanwhile", rest, limit, "1"),
        ]
        confidence = 0.9 if gpu and not io.node else 0.7
        yield rule.report(name_replica(io), Severity.WARNING, longest.span, evidence, confidence)


def _pressure(case: Case, numbers: Numbers) -> list[Signal]:
    """Return the pressure of each replica: its own, else the pressure of a node with only this replica."""
    own = case.select_signals("pressure.io", numbers)
    if own:
        return own
    by_node = group_pairs((member.node, member.name) for member in case.view.replicas)
    shared = case.select_node_signals("node.pressure.io", numbers)
    return [
        Signal(one.metric, one.time, one.value, by_node[one.node][0], one.node)
        for one in shared
        if len(set(by_node.get(one.node, ()))) == 1
    ]
