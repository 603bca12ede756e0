"""slurm-job-exporter, https://github.com/guilbaultf/slurm-job-exporter: jobs of Slurm, by their control groups.

Under version 1 of control groups a job without a limit has one of nearly 2^63 bytes. Memory in use counts file cache.
"""

import math
import re
from collections.abc import Mapping

from jobmeter.ingest.rule import ANY, Bounds, Patterns, Rules, RuleTarget, TranslationRule

# A partition of a GPU has a UUID instead of a number, and keeps its own name.
_ONLY: Mapping[RuleTarget, Patterns] = {
    RuleTarget.SLURM: {"slurmjobid": re.compile(r"\d+")},
    RuleTarget.SLURM_GPU: {"slurmjobid": re.compile(r"\d+"), "gpu": re.compile(r"\d{1,3}")},
}
_LIMIT: Bounds = (-math.inf, 2.0**62)
_PERCENT = 0.01
_JOBS: Mapping[str, tuple[str, float]] = {
    "memory_usage": ("memory.usage", 1.0),
    "memory_max": ("memory.peak", 1.0),
    "memory_limit": ("memory.limit", 1.0),
    "core_usage_total": ("cpu.time", 1e-9),
    "process_count": ("process.count", 1.0),
    "threads_count": ("thread.count", 1.0),
}
_GPUS: Mapping[str, tuple[str, float]] = {
    "memory_usage_gpu": ("gpu.memory.usage", 1.0),
    "power_gpu": ("gpu.power", 1e-3),
    "utilization_gpu": ("gpu.utilization", _PERCENT),
    "utilization_gpu_memory": ("gpu.dram.active", _PERCENT),
    "sm_occupancy_gpu": ("gpu.sm.occupancy", _PERCENT),
    "tensor_gpu": ("gpu.tensor.active", _PERCENT),
    "fp64_gpu": ("gpu.fp64.active", _PERCENT),
    "fp32_gpu": ("gpu.fp32.active", _PERCENT),
    "fp16_gpu": ("gpu.fp16.active", _PERCENT),
}
_KEEP = {"core": "core", "state": "state"}

RULES: Rules = {
    f"slurm_job_{theirs}": (
        TranslationRule(
            metric=ours,
            subject=subject,
            factor=factor,
            keep=_KEEP,
            only=_ONLY[subject],
            measured=_LIMIT if ours == "memory.limit" else ANY,
        ),
    )
    for subject, names in ((RuleTarget.SLURM, _JOBS), (RuleTarget.SLURM_GPU, _GPUS))
    for theirs, (ours, factor) in names.items()
}
