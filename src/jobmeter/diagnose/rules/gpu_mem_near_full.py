"""Memory of a device is nearly full."""

from jobmeter.diagnose.memory import find_near_limits
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device


@Rule(
    title="GPU memory near full",
    advice="Use smaller batches, gradient checkpointing or a larger device: the next allocation may fail.",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    metrics=("gpu.memory.utilization", "npu.memory.utilization"),
)
def gpu_mem_near_full(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices whose memory is near its limit."""
    return find_near_limits(rule, case, numbers, subject_of=name_device, severity=Severity.INFO)
