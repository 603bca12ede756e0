"""Memory of a device grows on a straight line without an end."""

from functools import partial

from jobmeter.diagnose.memory import leaks
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.signal import device

RULE = Rule(
    name="gpu_mem_leak",
    title="GPU memory leak",
    sees="Memory of a device grows on a straight line without an end.",
    advice="Tensors are retained: losses summed without .item() or .detach(), outputs collected in a list.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=partial(leaks, subject_of=device),
    metrics=("gpu.memory.usage", "gpu.memory.limit", "npu.memory.usage", "npu.memory.limit"),
)
