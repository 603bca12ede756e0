"""A job waits for storage."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY, busy, of_replica
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import Signal, replica
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Pressure on storage beside idle devices, or idle CPU where there are none, for most of the time."""
    devices = busy(case, numbers)
    cpus = case.by_member("cpu.utilization")
    for io in _pressure(case, numbers):
        if io.span[1] - io.span[0] < numbers["hold"]:
            continue
        gpu = of_replica(devices, io.replica)
        waiting, limit = (gpu, numbers["gpu"]) if gpu else (cpus.get((io.replica, "", "")), numbers["cpu"])
        waiting = waiting or next((one for who, one in cpus.items() if who[0] == io.replica), None)
        if waiting is None:
            continue
        beside = waiting.at(io.time)
        bound = (io.value > numbers["io"]) & (beside < limit)
        share = float(np.mean(bound))
        if share <= numbers["share"]:
            continue
        start, end = int(io.time[bound][0]), int(io.time[bound][-1]) + io.interval
        rest = float(np.nanmean(beside[bound]))
        text = f"{io.replica} waited for storage in {float(io.value[bound].mean()):.0%} of the time"
        evidence = [
            io.evidence(text, float(io.value[bound].mean()), numbers["io"], "1"),
            waiting.evidence(f"{waiting.metric} was {rest:.1%} meanwhile", rest, limit, "1"),
        ]
        confidence = 0.9 if gpu and not io.node else 0.7
        yield rule.finding(replica(io), Severity.WARNING, (start, end), evidence, confidence)


def _pressure(case: Case, numbers: Numbers) -> list[Signal]:
    """The pressure of each replica: its own, else that of a node where it is alone."""
    own = case.signals("pressure.io", numbers)
    if own:
        return own
    by_node: dict[str, list[str]] = {}
    for member in case.view.replicas:
        by_node.setdefault(member.node, []).append(member.name)
    shared = case.of_nodes("node.pressure.io", numbers)
    return [
        Signal(one.metric, one.time, one.value, by_node[one.node][0], one.node)
        for one in shared
        if len(set(by_node.get(one.node, ()))) == 1
    ]


RULE = Rule(
    name="io_bound_input",
    sees="A replica waits for storage while its devices (without any: its CPU) have little to do.",
    advice="Cache or stage the data set on a local disk, read larger blocks, prefetch more.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#io-bottleneck",
    find=find,
    metrics=("pressure.io", "cpu.utilization", *BUSY),
    nodes=("node.pressure.io",),
)
