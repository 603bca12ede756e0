"""Devices wait while the CPU that feeds them is full."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import busy, of_replica
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Full CPU beside idle devices for most of the time."""
    found = []
    devices = busy(case, numbers)
    for cpu in case.signals("cpu.utilization", numbers):
        gpu = of_replica(devices, cpu.replica)
        if gpu is None or cpu.time[-1] + cpu.interval - cpu.time[0] < numbers["hold"]:
            continue
        beside = gpu.at(cpu.time)
        bound = (cpu.value > numbers["cpu"]) & (beside < numbers["gpu"])
        share = float(np.mean(bound))
        if share <= numbers["share"]:
            continue
        start, end = int(cpu.time[bound][0]), int(cpu.time[bound][-1]) + cpu.interval
        text = f"CPU above {numbers['cpu']:.0%} with devices below {numbers['gpu']:.0%} for {share:.0%} of the time"
        evidence = [
            measured("cpu.utilization", text, float(cpu.value[bound].mean()), numbers["cpu"], "1", replica=cpu.replica),
            measured(
                gpu.metric,
                f"devices of {cpu.replica} were at {float(np.nanmean(beside[bound])):.1%} meanwhile",
                float(np.nanmean(beside[bound])),
                numbers["gpu"],
                "1",
                replica=cpu.replica,
            ),
        ]
        found.append(RULE.finding(Subject("replica", cpu.replica), Severity.WARNING, (start, end), evidence, 0.9))
    return found


RULE = Rule(
    name="cpu_bound_input",
    sees="The CPU of a replica is full while its devices wait.",
    advice="More CPU for the replica, more loader workers, or preprocessing done before the job.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#cpu-bottleneck",
    find=find,
    metrics=("cpu.utilization", "gpu.utilization", "gpu.sm.active", "npu.utilization", "npu.sm.active"),
)
