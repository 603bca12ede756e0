"""Utilization of the job's devices is never high, though they work all the time."""

from jobmeter.diagnose.devices import BUSY, find_low_level
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import make_metric_evidence
from jobmeter.diagnose.wording import format_amount


@Rule(
    title="GPU underused",
    advice="Use a larger batch, more loader workers or fewer devices: each waits for a part of every step.",
    source="https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-built-in-profiler-rules.html#low-gpu-utilization",
    metrics=BUSY,
)
def gpu_underused_p95(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find a low 95th percentile of the busiest device, in a job that works at one level."""
    found = find_low_level(case, numbers)
    if found is None:
        return
    used, level = found
    devices = "1 device in use" if len(used) == 1 else f"{len(used)} devices in use"
    text = f"{devices}: the 95th percentile of utilization is {format_amount(level, '1')}; "
    text += f"below {format_amount(numbers['busiest'], '1')} is low"
    evidence = make_metric_evidence(used[0].metric, text, level, numbers["busiest"], "1")
    span = case.skip_warm_up(numbers)
    yield rule.report(case.subject, Severity.INFO, (span.start_ms, span.end_ms), [evidence], 0.85)
