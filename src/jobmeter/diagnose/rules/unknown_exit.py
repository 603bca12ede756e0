"""A replica failed, and neither its lines nor its status show why."""

from jobmeter.diagnose.causes import describe_end, make_line_evidence, make_root_finding
from jobmeter.diagnose.failures import list_failed_replicas
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity, Weight
from jobmeter.model.job import JobState

_SHOWN = 5


@Rule(
    title="Unknown exit",
    advice="Make the program log why it ends: only its last lines and its exit status are known.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    cause=Weight.FALLBACK,
)
def unknown_exit(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Report every failure; used only without any other cause. Stopping a job is no failure."""
    for failure in list_failed_replicas(case, numbers):
        if case.job.state is JobState.STOPPED and not failure.exit_code:
            continue
        evidence = [describe_end(failure), *(make_line_evidence(line) for line in failure.lines[-_SHOWN:])]
        yield make_root_finding(rule, failure, evidence, Severity.CRITICAL, 0.5)
