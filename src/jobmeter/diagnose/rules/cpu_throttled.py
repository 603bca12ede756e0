"""A replica is throttled by its CPU quota."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_replica


@Rule(
    title="CPU throttled",
    advice="Raise the CPU limit, or start no more threads than the limit has cores (OMP_NUM_THREADS, loader workers).",
    source="https://github.com/kubernetes-monitoring/kubernetes-mixin/blob/master/alerts/resource_alerts.libsonnet",
    metrics=("cpu.throttled.time",),
    running=True,
)
def cpu_throttled(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas that are throttled for a large share of the time."""
    for signal in case.average_signals("cpu.throttled.time", numbers):
        longest = case.find_stretch(signal, signal.value > numbers["share"], numbers)
        if longest is not None:
            mean = float(signal.select_values(longest).mean())
            text = f"{case.name_signal(signal)} is throttled by its CPU quota for {mean:.2f} s of each second"
            evidence = signal.cite(text, mean, numbers["share"], "s/s", time=longest.start)
            yield rule.report(name_replica(signal), Severity.WARNING, longest.span, [evidence], 0.95)
