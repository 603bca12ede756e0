"""A rank ended while the others continued."""

from collections.abc import Mapping, Sequence

from jobmeter.diagnose.causes import describe_end, make_root_finding
from jobmeter.diagnose.failures import FailedReplica, list_failed_replicas
from jobmeter.diagnose.rule import Case, Finding, Findings, Numbers, Rule, Severity, Subject, Weight
from jobmeter.diagnose.signal import make_metric_evidence
from jobmeter.diagnose.wording import format_length
from jobmeter.model.job import JobState, Replica
from jobmeter.query.stretches import GAP_INTERVALS


@Rule(
    title="Rank lost",
    sees="One rank has no processes left, while other ranks still run.",
    advice="Check the node of that rank; errors of the other ranks are consequences. "
    "jobmeter diagnose JOB --stacks shows where they wait.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    metrics=("cpu.usage", "memory.usage", "gpu.utilization"),
    cause=Weight.SIGNAL,
    running=True,
)
def rank_lost(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find ranks that a signal ended before the others, and ranks whose samples stop while others have samples."""
    last = {replica.name: replica for replica in sorted(case.view.replicas, key=lambda one: one.attempt)}
    if case.job.state is JobState.SUCCEEDED or len(last) < 2:
        return
    failures = list_failed_replicas(case, numbers)
    if failures and failures[0].signal is not None and not _is_common_stop(failures, len(last), numbers):
        yield make_root_finding(rule, failures[0], [describe_end(failures[0])], Severity.WARNING, 0.85)
    yield from _find_vanished(rule, case, last, numbers)


def _is_common_stop(failures: Sequence[FailedReplica], ranks: int, numbers: Numbers) -> bool:
    """True if the first end is part of a stop of the whole job: one signal ended most ranks at about one time.

    A launcher ends the remaining ranks by another signal than the signal of the lost rank.
    """
    first, *others = failures
    if not others:
        return False
    together = [one for one in others if one.signal == first.signal and one.end - first.end <= numbers["stop"]]
    return 2 * len(together) >= ranks - 1


def _find_vanished(rule: Rule, case: Case, last: Mapping[str, Replica], numbers: Numbers) -> list[Finding]:
    """Find ranks whose samples stopped without a recorded end at that time."""
    seen, interval = _find_newest_samples(case)
    names = set(last) if rule.name in case.open_rules else set(seen)
    ends = {name: seen.get(name, case.span.start_ms) for name in sorted(names)}
    if len(ends) < 2:
        return []
    latest = max(ends.values())
    slack = max(numbers["vanished"], 2 * GAP_INTERVALS * max(interval, case.step_ms))
    early = {name: end for name, end in ends.items() if latest - end > slack}
    gone = {name: end for name, end in early.items() if not _has_recorded_end(last.get(name), end + slack)}
    if len(gone) > len(ends) / 2:
        return []
    return [_make_lost_finding(rule, name, end, latest) for name, end in gone.items()]


def _find_newest_samples(case: Case) -> tuple[dict[str, int], int]:
    """Return the end of each replica's last sample of any metric, and their longest usual interval, in ms."""
    seen: dict[str, int] = {}
    interval = 0
    for metric in rank_lost.metrics:
        for signal in case.means.get(metric, ()):
            if len(signal) > 3 and signal.replica:
                seen[signal.replica] = max(seen.get(signal.replica, 0), int(signal.time[-1]))
                interval = max(interval, signal.interval)
    return seen, interval


def _has_recorded_end(replica: Replica | None, latest: float) -> bool:
    """True if the replica's end was observed: its exit status is known, or it ended at its last sample."""
    if replica is None:
        return False
    return replica.exit_code is not None or (replica.end is not None and replica.end <= latest)


def _make_lost_finding(rule: Rule, replica: str, since: int, last: int) -> Finding:
    text = f"{replica} was last measured {format_length(last - since)} before the others; its end is not recorded"
    evidence = make_metric_evidence("cpu.usage", text, (last - since) / 1000, None, "s", time=since, replica=replica)
    return rule.report(Subject("replica", replica), Severity.CRITICAL, (since, last), [evidence], 0.8)
