"""Tests of filtering jobs by their stored findings, against plain Python, with paging."""

from itertools import product

import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import LEVEL_OF
from jobmeter.model.finding import Severity
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.record import EventRecord, JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.database import Database
from jobmeter.registry.finding_filter import make_values

NOW = 1_790_000_000_000
RULES = ("gpu_idle", "gpu_idle_late", "straggler")
FOUND = {
    "idle": [("gpu_idle", Severity.WARNING)],
    "late": [("gpu_idle_late", Severity.CRITICAL)],
    "both": [("gpu_idle", Severity.INFO), ("straggler", Severity.CRITICAL)],
    "none": [],
    "noise": [],
}


@pytest.fixture
def filled(url: str):
    registry = Registry(Database(url), Retention())
    for project in ("p", "q"):
        jobs = [JobRecord(job_id=name, created=NOW - at) for at, name in enumerate(FOUND)]
        events = [
            EventRecord(
                time=NOW, job=name, reason="Finding", level=LEVEL_OF[severity], message=f"{rule} (job {name}): so"
            )
            for name, found in (FOUND if project == "p" else {}).items()
            for rule, severity in found
        ]
        other = EventRecord(time=NOW, job="noise", reason="Finished", message="gpu_idle (job noise): no finding")
        registry.record(project, Records(jobs=jobs, events=[*events, other]), NOW)
    yield registry
    registry.close()


def matching(registry, *given, operator=Operator.IN, **paging):
    question = JobFilter(conditions=(Condition("finding", operator, given),), **paging)
    page = registry.list_jobs(question, NOW)
    return [(job.project, job.id) for job in page.jobs], page.total


@pytest.mark.parametrize("severities", [(), (Severity.CRITICAL,), (Severity.INFO, Severity.WARNING)])
@pytest.mark.parametrize("names", [(), ("gpu_idle",), ("gpu_idle", "straggler"), ("none_such",)])
def test_one_finding_has_to_fit_both(filled, severities, names):
    fitting = set(product(names or RULES, severities or Severity))
    expected = {("p", job) for job, found in FOUND.items() if fitting.intersection(found)}
    found, total = matching(filled, *(make_values(severities, names) or ("/",)))
    assert (set(found), total) == (expected, len(expected))


def test_pages_follow_each_other_in_order(filled):
    whole, total = matching(filled, "/")
    assert total == 3
    pages = [matching(filled, "/", limit=1, offset=at) for at in range(3)]
    assert [one for found, _ in pages for one in found] == whole
    assert {total for _, total in pages} == {3}


def test_those_without_any_are_the_others(filled):
    found, total = matching(filled, "/", operator=Operator.NOT_IN)
    assert (len(found), total) == (7, 7)
    assert not {("p", name) for name, rules in FOUND.items() if rules}.intersection(found)


def test_a_severity_that_is_none_is_refused(filled):
    with pytest.raises(InvalidRequestError, match="not one of info, warning, critical"):
        matching(filled, "loud/")
    with pytest.raises(InvalidRequestError, match="compared by its severity and rule"):
        matching(filled, "/", operator=Operator.CONTAINS)


def test_nothing_requested_is_no_condition():
    assert make_values((), ()) == ()
    assert make_values([Severity.CRITICAL], []) == ("critical/",)
    assert make_values([], ["b", "a"]) == ("/a", "/b")
