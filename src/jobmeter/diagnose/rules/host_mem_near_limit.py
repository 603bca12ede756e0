"""Memory of a replica is near its limit."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.memory import near_limit
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Above the share for long enough."""
    found = []
    for signal in case.signals("memory.utilization", numbers):
        longest = near_limit(signal, numbers)
        if longest is None:
            continue
        most = float(signal.value[longest.first : longest.last + 1].max())
        text = f"memory of {signal.replica} reached {most:.1%} of its limit"
        evidence = measured(
            signal.metric, text, most, numbers["share"], "1", time=longest.start, replica=signal.replica
        )
        span = (longest.start, longest.end)
        found.append(RULE.finding(Subject("replica", signal.replica), Severity.WARNING, span, [evidence], 0.95))
    return found


RULE = Rule(
    name="host_mem_near_limit",
    sees="Memory of a replica is near its limit.",
    advice="Raise the memory limit, or hold less at once (smaller batches, fewer loader workers, memory maps).",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=find,
    metrics=("memory.utilization",),
)
