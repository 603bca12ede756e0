"""Device memory waits for a reset to be repaired."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import raised_flags
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """The flag was up at any time."""
    return raised_flags(RULE, case, Severity.WARNING, "a memory row of {} waits to be remapped")


RULE = Rule(
    name="remap_pending",
    sees="Device memory waits for a reset to be repaired.",
    advice="Reset the device when nobody uses it.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=find,
    metrics=("gpu.remapped.rows.pending",),
)
