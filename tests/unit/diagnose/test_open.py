"""Tests of findings of running jobs: opening, holding and closing against a plain model, and their events."""

from typing import Any

import numpy as np
from benchmarks.faults.generated import FAULTS
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.fakes import NOW

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.finding_events import add_reported, make_end_event, make_opening, read_reported_findings
from jobmeter.diagnose.open import MOST_OPEN, Open, OpenFindings
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load
from jobmeter.model.event import Event, EventType
from jobmeter.model.finding import Evidence, Finding, FindingRole, Severity, Subject
from jobmeter.model.time import MINUTE, SECOND

THRESHOLDS = load()
HOLD = 5 * MINUTE
EVERY = 15 * SECOND


def finding(rule="hang_hw", name="j", start=NOW - MINUTE, end=NOW, severity=Severity.CRITICAL, kind="job"):
    evidence = [Evidence(kind="status", text=f"what {rule} saw")]
    return Finding(
        rule=rule,
        role=FindingRole.ROOT,
        severity=severity,
        confidence=0.9,
        subject=Subject(kind, name),
        start=start,
        end=end,
        evidence=evidence,
        advice="",
        source="",
        sentence=evidence[0].text,
    )


def event(record):
    return Event(**{name: getattr(record, name) for name in record.__struct_fields__})


looks = st.lists(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3), max_size=80)


@given(looks)
@example([["a"], *[[]] * 30, ["a"]])
def test_each_time_that_it_holds_is_reported_once_when_it_opens_and_once_when_it_closes(course):
    findings = OpenFindings()
    events: list[Any] = []
    holding: dict[str, int] = {}
    for at, names in enumerate(course):
        now = NOW + at * EVERY
        found = [finding(name, end=now) for name in names]
        before = {name for name, last in holding.items() if now - last < HOLD}
        change = findings.update(found, now, now, HOLD)
        # The model: a finding is open if it was found within the hold time.
        holding.update(dict.fromkeys(names, now))
        after = {name for name, last in holding.items() if now - last < HOLD}
        was = _open(events)
        assert {one.rule for one in change.opened} == after - was
        assert {key[0] for key, _ in change.closed} == was - after
        assert before <= was | after
        events += [make_opening("p", "j", one, now) for one in change.opened]
        events += [make_end_event("p", "j", key, now, since) for key, since in change.closed]
        assert findings.rules == after == _open(events)
    reported = read_reported_findings(map(event, events))
    assert sum(one.ended is None for one in reported) == len(findings)
    assert sum(1 + (one.ended is not None) for one in reported) == len(events)
    assert len({event(one).id for one in events}) == len(events)


def _open(events):
    found: set[str] = set()
    for one in events:
        name = one.message.partition(" ")[0]
        (found.add if one.reason == "Finding" else found.discard)(name)
    return found


@given(looks, st.integers(0, 79))
def test_a_server_that_begins_anew_goes_on_with_what_the_events_say(course, cut):
    whole, parts = OpenFindings(), OpenFindings()
    events: list[Any] = []
    for at, names in enumerate(course):
        now = NOW + at * EVERY
        found = [finding(name, end=now) for name in names]
        if at == cut:
            reported = [one for one in read_reported_findings(map(event, events)) if one.ended is None]
            parts = OpenFindings({one.key: Open(one.opened.time, now, one.severity) for one in reported})
        change = parts.update(found, now, now, HOLD)
        events += [make_opening("p", "j", one, now) for one in change.opened]
        events += [make_end_event("p", "j", key, now, since) for key, since in change.closed]
        opened = {one.rule for one in whole.update(found, now, now, HOLD).opened}
        # It reopens no open finding. An open one may stay open longer, because events omit the time it last held.
        assert {one.rule for one in change.opened} <= opened
        assert parts.rules >= whole.rules
    reported = read_reported_findings(map(event, events))
    assert {one.rule for one in reported if one.ended is None} == parts.rules


def test_information_and_what_ended_long_ago_open_nothing():
    findings = OpenFindings()
    old, small = finding(end=NOW - HOLD), finding("fs_full", severity=Severity.INFO)
    assert findings.update([old, small], NOW, NOW, HOLD).opened == []


def test_what_is_less_bad_than_before_stays_open_until_it_is_over():
    """A filesystem near the threshold must not open and close a finding with each file."""
    findings = OpenFindings()
    assert len(findings.update([finding(severity=Severity.WARNING)], NOW, NOW, HOLD).opened) == 1
    for at in range(1, 10):
        now = NOW + at * HOLD // 2
        change = findings.update([finding(end=now, severity=Severity.INFO)], now, now, HOLD)
        assert (change.opened, change.closed) == ([], [])
    assert len(findings.update([], NOW + 6 * HOLD, NOW + 6 * HOLD, HOLD).closed) == 1


