"""Memory of a replica is near its limit."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.memory import near_limits, replica
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Above the share for long enough."""
    return near_limits(RULE, case, numbers, replica, Severity.WARNING)


RULE = Rule(
    name="host_mem_near_limit",
    sees="Memory of a replica is near its limit.",
    advice="Raise the memory limit, or use less memory at a time (smaller batches, fewer loader workers, memory maps).",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=find,
    metrics=("memory.utilization",),
    running=True,
)
