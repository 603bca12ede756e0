"""Memory errors of a device that could not be corrected."""

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import format_count


@Rule(
    title="Uncorrected ECC error",
    advice="Start again from a checkpoint on another device; reset this one, and have it replaced if it happens again.",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    counters=("gpu.ecc.uncorrected",),
    explains=True,
    lasts=True,
    running=True,
)
def ecc_uncorrected(rule: Rule, case: Case, numbers: Numbers) -> Findings:  # noqa: ARG001 - the shape of a rule
    """Find any growth of the counter while the job had the device."""
    for signal in case.increases.get("gpu.ecc.uncorrected", ()):
        grown = signal.value > 0
        if grown.any():
            times, count = signal.time[grown], float(signal.value[grown].sum())
            text = f"{format_count(int(count), 'memory error')} that could not be corrected"
            evidence = signal.cite(text, count, 0.0, "{error}", time=int(times[0]))
            span = int(times[0]), int(times[-1]) + case.step_ms
            sentence = f"{case.name_signal(signal)} lost data: memory errors could not be corrected"
            yield rule.report(name_device(signal), Severity.CRITICAL, span, [evidence], 0.99, sentence=sentence)
