"""Device memory needs a reset to be repaired."""

from functools import partial

from jobmeter.diagnose.devices import find_raised_flags
from jobmeter.diagnose.rule import Rule, Severity

RULE = Rule(
    name="remap_pending",
    title="Remap pending",
    sees="Device memory waits for a reset to be repaired.",
    advice="Reset the device when nobody uses it.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=partial(find_raised_flags, severity=Severity.WARNING, text="a memory row waits to be remapped"),
    metrics=("gpu.remapped.rows.pending",),
)