def test_a_rule_that_is_evaluated_while_jobs_run_can_open_a_finding():
    """The evaluation of the rule would otherwise have no effect."""
    for rule in list_rules():
        found = [
            one.severity
            for make in FAULTS[rule.name]
            for one in (examine(make(np.random.default_rng(2)).case(), THRESHOLDS, [rule]) if rule.running else ())
        ]
        assert not rule.running or not FAULTS[rule.name] or set(found) - {Severity.INFO}, rule.name


def test_time_without_samples_closes_nothing():
    findings = OpenFindings()
    findings.update([finding()], NOW, NOW, HOLD)
    assert findings.update([], NOW, NOW + 24 * HOLD, HOLD).closed == []
    assert len(findings.update([], NOW + HOLD, NOW + 24 * HOLD, HOLD).closed) == 1


def test_a_job_has_a_bounded_number_of_open_findings():
    findings = OpenFindings()
    found = [finding(name=f"w-{at}", kind="replica") for at in range(MOST_OPEN + 20)]
    assert len(findings.update(found, NOW, NOW, HOLD).opened) == MOST_OPEN == len(findings)
    assert findings.update(found, NOW, NOW, HOLD).opened == []


def test_the_events_name_the_rule_whom_it_is_about_and_how_long_it_was():
    one = finding("xid", "n1/0000:3b:00", kind="device")
    opened = event(make_opening("p", "j", one, NOW))
    ended = event(make_end_event("p", "j", ("xid", one.subject), NOW + 3 * MINUTE, NOW))
    assert (opened.type, opened.object, opened.level) == (EventType.FINDING, one.subject, "error")
    assert ended.type is EventType.FINDING
    assert ended.message == "xid (device n1/0000:3b:00): it is found no longer, 3 min after it was reported"
    [reported] = read_reported_findings([opened, ended])
    again = reported.build_finding(NOW + 9 * MINUTE)
    assert (again.rule, again.subject, again.severity) == ("xid", one.subject, Severity.CRITICAL)
    assert (again.start, again.end) == (NOW - MINUTE, NOW + 3 * MINUTE)  # from the start of the fault
    assert [part.text for part in again.evidence] == [
        "what xid saw",
        "it is found no longer, 3 min after it was reported",
    ]
    assert again.advice
    assert again.source


def test_a_finding_of_the_rules_replaces_the_event_of_it():
    one = finding()
    reported = read_reported_findings([event(make_opening("p", "j", one, NOW))])
    assert add_reported([one], reported, NOW, running=True) == [one]
    assert len(add_reported([], reported, NOW, running=True)) == 1
    assert add_reported([], reported, NOW, running=False) == []


def test_events_of_others_and_of_jobs_that_ended_report_nothing_that_is_open():
    strange = Event(time=NOW, reason="Finding", message="Not a rule at all", subject="job j")
    ended = Event(time=NOW, reason="Finding", message="killed (replica w-0): by a signal")
    alone = event(make_end_event("p", "j", ("xid", Subject("job", "j")), NOW, NOW))
    assert read_reported_findings([strange, ended, alone]) == []


@given(st.lists(st.sampled_from([Severity.WARNING, Severity.CRITICAL]), min_size=1, max_size=20), st.integers(0, 19))
def test_one_that_gets_worse_is_reported_once_more(course, cut):
    """At most two reports exist even after a server restart, and the worst one counts."""
    findings = OpenFindings()
    events: list[Event] = []
    for at, severity in enumerate(course):
        now = NOW + at * EVERY
        if at == cut:
            reported = read_reported_findings(events)
            findings = OpenFindings({one.key: Open(one.opened.time, now, one.severity) for one in reported})
        change = findings.update([finding(severity=severity, end=now)], now, now, HOLD)
        events += [event(make_opening("p", "j", one, now)) for one in change.opened]
        [one] = read_reported_findings(events)
        assert one.severity is max(course[: at + 1], key=list(Severity).index)
        assert one.opened.time == NOW
    assert len(events) == 1 + (course[0] is Severity.WARNING and Severity.CRITICAL in course)


def test_an_open_finding_begins_when_its_report_says():
    reported = read_reported_findings([event(make_opening("p", "j", finding(), NOW))])
    later = finding(start=NOW - 3 * MINUTE, end=NOW + MINUTE)
    [one] = add_reported([later], reported, NOW + MINUTE, running=True)
    assert one.start == NOW - MINUTE
    assert add_reported([later], reported, NOW + MINUTE, running=False) == [later]
