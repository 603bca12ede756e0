"""Device memory is corrected all the time."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.signal import device
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity
from jobmeter.model.time import MINUTE


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """More corrected errors a minute than there should be, for as long as the hold time."""
    for signal in case.increases.get("gpu.ecc.corrected", ()):
        grown = np.flatnonzero(signal.value > 0)
        if len(grown) < 2:
            continue
        start, end = int(signal.time[grown[0]]), int(signal.time[grown[-1]]) + case.step_ms
        minutes = (end - start) / MINUTE
        rate = float(signal.value[grown].sum()) / minutes
        # Sustained: no pause that is longer than the hold time.
        if end - start < numbers["hold"] or np.diff(signal.time[grown]).max() > numbers["hold"]:
            continue
        if rate > numbers["rate"]:
            text = f"{case.name_of(signal)} had {rate:.1f} memory errors a minute, which were corrected"
            evidence = signal.evidence(text, rate, numbers["rate"], "{error}/min")
            yield rule.finding(device(signal), Severity.WARNING, (start, end), [evidence], 0.85)


RULE = Rule(
    name="ecc_corrected_storm",
    sees="Memory errors of a device are corrected repeatedly.",
    advice="Nothing is lost yet; test the device when the job has ended.",
    source="https://github.com/facebookresearch/gcm",
    find=find,
    counters=("gpu.ecc.corrected",),
)
