"""Memory of a replica is near its limit."""

from jobmeter.diagnose.memory import find_near_limits
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_replica


@Rule(
    title="Host memory near limit",
    advice="Raise the memory limit, or use less memory at a time (smaller batches, fewer loader workers, memory maps).",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    metrics=("memory.utilization",),
    running=True,
)
def host_mem_near_limit(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas whose memory is near its limit."""
    return find_near_limits(rule, case, numbers, subject_of=name_replica, severity=Severity.WARNING)
