"""Memory of a replica grows on a straight line without an end."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.memory import leaks, replica
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Steady growth that reaches the limit soon; without a measured limit, that of the job's record."""
    return leaks(RULE, case, numbers, replica, case.job.limits.get("memory.limit"))


RULE = Rule(
    name="host_mem_leak",
    sees="Memory of a replica grows on a straight line without an end.",
    advice="Something is retained: tensors with their graph in a list, caches without a bound, one more object a step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=find,
    metrics=("memory.usage", "memory.limit"),
)
