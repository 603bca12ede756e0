"""The kernel killed a process of the job because memory ran out."""

import re
from collections.abc import Iterator, Sequence

from jobmeter.diagnose.causes import make_event_evidence, make_line_evidence
from jobmeter.diagnose.failures import FailedReplica, list_failed_replicas
from jobmeter.diagnose.incidents import IncidentReport, group_incidents
from jobmeter.diagnose.rule import (
    MOST_LINES,
    Case,
    Evidence,
    Finding,
    Findings,
    Numbers,
    Rule,
    Severity,
    Subject,
    Weight,
    quote_line,
)
from jobmeter.diagnose.wording import format_amount, format_count
from jobmeter.model.grouping import group_pairs
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

_LINE = re.compile(
    r"[Oo]ut of memory: Kill(?:ed)? process|oom-kill:|oom_reaper: reaped|Killed process \d+ \(", re.ASCII
)
_REPORT = re.compile(r"oom[_-]kill event|OOM[ -]?Killed|Exceeded job memory limit|oom-kill event", re.IGNORECASE)
"""Lines of a replica's own output in which a launcher (slurmstepd) reports the kill."""
_OWNER = re.compile(r"task_memcg=\S*?/job_(?P<job>[\w.-]+)", re.ASCII)
_VARYING = re.compile(r"\d+", re.ASCII)
_SIGKILL = 9
_REASON = re.compile(r"OOM.?Kill|OUT_OF_MEMORY|out of memory", re.IGNORECASE)

# These name a device's memory: the rule cuda_oom covers them.
_DEVICE = re.compile(r"CUDA|HIP|NPU|GPU|OutOfMemoryError")


@Rule(
    title="Killed: host out of memory",
    advice="Raise the memory limit or use less memory at a time; see host_mem_leak for memory that only grows.",
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    kernel='"Killed process" OR "Kill process" OR "oom kill" OR "reaped process"',
    of_kills=True,
    metrics=("memory.usage", "memory.limit"),
    counters=("memory.oom.kills",),
    cause=Weight.SPECIFIC,
    running=True,
)
def host_oom_kill(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Read the kernel's counter, its log lines, and the reports of agents and schedulers about the end."""
    counted_kills = dict(_count_kills(case))
    reports = group_pairs(_reports(case, numbers))
    for name in dict.fromkeys((*counted_kills, *reports)):
        happened = group_incidents(reports.get(name, ()), numbers["kill"])
        kills, evidence = counted_kills.get(name, (0, []))
        evidence = [*evidence, *(one.evidence for some in happened for one in some)]
        yield _finding(rule, case, name, max(kills, len(happened)), evidence)
    if not counted_kills and not reports and _is_host(case.job.error):
        yield _finding(rule, case, "", 1, [Evidence(kind="status", text=quote_line(case.job.error), time=case.job.end)])


def _count_kills(case: Case) -> Iterator[tuple[str, tuple[int, list[Evidence]]]]:
    """Yield each replica with the kills that the kernel counted."""
    for signal in case.increases.get("memory.oom.kills", ()):
        grown = signal.value > 0
        if grown.any():
            count = int(signal.value[grown].sum())
            text = f"the kernel counted {format_count(count, 'killed process', 'killed processes')}"
            first = int(signal.time[grown][0])
            yield signal.replica, (count, [signal.cite(text, count, 0.0, "{process}", time=first)])


def _reports(case: Case, numbers: Numbers) -> Iterator[tuple[str, IncidentReport]]:
    """Yield each report of a kill with its replica, "" for the job."""
    for event in case.events:
        if event.source != "state" and _REASON.search(event.reason):
            yield event.replica, IncidentReport.from_event(event, make_event_evidence(event))
    for replica in case.view.replicas:
        if _REASON.search(replica.reason):
            end = case.span.end_ms if replica.end is None else replica.end
            status = Evidence(kind="status", text=quote_line(replica.reason), time=end, replica=replica.name)
            yield replica.name, IncidentReport("status", end, status, (replica.name, replica.attempt))
    for name, line in _lines(case, numbers):
        found = _LINE.search(line.text[:4_000])
        form = _VARYING.sub("", found[0]) if found else ""
        yield name, IncidentReport.from_line(line, make_line_evidence(line), form)


def _lines(case: Case, numbers: Numbers) -> Iterator[tuple[str, LogLine]]:
    """Yield the lines that report a kill, each with its replica ("" for the job).

    A replica's own output counts only if the replica failed: a program can print anything. A kernel line without a job
    counts for the replica that SIGKILL ended on that node at that time.
    """
    failures = list_failed_replicas(case, numbers)
    failed = {failure.subject.name if failure.subject.kind == "replica" else "" for failure in failures}
    for line in case.lines:
        text = line.text[:4_000]
        if (line.replica in failed or "" in failed) and (_LINE.search(text) or _REPORT.search(text)):
            yield line.replica, line
    killed = [failure for failure in failures if failure.signal == _SIGKILL]
    for line in case.kernel:
        if not _LINE.search(line.text[:4_000]):
            continue
        if line.job or line.replica:
            yield line.replica, line
        else:
            yield from ((failure.subject.name, line) for failure in _find_killed(line, killed, case, numbers))


def _find_killed(line: LogLine, killed: Sequence[FailedReplica], case: Case, numbers: Numbers) -> list[FailedReplica]:
    owner = _OWNER.search(line.text[:4_000])
    if owner and owner["job"] != case.job.id:
        return []
    time = line.time_ns // NS_PER_MS
    near = [failure for failure in killed if failure.node == line.node and abs(failure.end - time) <= numbers["kill"]]
    return [failure for failure in near if failure.subject.kind == "replica"]


def _is_host(error: str) -> bool:
    """True if an error is about the host's memory, not a device's."""
    return bool(_REASON.search(error)) and ("kill" in error.lower() or not _DEVICE.search(error))


def _finding(rule: Rule, case: Case, replica: str, kills: int, evidence: list[Evidence]) -> Finding:
    used, limit = (
        next((one for one in case.means.get(metric, ()) if one.replica == replica and len(one)), None)
        for metric in rule.metrics
    )
    if used is not None:
        most, allowed = float(used.value.max()), None if limit is None else float(limit.value[-1])
        of = "" if allowed is None else f" of {format_amount(allowed, 'By')} allowed"
        text = f"its highest measured memory was {format_amount(most, 'By')}{of}"
        evidence = [*evidence, used.cite(text, most, allowed, "By")]
    times = [one.time for one in evidence if one.time is not None]
    span = min(times, default=case.span.end_ms), max(times, default=case.span.end_ms)
    subject = Subject("replica", replica) if replica else case.subject
    who = f"{case.name_subject(subject)}: " if replica else ""
    sentence = f"{who}memory ran out, and the kernel killed processes"
    head = Evidence(
        kind="status", text=f"{format_count(kills, 'process was', 'processes were')} killed", value=float(kills)
    )
    return rule.report(subject, Severity.CRITICAL, span, [head, *evidence][:MOST_LINES], 0.97, sentence=sentence)
