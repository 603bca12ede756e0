"""Device memory can no longer be repaired."""

from functools import partial

from jobmeter.diagnose.devices import find_raised_flags
from jobmeter.diagnose.rule import Rule, Severity

RULE = Rule(
    name="remap_failure",
    title="Remap failure",
    sees="Device memory cannot be repaired any more.",
    advice="Take the device out of service: it has to be replaced.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=partial(find_raised_flags, severity=Severity.CRITICAL, text="remapping a memory row failed"),
    metrics=("gpu.remapped.rows.failed",),
    running=True,
)
