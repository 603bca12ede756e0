"""A job that wrote log lines regularly has stopped."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.diagnose.wording import minutes
from jobmeter.model.finding import Evidence, Severity
from jobmeter.model.time import NS_PER_MS


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Silence of all replicas up to now, or up to an end that was no success."""
    if not case.may_hang or len(case.lines) < numbers["lines"]:
        return
    last = case.lines[-1]
    start, end = last.time_ns // NS_PER_MS, case.span.end_ms
    if end - start < numbers["hold"]:
        return
    text = f"no rank has written anything for {minutes(end - start)}; the last line: {quoted(last.text)}"
    evidence = Evidence(kind="log", text=text, time=start, replica=last.replica)
    yield rule.finding(case.subject, Severity.WARNING, (start, end), [evidence], 0.7)


RULE = Rule(
    name="hang_log",
    title="Hang log",
    sees="No replica writes anything for long, in a job that did write.",
    advice="Look where each rank is (jobmeter diagnose JOB --stacks); see hang_hw.",
    source="https://help.aliyun.com/zh/pai/user-guide/aimaster-elastic-automatic-fault-tolerance-engine",
    find=find,
    waits=True,
)
