"""Processes of a node are in uninterruptible sleep for a long time."""

import numpy as np

from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.wording import format_length


@Rule(
    title="Processes blocked in the kernel",
    advice="A disk or a network mount does not answer: see /proc/PID/stack and the kernel's log.",
    source="https://github.com/facebookresearch/gcm",
    nodes=("node.processes.blocked",),
)
def d_state(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find nodes on which processes are blocked without a pause."""
    for signal in case.select_node_signals("node.processes.blocked", numbers):
        longest = case.find_stretch(signal, signal.value >= numbers["processes"], numbers)
        if longest is not None:
            least = float(np.quantile(signal.select_values(longest), 1 - numbers["steady"]))
            text = f"{least:.0f} or more of its processes have been blocked for {format_length(longest.length)}"
            evidence = signal.cite(text, least, numbers["processes"], "{process}", time=longest.start)
            subject = Subject("node", signal.node)
            yield rule.report(subject, Severity.WARNING, longest.span, [evidence], 0.8)
