"""Memory of a device grows on a straight line without an end."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.memory import leaks
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Steady growth that reaches the limit soon."""
    return leaks(RULE, case, numbers, device)


RULE = Rule(
    name="gpu_mem_leak",
    sees="Memory of a device grows on a straight line without an end.",
    advice="Tensors are retained: losses summed without .item() or .detach(), outputs collected in a list.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=find,
    metrics=("gpu.memory.usage", "gpu.memory.limit"),
)
