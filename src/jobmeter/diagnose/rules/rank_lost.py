"""A rank went away while the others stayed."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.causes import THRESHOLDS, ended, told
from jobmeter.diagnose.lives import deaths
from jobmeter.diagnose.rule import Rule, Weight, measured
from jobmeter.diagnose.signal import GAP_INTERVALS
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject
from jobmeter.model.job import JobState


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """A rank ended by a signal before the others, or one whose samples stop with no word of its end."""
    if case.job.state is JobState.SUCCEEDED or len({replica.name for replica in case.view.replicas}) < 2:
        return []
    found = []
    dead = deaths(case, numbers)
    for death in dead[:1]:
        later = [other for other in dead[1:] if other.end > death.end]
        alive = len({replica.name for replica in case.view.replicas}) - len(dead)
        if death.signal is not None and (later or alive > 0):
            text = ended(death)
            found.append(told(RULE, death, [text], Severity.WARNING, 0.85))
    return found + _vanished(case)


def _vanished(case: Case) -> list[Finding]:
    signals = [signal for signal in case.means.get("cpu.usage", ()) if len(signal) > 3]
    ends = {replica.name for replica in case.view.replicas if replica.end is not None or replica.exit_code is not None}
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
    found = []
    for signal in gone:
        seen = int(signal.time[-1])
        text = f"{signal.replica} was last seen {(last - seen) / 60000:.1f} min before the others, its end is not known"
        evidence = measured(signal.metric, text, (last - seen) / 1000, None, "s", time=seen, replica=signal.replica)
        subject = Subject("replica", signal.replica)
        found.append(RULE.finding(subject, Severity.CRITICAL, (seen, last), [evidence], 0.8))
    return found


RULE = Rule(
    name="rank_lost",
    sees="A rank's processes went away while those of other ranks stayed.",
    advice="Look at the node of that rank; what the others report is a consequence.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    find=find,
    metrics=("cpu.usage",),
    cause=Weight.GENERIC,
    thresholds=THRESHOLDS,
)
