"""Memory errors of a device are corrected repeatedly."""

from jobmeter.diagnose.devices import find_growth_storms
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device


@Rule(
    title="Many corrected ECC errors",
    advice="Nothing is lost yet; test the device when the job has ended.",
    source="https://github.com/facebookresearch/gcm",
    counters=("gpu.ecc.corrected",),
)
def ecc_corrected_storm(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find more corrected errors a minute than the threshold, for the hold time."""
    for signal, rate, span in find_growth_storms(case, "gpu.ecc.corrected", numbers):
        text = f"{case.name_signal(signal)} had {rate:.1f} corrected memory errors a minute"
        evidence = signal.cite(text, rate, numbers["rate"], "{error}/min")
        yield rule.report(name_device(signal), Severity.WARNING, span, [evidence], 0.85)
