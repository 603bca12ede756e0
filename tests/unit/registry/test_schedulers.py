"""Tests of the reports of schedulers in the database."""

import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import Records, SchedulerRecord
from jobmeter.model.time import DAY, MINUTE
from jobmeter.registry.base import Registry
from jobmeter.registry.schedulers import FORGOTTEN_MS, MOST_OF_PROJECT

NOW = 2_000 * DAY


def report(cluster: str = "c", time: int | str = NOW, problem: str = "") -> SchedulerRecord:
    return SchedulerRecord(kind="slurm", cluster=cluster, time=time, interval_ms=10_000, problem=problem)


def put(registry: Registry, *reports: SchedulerRecord, project: str = "p", now_ms: int = NOW) -> None:
    registry.record(project, Records(schedulers=list(reports)), now_ms)


def test_the_newest_report_of_a_request_or_of_two_counts(registry: Registry) -> None:
    put(registry, report(problem="first"), report(problem="second"), report(time=NOW - 1, problem="late"))
    assert [one.problem for one in registry.schedulers.list_states(NOW)] == ["second"]
    put(registry, report(time=NOW - MINUTE, problem="older"))
    assert [one.problem for one in registry.schedulers.list_states(NOW)] == ["second"]


def test_schedulers_are_listed_by_project_cluster_and_kind(registry: Registry) -> None:
    put(registry, report("b"), report("a"), project="q")
    put(registry, report("c"))
    found = [(one.project, one.cluster) for one in registry.schedulers.list_states(NOW)]
    assert found == [("p", "c"), ("q", "a"), ("q", "b")]


def test_the_least_recent_reports_of_a_project_are_dropped(registry: Registry) -> None:
    reports = [report(f"c{number:03}", NOW + number) for number in range(MOST_OF_PROJECT + 2)]
    put(registry, *reports, now_ms=NOW + DAY)
    found = [one.cluster for one in registry.schedulers.list_states(NOW)]
    assert found == [one.cluster for one in reports[2:]]


def test_a_report_is_forgotten_after_a_week(registry: Registry) -> None:
    put(registry, report())
    assert len(registry.schedulers.list_states(NOW + FORGOTTEN_MS - 1)) == 1
    assert registry.schedulers.list_states(NOW + FORGOTTEN_MS) == []


def test_a_request_with_an_invalid_report_stores_no_report(registry: Registry) -> None:
    with pytest.raises(InvalidRequestError):
        put(registry, report("a"), report("b", "yesterday"))
    assert registry.schedulers.list_states(NOW) == []
