"""A device cannot remap a faulty memory row."""

from jobmeter.diagnose.devices import find_raised_flags
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity


@Rule(
    title="Row remapping failed",
    advice="Take the device out of service: it has to be replaced.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    metrics=("gpu.remapped.rows.failed",),
    running=True,
)
def remap_failure(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices with the flag."""
    return find_raised_flags(rule, case, numbers, severity=Severity.CRITICAL, text="remapping a memory row failed")
