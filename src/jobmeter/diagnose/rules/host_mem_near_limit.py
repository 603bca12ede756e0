"""Memory of a replica is near its limit."""

from functools import partial

from jobmeter.diagnose.memory import find_near_limits
from jobmeter.diagnose.rule import Rule, Severity
from jobmeter.diagnose.signal import replica

RULE = Rule(
    name="host_mem_near_limit",
    title="Host memory near limit",
    sees="Memory of a replica is near its limit.",
    advice="Raise the memory limit, or use less memory at a time (smaller batches, fewer loader workers, memory maps).",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=partial(find_near_limits, subject_of=replica, severity=Severity.WARNING),
    metrics=("memory.utilization",),
    running=True,
)
