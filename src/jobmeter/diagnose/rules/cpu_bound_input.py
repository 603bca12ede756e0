"""The CPU of a replica is full while its devices wait."""

import numpy as np

from jobmeter.diagnose.devices import BUSY, average_replica, find_input_bound, measure_load
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_replica
from jobmeter.diagnose.wording import format_amount


@Rule(
    title="Input bound by CPU",
    advice="Give the replica more CPU, use more loader workers, or preprocess the data before the job.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#cpu-bottleneck",
    metrics=("cpu.utilization", *BUSY),
    running=True,
)
def cpu_bound_input(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find full CPUs beside idle devices for most of the time."""
    cpus = case.select_signals("cpu.utilization", numbers, reaching=numbers["cpu"])
    devices = measure_load(case, numbers) if cpus else []
    for cpu in cpus:
        gpu = average_replica(devices, cpu.replica)
        beside = gpu.read_at(cpu.time) if gpu is not None else np.full(len(cpu), np.nan)
        waits = (cpu.value > numbers["cpu"]) & (beside < numbers["gpu"])
        longest = find_input_bound(cpu, waits, numbers)
        if gpu is None or longest is None:
            continue
        inside = longest.points
        used = float(cpu.value[inside][waits[inside]].mean())
        rest = float(beside[inside][waits[inside]].mean())
        share = format_amount(float(waits[inside].mean()), "1")
        text = (
            f"{case.name_signal(cpu)} has its CPU full while its devices are at {format_amount(rest, '1')}, "
            f"{share} of the time"
        )
        evidence = [
            cpu.cite(text, used, numbers["cpu"], "1", time=longest.start),
            gpu.cite(f"its CPU is at {format_amount(used, '1')} of its limit meanwhile", rest, numbers["gpu"], "1"),
        ]
        yield rule.report(name_replica(cpu), Severity.WARNING, longest.span, evidence, 0.9)
