"""Device memory is corrected all the time."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.devices import device
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity
from jobmeter.model.time import MINUTE


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """More corrected errors a minute than there should be, for as long as the hold time."""
    found = []
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
            text = f"{rate:.1f} memory errors of {signal.device_name} were corrected a minute"
            evidence = measured(signal.metric, text, rate, numbers["rate"], "{error}/min", replica=signal.replica)
            found.append(RULE.finding(device(signal), Severity.WARNING, (start, end), [evidence], 0.85))
    return found


RULE = Rule(
    name="ecc_corrected_storm",
    sees="Memory errors of a device are corrected repeatedly.",
    advice="Nothing is lost yet; test the device when the job has ended.",
    source="https://github.com/facebookresearch/gcm",
    find=find,
    counters=("gpu.ecc.corrected",),
)
