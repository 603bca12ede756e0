"""Devices wait while the CPU that feeds them is full."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import BUSY, busy, of_replica
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import replica
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Full CPU beside idle devices for most of the time."""
    devices = busy(case, numbers)
    for cpu in case.signals("cpu.utilization", numbers):
        gpu = of_replica(devices, cpu.replica)
        if gpu is None or cpu.span[1] - cpu.span[0] < numbers["hold"]:
            continue
        beside = gpu.at(cpu.time)
        bound = (cpu.value > numbers["cpu"]) & (beside < numbers["gpu"])
        share = float(np.mean(bound))
        if share <= numbers["share"]:
            continue
        start, end = int(cpu.time[bound][0]), int(cpu.time[bound][-1]) + cpu.interval
        rest = float(np.nanmean(beside[bound]))
        text = f"CPU above {numbers['cpu']:.0%} with devices below {numbers['gpu']:.0%} for {share:.0%} of the time"
        evidence = [
            cpu.evidence(text, float(cpu.value[bound].mean()), numbers["cpu"], "1"),
            gpu.evidence(f"devices of {cpu.replica} were at {rest:.1%} meanwhile", rest, numbers["gpu"], "1"),
        ]
        yield rule.finding(replica(cpu), Severity.WARNING, (start, end), evidence, 0.9)


RULE = Rule(
    name="cpu_bound_input",
    sees="The CPU of a replica is full while its devices wait.",
    advice="More CPU for the replica, more loader workers, or preprocessing done before the job.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#cpu-bottleneck",
    find=find,
    metrics=("cpu.utilization", *BUSY),
)
