"""Tests of the list of findings of all jobs."""

import pytest
from tests.unit.registry.test_finding_summaries import NOW, a_finding, found, registry, store

from jobmeter.diagnose.finding_events import make_end_event, make_opening
from jobmeter.model.finding import Severity
from jobmeter.registry.finding_list import EventsOfFindings

__all__ = ["registry"]


def names(registry, **given):
    return [(one.job, one.rule) for one in registry.list_findings_by_time(EventsOfFindings(**{"count": 100, **given}))]


def test_the_newest_come_first_and_each_once_with_its_last_report(registry):
    store(
        registry,
        found("a", "xid", Severity.CRITICAL, 1),
        found("b", "nan_loss", Severity.WARNING, 5),
        *(found("a", "rank_lost", Severity.INFO, at, message=f"rank_lost (job a): {at} s") for at in (2, 9)),
    )
    listed = registry.list_findings_by_time(EventsOfFindings(count=100))
    assert [(one.job, one.rule, one.time - NOW) for one in listed] == [
        ("a", "rank_lost", 9),
        ("b", "nan_loss", 5),
        ("a", "xid", 1),
    ]
    assert (listed[0].sentence, listed[0].severity, listed[0].open) == ("9 s", Severity.INFO, False)
    assert names(registry, count=2) == [("a", "rank_lost"), ("b", "nan_loss")]


def test_projects_rules_severities_and_times_narrow_the_list(registry):
    store(registry, found("a", "xid", Severity.CRITICAL, 1), found("a", "nan_loss", Severity.WARNING, 5))
    store(registry, found("a", "xid", Severity.WARNING, 3), project="q")
    assert names(registry, projects=frozenset({"q"})) == [("a", "xid")]
    assert names(registry, projects=frozenset()) == []
    assert names(registry, values=("/nan_loss",)) == [("a", "nan_loss")]
    assert names(registry, values=("critical/",)) == [("a", "xid")]
    assert names(registry, start=NOW + 3, end=NOW + 5) == [("a", "xid")]


@pytest.mark.parametrize("ended", [False, True])
def test_a_finding_is_open_until_an_event_ends_it(registry, ended):
    one = a_finding("straggler", Severity.WARNING)
    ends = [make_end_event("p", "j", ("straggler", one.subject), NOW + 60_000, NOW)] if ended else []
    store(registry, make_opening("p", "j", one, NOW), *ends)
    store(registry, make_opening("p", "other", one, NOW))
    listed = registry.list_findings_by_time(EventsOfFindings(count=9, jobs=(("p", "j"),)))
    assert [(found.job, found.start) for found in listed] == ([] if ended else [("j", NOW - 90_000)])
    (mine,) = [one for one in registry.list_findings_by_time(EventsOfFindings(count=9)) if one.job == "j"]
    assert mine.open is not ended
