"""Device memory lost data."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity


def find(case: Case, numbers: Numbers) -> list[Finding]:  # noqa: ARG001 - the shape of a rule
    """Any growth of the counter while the job had the device."""
    found = []
    for signal in case.increases.get("gpu.ecc.uncorrected", ()):
        grown = signal.value > 0
        if not grown.any():
            continue
        times, count = signal.time[grown], float(signal.value[grown].sum())
        text = f"{count:.0f} memory errors of {signal.device_name} could not be corrected"
        evidence = measured(signal.metric, text, count, 0.0, "{error}", time=int(times[0]), replica=signal.replica)
        span = int(times[0]), int(times[-1]) + case.step_ms
        found.append(RULE.finding(device(signal), Severity.CRITICAL, span, [evidence], 0.99))
    return found


RULE = Rule(
    name="ecc_uncorrected",
    sees="Memory errors of a device that could not be corrected.",
    advice="Start again from a checkpoint on another device; reset this one, and have it replaced if it happens again.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    find=find,
    counters=("gpu.ecc.uncorrected",),
    explains=True,
    running=True,
)
