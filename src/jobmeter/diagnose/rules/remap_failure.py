"""Device memory cannot be repaired any more."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import raised_flags
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """The flag was up at any time."""
    return raised_flags(RULE, case, Severity.CRITICAL, "remapping a memory row of {} failed")


RULE = Rule(
    name="remap_failure",
    sees="Device memory cannot be repaired any more.",
    advice="Take the device out of service: it has to be replaced.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=find,
    metrics=("gpu.remapped.rows.failed",),
    running=True,
)
