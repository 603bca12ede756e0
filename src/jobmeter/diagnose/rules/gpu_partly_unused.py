"""Some of the job's devices never work while others do."""

from msgspec.structs import replace

from jobmeter.diagnose.devices import BUSY, measure_load, works
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import make_metric_evidence

_NAMED = 8


@Rule(
    title="GPUs partly unused",
    advice="Request as many devices as the program uses, or let it use all (torchrun --nproc-per-node, device lists).",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    metrics=BUSY,
)
def gpu_partly_unused(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find devices that were never above idle while another device of the job was."""
    span = case.skip_warm_up(numbers)
    signals = measure_load(case, numbers)
    idle = [one for one in signals if not works(one, numbers)]
    if not idle or len(idle) == len(signals) or span.length_ms < numbers["hold"]:
        return
    names = ", ".join(case.name_signal(one) for one in idle[:_NAMED]) + (", ..." if len(idle) > _NAMED else "")
    text = f"{len(idle)} of {len(signals)} devices never worked: {names}"
    evidence = make_metric_evidence(idle[0].metric, text, float(max(one.mean for one in idle)), numbers["idle"], "1")
    found = rule.report(case.subject, Severity.WARNING, (span.start_ms, span.end_ms), [evidence], 0.95)
    yield replace(found, replicas=list(dict.fromkeys(one.replica for one in idle if one.replica)))
