"""Device memory cannot be repaired any more."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """The flag was up at any time."""
    found = []
    for signal in case.means.get("gpu.remapped.rows.failed", ()):
        up = signal.value > 0
        if up.any():
            span = int(signal.time[up][0]), int(signal.time[up][-1]) + max(signal.interval, 1)
            text = f"remapping a memory row of {signal.device_name} failed"
            evidence = measured(signal.metric, text, 1.0, 0.0, "1", time=span[0], replica=signal.replica)
            found.append(RULE.finding(device(signal), Severity.CRITICAL, span, [evidence], 0.99))
    return found


RULE = Rule(
    name="remap_failure",
    sees="Device memory cannot be repaired any more.",
    advice="Take the device out of service: it has to be replaced.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=find,
    metrics=("gpu.remapped.rows.failed",),
)
