"""Mean utilization of the job's devices is low."""

import numpy as np

from jobmeter.diagnose.devices import BUSY, measure_load, works
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import make_metric_evidence
from jobmeter.diagnose.wording import format_amount


@Rule(
    title="Low GPU utilization",
    advice="Check the input pipeline first (cpu_bound_input, io_bound_input), then the batch size.",
    source="https://github.com/PrincetonUniversity/jobstats",
    metrics=BUSY,
    hides=frozenset({"gpu_underused_p95", "batch_small"}),
)
def gpu_low_util(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a low mean over the devices that did anything."""
    span = case.skip_warm_up(numbers)
    used = [one for one in measure_load(case, numbers) if works(one, numbers)]
    if not used or span.length_ms < numbers["hold"]:
        return
    mean = float(np.mean([one.mean for one in used]))
    if mean < numbers["yellow"]:
        severity = Severity.WARNING if mean <= numbers["red"] else Severity.INFO
        devices = "device in use computes" if len(used) == 1 else "devices in use compute"
        text = (
            f"{len(used)} {devices} at {format_amount(mean, '1')} on average; below "
            f"{format_amount(numbers['yellow'], '1')} is low"
        )
        evidence = make_metric_evidence(used[0].metric, text, mean, numbers["yellow"], "1")
        yield rule.report(case.subject, severity, (span.start_ms, span.end_ms), [evidence], 0.9)
