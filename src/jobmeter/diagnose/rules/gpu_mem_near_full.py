"""Memory of a device is nearly full."""

from functools import partial

from jobmeter.diagnose.memory import find_near_limits
from jobmeter.diagnose.rule import Rule, Severity
from jobmeter.diagnose.signal import device

RULE = Rule(
    name="gpu_mem_near_full",
    title="GPU memory near full",
    sees="Memory of a device is nearly full.",
    advice="A little more and an allocation fails: smaller batches, gradient checkpointing, or a larger device.",
    source="https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/modelarts_24_0081.html",
    find=partial(find_near_limits, subject_of=device, severity=Severity.INFO),
    metrics=("gpu.memory.utilization", "npu.memory.utilization"),
)
