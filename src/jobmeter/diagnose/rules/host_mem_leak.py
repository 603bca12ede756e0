"""Memory of a replica grows steadily without an end."""

from functools import partial

from jobmeter.diagnose.memory import leaks
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.signal import replica

RULE = Rule(
    name="host_mem_leak",
    title="Host memory leak",
    sees="Memory of a replica grows on a straight line without an end.",
    advice="Something is retained: tensors with their graph in a list, caches without a bound, one more object a step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#gpu-memory-increase",
    find=partial(leaks, subject_of=replica, limit_by_record=True),
    metrics=("memory.usage", "memory.limit"),
)
