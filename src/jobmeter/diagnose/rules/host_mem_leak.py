"""The memory in use of a replica grows steadily, up to the end of its samples."""

from jobmeter.diagnose.memory import find_leaks
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule
from jobmeter.diagnose.signal import name_replica


@Rule(
    title="Host memory leak",
    advice="Look for retained objects: tensors with their graph in a list, unbounded caches, new objects in each step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    metrics=("memory.usage", "memory.limit"),
)
def host_mem_leak(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas whose memory grows steadily."""
    return find_leaks(rule, case, numbers, subject_of=name_replica, limit_by_record=True)
