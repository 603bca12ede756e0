"""Memory of a device is nearly full."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.memory import near_limits
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Above the share for long enough."""
    return near_limits(RULE, case, numbers, device, Severity.INFO)


RULE = Rule(
    name="gpu_mem_near_full",
    sees="Memory of a device is nearly full.",
    advice="A little more and an allocation fails: smaller batches, gradient checkpointing, or a larger device.",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=find,
    metrics=("gpu.memory.utilization",),
    running=True,
)
