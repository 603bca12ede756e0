"""The kernel killed a process because memory ran out."""

import re
from collections.abc import Iterator, Sequence

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import event_evidence, line_evidence
from jobmeter.diagnose.lives import Death, deaths
from jobmeter.diagnose.rule import MOST_LINES, Findings, Rule, Weight, quoted
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Evidence, Finding, Severity, Subject
from jobmeter.model.log import LogLine
from jobmeter.model.time import NS_PER_MS

_LINE = re.compile(
    r"[Oo]ut of memory: Kill(?:ed)? process|oom-kill:|oom_reaper: reaped|Killed process \d+ \(", re.ASCII
)
_REPORT = re.compile(r"oom[_-]kill event|OOM[ -]?Killed|Exceeded job memory limit|oom-kill event", re.IGNORECASE)
"""Lines of a replica's own output in which a launcher (slurmstepd) reports the kill."""
_OWNER = re.compile(r"task_memcg=\S*?/job_(?P<job>[\w.-]+)", re.ASCII)
_SIGKILL = 9
_REASON = re.compile(r"OOM.?Kill|OUT_OF_MEMORY|out of memory", re.IGNORECASE)

# These name a device's memory: the rule cuda_oom covers them.
_DEVICE = re.compile(r"CUDA|HIP|NPU|GPU|OutOfMemoryError")


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """The kernel's counter, its log lines, and what an agent or a scheduler reports of the end."""
    for name, evidence in _by_replica(case, numbers).items():
        yield _finding(rule, case, name, evidence)


def _by_replica(case: Case, numbers: Numbers) -> dict[str, list[Evidence]]:
    evidence: dict[str, list[Evidence]] = {}
    for signal in case.increases.get("memory.oom.kills", ()):
        grown = signal.value > 0
        if grown.any():
            count = float(signal.value[grown].sum())
            text = f"{count:.0f} processes of {signal.replica} were killed because memory ran out"
            first = int(signal.time[grown][0])
            evidence.setdefault(signal.replica, []).append(signal.evidence(text, count, 0.0, "{process}", time=first))
    for event in case.events:
        if event.source != "state" and _REASON.search(event.reason):
            evidence.setdefault(event.replica, []).append(event_evidence(event))
    for replica in case.view.replicas:
        if _REASON.search(replica.reason):
            from_status = Evidence(kind="status", text=quoted(replica.reason), time=replica.end, replica=replica.name)
            evidence.setdefault(replica.name, []).append(from_status)
    for name, line in _lines(case, numbers):
        evidence.setdefault(name, []).append(line_evidence(line))
    if not evidence and _is_host(case.job.error):
        evidence[""] = [Evidence(kind="status", text=quoted(case.job.error), time=case.job.end)]
    return evidence


def _lines(case: Case, numbers: Numbers) -> Iterator[tuple[str, LogLine]]:
    """The lines that report a kill, each with its replica ("" for the job).

    A replica's own output counts only where the replica failed: a program can print anything. A line of the kernel that
    names no job counts for the replica that SIGKILL ended on that node at that time.
    """
    dead = deaths(case, numbers)
    failed = {death.subject.name if death.subject.kind == "replica" else "" for death in dead}
    for line in case.lines:
        text = line.text[:4_000]
        if (line.replica in failed or "" in failed) and (_LINE.search(text) or _REPORT.search(text)):
            yield line.replica, line
    killed = [death for death in dead if death.signal == _SIGKILL]
    for line in case.kernel:
        if not _LINE.search(line.text[:4_000]):
            continue
        if line.job or line.replica:
            yield line.replica, line
        else:
            yield from ((death.subject.name, line) for death in _killed_by(line, killed, case, numbers))


def _killed_by(line: LogLine, killed: Sequence[Death], case: Case, numbers: Numbers) -> list[Death]:
    owner = _OWNER.search(line.text[:4_000])
    if owner and owner["job"] != case.job.id:
        return []
    time = line.time_ns // NS_PER_MS
    near = [death for death in killed if death.node == line.node and abs(death.end - time) <= numbers["kill"]]
    return [death for death in near if death.subject.kind == "replica"]


def _is_host(error: str) -> bool:
    """True where an error is about the host's memory, not a device's."""
    return bool(_REASON.search(error)) and ("kill" in error.lower() or not _DEVICE.search(error))


def _finding(rule: Rule, case: Case, replica: str, evidence: list[Evidence]) -> Finding:
    used, limit = (
        next((one for one in case.means.get(metric, ()) if one.replica == replica and len(one)), None)
        for metric in rule.metrics
    )
    if used is not None:
        most, allowed = float(used.value.max()), None if limit is None else float(limit.value[-1])
        text = f"{replica} was seen with {most / 2**20:.0f} MiB at most"
        evidence = [*evidence, used.evidence(text, most, allowed, "By")]
    times = [one.time for one in evidence if one.time is not None]
    span = min(times, default=case.span.end_ms), max(times, default=case.span.end_ms)
    subject = Subject("replica", replica) if replica else case.subject
    return rule.finding(subject, Severity.CRITICAL, span, evidence[:MOST_LINES], 0.97)


RULE = Rule(
    name="host_oom_kill",
    sees="The kernel killed a process of the job because memory ran out.",
    advice="Raise the memory limit or use less memory at a time; see host_mem_leak for memory that only grows.",
    source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    find=find,
    kernel='"Killed process" OR "Kill process" OR "oom kill" OR "reaped process"',
    of_kills=True,
    metrics=("memory.usage", "memory.limit"),
    counters=("memory.oom.kills",),
    cause=Weight.SPECIFIC,
    running=True,
)
