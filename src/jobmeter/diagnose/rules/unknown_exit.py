"""A replica failed, and neither its lines nor its status show why."""

from jobmeter.diagnose.causes import describe_end, make_line_evidence, make_root_finding
from jobmeter.diagnose.lives import list_deaths
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity, Weight
from jobmeter.model.job import JobState

_SHOWN = 5


@Rule(
    title="Unknown exit",
    advice="Let the program say why it ends: the last lines and the exit status are all there is.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    cause=Weight.FALLBACK,
)
def unknown_exit(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Report every failure; used only without any other cause. Stopping a job is no failure."""
    for death in list_deaths(case, numbers):
        if case.job.state is JobState.STOPPED and not death.exit_code:
            continue
        evidence = [describe_end(death), *(make_line_evidence(line) for line in death.lines[-_SHOWN:])]
        yield make_root_finding(rule, death, evidence, Severity.CRITICAL, 0.5)
