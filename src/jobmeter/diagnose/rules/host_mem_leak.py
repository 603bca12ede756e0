"""Memory of a replica grows on a straight line without an end."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.memory import growth, limit_of
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Steady growth that reaches the limit soon."""
    found = []
    limits = case.means.get("memory.limit", ())
    for signal in case.signals("memory.usage", numbers):
        limit = limit_of(limits, signal, case.job.limits.get("memory.limit"))
        leak = growth(signal, limit, numbers)
        if leak is None:
            continue
        slope, fit, rest = leak
        until = "" if rest is None else f", {rest / 60:.1f} min from its limit"
        text = f"memory of {signal.replica} grew by {slope * 60 / 2**20:.1f} MiB a minute{until}"
        evidence = measured(signal.metric, text, float(signal.value[-1]), limit, "By", replica=signal.replica)
        span = int(signal.time[0]), int(signal.time[-1]) + signal.interval
        found.append(RULE.finding(Subject("replica", signal.replica), Severity.WARNING, span, [evidence], 0.95 * fit))
    return found


RULE = Rule(
    name="host_mem_leak",
    sees="Memory of a replica grows on a straight line without an end.",
    advice="Something is kept: tensors with their graph in a list, caches without a bound, one more object a step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=find,
    metrics=("memory.usage", "memory.limit"),
)
