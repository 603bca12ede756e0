"""A replica is throttled by its CPU quota."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject
from jobmeter.query.stretches import sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Replicas that are throttled for a good part of the time."""
    found = []
    for signal in case.signals("cpu.throttled.time", numbers):
        stretches = sustained(signal.time, signal.value > numbers["share"], numbers["hold"])
        if not stretches:
            continue
        longest = max(stretches, key=lambda stretch: stretch.length)
        mean = float(signal.value[longest.first : longest.last + 1].mean())
        text = f"{signal.replica} was throttled for {mean:.2f} s in each second by its CPU quota"
        evidence = measured(
            signal.metric, text, mean, numbers["share"], "1", time=longest.start, replica=signal.replica
        )
        subject = Subject("replica", signal.replica)
        found.append(RULE.finding(subject, Severity.WARNING, (longest.start, longest.end), [evidence], 0.95))
    return found


RULE = Rule(
    name="cpu_throttled",
    sees="A replica is throttled by its CPU quota.",
    advice="Raise the CPU limit, or start as many threads as the limit has cores (OMP_NUM_THREADS, loader workers).",
    source="https://github.com/kubernetes-monitoring/kubernetes-mixin/blob/master/alerts/resource_alerts.libsonnet",
    find=find,
    metrics=("cpu.throttled.time",),
)
