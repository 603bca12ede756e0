"""A rank went away while the others stayed."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import ended, root_finding
from jobmeter.diagnose.lives import deaths
from jobmeter.diagnose.rule import Findings, Rule, Weight
from jobmeter.diagnose.signal import Signal, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject
from jobmeter.model.job import JobState
from jobmeter.query.stretches import GAP_INTERVALS


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """A rank ended by a signal before the others, or one whose samples stop without a recorded end."""
    if case.job.state is JobState.SUCCEEDED or len({replica.name for replica in case.view.replicas}) < 2:
        return
    dead = deaths(case, numbers)
    for death in dead[:1]:
        later = [other for other in dead[1:] if other.end > death.end]
        alive = len({replica.name for replica in case.view.replicas}) - len(dead)
        if death.signal is not None and (later or alive > 0):
            yield root_finding(rule, death, [ended(death)], Severity.WARNING, 0.85)
    yield from _vanished(rule, case)


def _vanished(rule: Rule, case: Case) -> list[Finding]:
    signals = [signal for signal in case.means.get("cpu.usage", ()) if len(signal) > 3]
    ends = {replica.name for replica in case.view.replicas if replica.end is not None or replica.exit_code is not None}
    if rule.name in case.open_rules:
        return _still_gone(rule, case, signals, ends)
    if len(signals) < 2:
        return []
    last = max(int(signal.time[-1]) for signal in signals)
    gone = [
        signal
        for signal in signals
        if signal.replica not in ends
        and last - int(signal.time[-1]) > 2 * GAP_INTERVALS * max(signal.interval, case.step_ms)
    ]
    if not gone or len(gone) > len(signals) / 2:
        return []
    return [_gone(rule, signal.replica, int(signal.time[-1]), last) for signal in gone]


def _gone(rule: Rule, replica: str, since: int, last: int) -> Finding:
    text = f"{replica} was last seen {(last - since) / 60_000:.1f} min before the others, its end is not known"
    evidence = measured("cpu.usage", text, (last - since) / 1000, None, "s", time=since, replica=replica)
    return rule.finding(Subject("replica", replica), Severity.CRITICAL, (since, last), [evidence], 0.8)


def _still_gone(rule: Rule, case: Case, signals: list[Signal], ends: set[str]) -> list[Finding]:
    """In the last part of the job's life, a rank that vanished long ago has no samples, or its last ones."""
    last = max((int(signal.time[-1]) for signal in signals), default=case.span.start_ms)
    last_sample = {signal.replica: int(signal.time[-1]) for signal in signals}
    step = max((signal.interval for signal in signals), default=case.step_ms)
    names = {replica.name for replica in case.view.replicas} - ends
    limit = last - 2 * GAP_INTERVALS * max(step, case.step_ms)
    gone = sorted(name for name in names if last_sample.get(name, case.span.start_ms) < limit)
    if len(gone) > len(names) / 2:
        return []
    return [_gone(rule, name, last_sample.get(name, case.span.start_ms), last) for name in gone]


RULE = Rule(
    name="rank_lost",
    sees="A rank's processes went away while those of other ranks stayed.",
    advice="Look at the node of that rank; what the others report is a consequence.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    find=find,
    metrics=("cpu.usage",),
    cause=Weight.SIGNAL,
    running=True,
)
