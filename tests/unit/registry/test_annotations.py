"""Tests of tags and notes of jobs in the registry."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.fakes import NOW

from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.annotation import MOST_NOTES, MOST_TAGS, JobNote, JobTag
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.open import open_registry


def tag(text: str) -> JobTag:
    return JobTag(tag=text, author="lin", by="admin", created=NOW)


def note(name: str, created: int = NOW, time: int | None = None) -> JobNote:
    return JobNote(id=name, text=f"text of {name}", time=time, author="lin", by="admin", created=created)


@pytest.fixture
def filled(registry):
    registry.record("p", Records(jobs=[JobRecord(job_id="a"), JobRecord(job_id="b")]), NOW)
    registry.record("q", Records(jobs=[JobRecord(job_id="a")]), NOW)
    return registry


def found(registry, operator, *tags):
    page = registry.list_jobs(JobFilter(conditions=(Condition("tag", operator, tags),)), NOW)
    assert page.total == len(page.jobs)
    return {(job.project, job.id) for job in page.jobs}


def test_tags_are_added_once_removed_and_sorted(filled):
    table = filled.annotations
    assert table.change_tags("p", "a", [tag("x"), tag("b")], []).tags == [tag("b"), tag("x")]
    again = JobTag(tag="x", author="somebody else", by="other", created=NOW + 1)
    assert table.change_tags("p", "a", [again], ["b", "none"]).tags == [tag("x")]
    assert table.read_annotations("p", "b").tags == []
    assert table.read_tags([("p", "a"), ("q", "a"), ("p", "b")]) == {("p", "a"): ["x"]}


def test_jobs_are_found_by_their_tags(filled):
    filled.annotations.change_tags("p", "a", [tag("x"), tag("y")], [])
    filled.annotations.change_tags("q", "a", [tag("x")], [])
    assert found(filled, Operator.IN, "x") == {("p", "a"), ("q", "a")}
    assert found(filled, Operator.IN, "y", "none") == {("p", "a")}
    assert found(filled, Operator.IN, "X") == set()
    assert found(filled, Operator.NOT_IN, "y") == {("p", "b"), ("q", "a")}


def test_notes_are_listed_by_their_writing_and_deleted(filled):
    table = filled.annotations
    table.add_note("p", "a", note("late", NOW + 1, time=NOW - 5))
    table.add_note("p", "a", note("early"))
    assert table.read_annotations("p", "a").notes == [note("early"), note("late", NOW + 1, time=NOW - 5)]
    assert not table.delete_note("p", "b", "early")
    assert table.delete_note("p", "a", "early")
    assert [one.id for one in table.read_annotations("p", "a").notes] == ["late"]


def test_a_job_has_no_more_than_the_limits_however_many_write(filled):
    table = filled.annotations
    with pytest.raises(LimitExceededError):
        table.change_tags("p", "a", [tag(f"t{at}") for at in range(MOST_TAGS + 1)], [])
    assert table.read_annotations("p", "a").tags == []
    table.change_tags("p", "a", [tag(f"t{at}") for at in range(MOST_TAGS)], [])
    assert len(table.change_tags("p", "a", [tag("new")], ["t0"]).tags) == MOST_TAGS

    def write(at: int) -> bool:
        try:
            table.add_note("p", "a", note(f"n{at}"))
        except LimitExceededError:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        written = list(threads.map(write, range(MOST_NOTES + 8)))
    assert written.count(True) == MOST_NOTES == len(table.read_annotations("p", "a").notes)


def test_tags_and_notes_are_deleted_with_their_job(filled):
    for project in ("p", "q"):
        filled.annotations.change_tags(project, "a", [tag("x")], [])
        filled.annotations.add_note(project, "a", note("n"))
    assert filled.delete_job("p", "a")
    filled.record("p", Records(jobs=[JobRecord(job_id="a")]), NOW)
    assert not filled.annotations.read_annotations("p", "a").tags
    assert not filled.annotations.read_annotations("p", "a").notes
    assert len(filled.annotations.read_annotations("q", "a").notes) == 1


def test_a_job_that_another_server_deleted_is_not_found(filled):
    assert filled.delete_job("p", "a")
    with pytest.raises(NotFoundError):
        filled.annotations.change_tags("p", "a", [tag("x")], [])
    with pytest.raises(NotFoundError):
        filled.annotations.add_note("p", "a", note("n"))


def test_a_backup_contains_tags_and_notes(filled, tmp_path):
    filled.annotations.change_tags("p", "a", [tag("x")], [])
    filled.annotations.add_note("p", "a", note("n", time=NOW))
    filled.backup(tmp_path / "copy")
    other = open_registry(f"sqlite:///{tmp_path / 'other.db'}", Retention())
    try:
        other.restore(tmp_path / "copy")
        assert other.annotations.read_annotations("p", "a") == filled.annotations.read_annotations("p", "a")
        assert found(other, Operator.IN, "x") == {("p", "a")}
    finally:
        other.close()
