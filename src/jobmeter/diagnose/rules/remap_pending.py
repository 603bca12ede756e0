"""A device needs a reset to remap a faulty memory row."""

from jobmeter.diagnose.devices import find_raised_flags
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity


@Rule(
    title="Row remapping pending",
    advice="Reset the device when nobody uses it.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    metrics=("gpu.remapped.rows.pending",),
)
def remap_pending(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices with the flag."""
    return find_raised_flags(rule, case, numbers, severity=Severity.WARNING, text="a memory row waits to be remapped")
