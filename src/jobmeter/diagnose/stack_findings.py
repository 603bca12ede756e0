"""Explains findings about stalled jobs with the newest evidence about their ranks."""

from collections.abc import Sequence

from msgspec.structs import replace

from jobmeter.model.event import STACK_EVIDENCE, Event, Level
from jobmeter.model.finding import Evidence, Finding
from jobmeter.model.stacks import STACK_RULES
from jobmeter.model.time import MINUTE

_LATER_MS = 2 * MINUTE
"""Longest time from the end of a finding to the collection of its evidence."""


def add_stacks(findings: Sequence[Finding], events: Sequence[Event]) -> list[Finding]:
    """Add to findings of stalled jobs the rank that the others wait for, if it is known.

    The sentence of the newest evidence since the finding began replaces the finding's sentence, which becomes evidence.
    """
    compared = [event for event in events if event.reason == STACK_EVIDENCE]
    return [_explain_finding(one, compared) if one.rule in STACK_RULES else one for one in findings]


def _explain_finding(finding: Finding, events: Sequence[Event]) -> Finding:
    wholes = [one for one in events if not one.replica and finding.start <= one.time <= finding.end + _LATER_MS]
    if not wholes:
        return finding
    newest = wholes[-1]
    named = [one for one in events if one.replica and one.time == newest.time]
    evidence = [
        Evidence(kind="event", text=one.message, time=one.time, replica=one.replica) for one in (newest, *named)
    ]
    if newest.level is not Level.WARNING:
        return replace(finding, evidence=[*finding.evidence, evidence[0]])
    own = Evidence(kind="status", text=finding.sentence, time=finding.start)
    return replace(finding, sentence=newest.message, evidence=[own, *evidence[1:], *finding.evidence])
