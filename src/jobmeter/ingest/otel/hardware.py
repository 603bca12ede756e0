"""GPUs, https://opentelemetry.io/docs/specs/semconv/hardware/gpu/ and .../hardware/common/.

``hw.gpu.io`` stays under its own name: it does not say over which link the bytes went.
"""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.otel.rule import Rule, Subject

_TASKS = {
    "(?:general)?": "gpu.utilization",
    "encoder": "gpu.encoder.utilization",
    "decoder": "gpu.decoder.utilization",
}
_IS_GPU = {"hardware": re.compile("gpu")}
_MEMORY_SENSOR = re.compile("(?i:.*(?:memory|hbm|vram).*)")
_OTHER_SENSOR = re.compile("(?i:(?!.*(?:memory|hbm|vram)).*)")


def _of_gpu(metric: str) -> tuple[Rule, ...]:
    return (Rule(metric=metric, subject=Subject.GPU),)


RULES: Mapping[str, Sequence[Rule]] = {
    "hw.gpu.utilization": tuple(
        Rule(metric=ours, subject=Subject.GPU, only={"task": re.compile(task)}) for task, ours in _TASKS.items()
    ),
    "hw.gpu.memory.usage": _of_gpu("gpu.memory.usage"),
    "hw.gpu.memory.limit": _of_gpu("gpu.memory.limit"),
    "hw.gpu.memory.utilization": _of_gpu("gpu.memory.utilization"),
    "hw.energy": (Rule(metric="gpu.energy", subject=Subject.GPU, only=_IS_GPU),),
    "hw.power": (Rule(metric="gpu.power", subject=Subject.GPU, only=_IS_GPU),),
    "hw.temperature": (
        Rule(
            metric="gpu.temperature.memory",
            subject=Subject.GPU,
            keep={"location": "sensor"},
            only={**_IS_GPU, "location": _MEMORY_SENSOR},
        ),
        Rule(
            metric="gpu.temperature",
            subject=Subject.GPU,
            keep={"location": "sensor"},
            only={**_IS_GPU, "location": _OTHER_SENSOR},
        ),
    ),
}
