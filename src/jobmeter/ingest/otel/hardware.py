"""GPUs, https://opentelemetry.io/docs/specs/semconv/hardware/gpu/ and .../hardware/common/.

``hw.gpu.io`` stays under its own name: it does not name the link.
"""

import re

from jobmeter.ingest.rule import Rules, RuleTarget, make_table, split

_TASKS = {
    "(?:general)?": "gpu.utilization",
    "encoder": "gpu.encoder.utilization",
    "decoder": "gpu.decoder.utilization",
}
_IS_GPU = {"hardware": re.compile("gpu")}
_MEMORY = ("gpu.memory.usage", "gpu.memory.limit", "gpu.memory.utilization")
_SENSORS = {
    "(?i:.*(?:memory|hbm|vram).*)": "gpu.temperature.memory",
    "(?i:(?!.*(?:memory|hbm|vram)).*)": "gpu.temperature",
}

RULES: Rules = {
    "hw.gpu.utilization": split(RuleTarget.GPU, "task", _TASKS),
    **make_table(RuleTarget.GPU, {f"hw.{name}": name for name in _MEMORY}),
    **make_table(RuleTarget.GPU, {"hw.energy": "gpu.energy", "hw.power": "gpu.power"}, only=_IS_GPU),
    "hw.temperature": split(RuleTarget.GPU, "location", _SENSORS, {"location": "sensor"}, _IS_GPU),
}
