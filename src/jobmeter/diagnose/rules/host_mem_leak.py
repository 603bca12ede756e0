"""Memory of a replica grows on a straight line without an end."""

from jobmeter.diagnose.memory import find_leaks
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule
from jobmeter.diagnose.signal import name_replica


@Rule(
    title="Host memory leak",
    advice="Something is retained: tensors with their graph in a list, caches without a bound, one more object a step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    metrics=("memory.usage", "memory.limit"),
)
def host_mem_leak(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find memory that grows on a straight line."""
    return find_leaks(rule, case, numbers, subject_of=name_replica, limit_by_record=True)
