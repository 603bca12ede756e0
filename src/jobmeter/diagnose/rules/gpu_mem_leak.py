"""The memory in use of a device grows steadily, up to the end of its samples."""

from jobmeter.diagnose.memory import find_leaks
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule
from jobmeter.diagnose.signal import name_device


@Rule(
    title="GPU memory leak",
    advice="Look for retained tensors: losses summed without .item() or .detach(), outputs collected in a list.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    metrics=("gpu.memory.usage", "gpu.memory.limit", "npu.memory.usage", "npu.memory.limit"),
)
def gpu_mem_leak(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices whose memory grows steadily."""
    return find_leaks(rule, case, numbers, subject_of=name_device)
