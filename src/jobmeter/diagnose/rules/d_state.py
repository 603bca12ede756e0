"""Processes of a node wait for a device and cannot be ended."""

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Rule, measured
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Finding, Severity, Subject
from jobmeter.query.stretches import sustained


def find(case: Case, numbers: Numbers) -> list[Finding]:
    """Blocked processes without a pause."""
    found = []
    for signal in case.of_nodes("node.processes.blocked", numbers):
        stretches = sustained(signal.time, signal.value >= numbers["processes"], numbers["hold"])
        if not stretches:
            continue
        longest = max(stretches, key=lambda stretch: stretch.length)
        least = float(signal.value[longest.first : longest.last + 1].min())
        text = f"{least:.0f} or more processes of {signal.node} were blocked for {longest.length / 60000:.1f} min"
        evidence = measured(signal.metric, text, least, numbers["processes"], "{process}", time=longest.start)
        subject = Subject("node", signal.node)
        found.append(RULE.finding(subject, Severity.WARNING, (longest.start, longest.end), [evidence], 0.8))
    return found


RULE = Rule(
    name="d_state",
    sees="Processes of a node are in uninterruptible sleep for long.",
    advice="A disk or a network mount does not answer: look at /proc/PID/stack and at the kernel's log.",
    source="https://github.com/facebookresearch/gcm",
    find=find,
    nodes=("node.processes.blocked",),
)
