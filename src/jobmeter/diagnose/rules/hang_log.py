"""No replica has written a log line for a long time, in a job that wrote before."""

import numpy as np

from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, quote_line
from jobmeter.diagnose.wording import format_length
from jobmeter.model.job import JobState
from jobmeter.model.time import NS_PER_MS


def find_silence(case: Case, numbers: Numbers) -> int | None:
    """Return the time since which a job of several ranks writes nothing; None if it writes.

    The time is shorter than the one that makes a finding.
    """
    if len({replica.name for replica in case.view.replicas}) < 2:
        return None
    return _find_silence(case, numbers, numbers["suspect"])


def _find_silence(case: Case, numbers: Numbers, hold_ms: float) -> int | None:
    """Return the time of a job's last line, if it wrote before and has been silent for ``hold_ms``; else None."""
    if not case.may_hang or len(case.lines) < numbers["lines"]:
        return None
    last = case.lines[-1].time_ns // NS_PER_MS
    silence = case.span.end_ms - last
    if silence < hold_ms or (case.job.state is JobState.RUNNING and not _is_regular(case, numbers, silence)):
        return None
    return last


def _is_regular(case: Case, numbers: Numbers, silence: int) -> bool:
    """True if the last lines fill a time without a pause of half the silence: a service may only log its start."""
    times = np.array([line.time_ns // NS_PER_MS for line in case.lines], np.int64)
    before = int(np.searchsorted(times, times[-1] - numbers["regular"], side="right")) - 1
    own = times[max(before, 0) :]
    if len(own) >= numbers["many"]:
        return True
    return before >= 0 and bool(np.diff(own).max() <= silence / 2)


@Rule(
    title="Hang: no output",
    advice="See where each rank is (jobmeter diagnose JOB --stacks), and hang_hw.",
    source="https://help.aliyun.com/zh/pai/user-guide/aimaster-elastic-automatic-fault-tolerance-engine",
    running=True,
    suspects=find_silence,
    waits=True,
)
def hang_log(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find silence of all replicas up to now, or up to an end without success."""
    start, end = _find_silence(case, numbers, numbers["hold"]), case.span.end_ms
    if start is None:
        return
    last = case.lines[-1]
    text = f"no rank has written anything for {format_length(end - start)}; the last line: {quote_line(last.text)}"
    evidence = Evidence(kind="log", text=text, time=start, replica=last.replica)
    yield rule.report(case.subject, Severity.WARNING, (start, end), [evidence], 0.7)
