"""A GPU or NPU of the job computes nothing for a long time."""

import numpy as np

from jobmeter.diagnose.devices import BUSY, measure_load
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import name_device
from jobmeter.diagnose.wording import find_title, format_amount, format_length

_USUALLY = 0.9


@Rule(
    title="Allocated GPU idle",
    advice="End the job if it is done, request fewer devices, or find what its processes wait for.",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    metrics=BUSY,
    running=True,
)
def gpu_idle_allocated(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices whose utilization and active multiprocessors stay at idle."""
    for signal in measure_load(case, numbers):
        longest = case.find_stretch(signal, signal.value <= numbers["idle"], numbers)
        if longest is None:
            continue
        severity = Severity.CRITICAL if longest.length >= numbers["critical"] else Severity.WARNING
        usual = float(np.quantile(signal.select_values(longest), _USUALLY))
        sentence = (
            f"{case.name_signal(signal)} computes nothing: {find_title(signal.metric)} is {format_amount(usual, '1')}"
        )
        text = (
            f"{find_title(signal.metric)} was at most {format_amount(usual, '1')} for {format_length(longest.length)}"
        )
        evidence = [signal.cite(text, usual, numbers["idle"], "1", time=longest.start)]
        yield rule.report(name_device(signal), severity, longest.span, evidence, 0.95, sentence=sentence)
