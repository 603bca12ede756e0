"""Tests of listings, on both databases, against a filter and a sort in plain Python."""

from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, JobFilter, JobState
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.registry.base import Registry
from jobmeter.registry.conditions import SORTS
from jobmeter.registry.open import open_registry
from jobmeter.registry.stored import Observation

NOW = 1_790_000_000_000
EARLY = 1_700_000_000_000
MINUTE = 60_000
NAMES = ("", "Größe", "GRÖSSE", "train_1", "train%1", "Train-1", "a\\b")
PROJECTS = ("default", "p-1", "p-2")
TIMES = tuple(NOW - number * 1000 for number in (0, 1, 7, 7, 400_000, 90_000_000))


def fill(registry: Registry) -> None:
    states = (None, *JobState)
    for number in range(90):
        project = PROJECTS[number % 3]
        job = f"job-{number % 31}"
        if number % 4 != 1:
            record = JobRecord(
                job_id=job,
                name=NAMES[number % len(NAMES)],
                state=states[number % len(states)],
                type=("", "PyTorchJob", "MPIJob")[number % 3 if number % 2 else 0],
                user=f"u{number % 4}",
                resource_group=f"g{number % 2}",
                workspace=f"w{number % 3}",
                created=TIMES[number % 6] if number % 5 else None,
                start=TIMES[number % 4] if number % 3 else None,
                end=NOW if number % 10 == 0 else None,
            )
            registry.record(project, Records(jobs=[record]), EARLY + number % 7)
        if number % 4 < 3:
            last = NOW - (number % 11) * MINUTE
            names = {
                "project": project,
                "job": job,
                "replica": "",
                "attempt": 0,
                "cluster": "",
                "node": "",
                "device": "",
            }
            registry.observe([Observation(**names, first_ms=last - 5000, last_ms=last)], NOW)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('listing') / 'registry.db'}"
    else:
        url = request.getfixturevalue("module_postgresql_url")
    registry = open_registry(url, Retention())
    fill(registry)
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def every(filled: Registry) -> list[Job]:
    return [job for number in range(31) for job in filled.find_job_head(None, f"job-{number}", NOW)]


def created(job: Job) -> int:
    return next(time for time in (job.created, job.start, job.first_sample, EARLY) if time is not None)


def duration(job: Job) -> int:
    assert job.start is not None
    return max(0, (NOW if job.end is None else job.end) - job.start)


def matches(job: Job, question: JobFilter) -> bool:
    text = question.name_contains.casefold()
    return (
        (question.projects is None or job.project in question.projects)
        and (not question.ids or job.id in question.ids)
        and (not question.states or job.state in question.states)
        and (not question.types or job.type in question.types)
        and (not question.users or job.user in question.users)
        and (not question.resource_groups or job.resource_group in question.resource_groups)
        and (not question.workspaces or job.workspace in question.workspaces)
        and (text in job.name.casefold() or text in job.id.casefold())
        and (question.created_from is None or created(job) >= question.created_from)
        and (question.created_to is None or created(job) < question.created_to)
    )


KEYS: dict[str, Callable[[Job], Any]] = {
    "created": created,
    "start": lambda job: -1 if job.start is None else job.start,
    "end": lambda job: -1 if job.end is None else job.end,
    "name": lambda job: job.name.encode(),
    "duration": lambda job: -1 if job.start is None else duration(job),
    "updated": lambda job: -1 if job.updated is None else job.updated,
    "active": lambda job: {JobState.RUNNING: 2, JobState.QUEUED: 1}.get(job.state, 0),
    **{name: attrgetter(name) for name in ("id", "project", "type", "user", "resource_group", "workspace", "state")},
}


def subsets(values: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(values), max_size=3))


questions = st.builds(
    JobFilter,
    projects=st.one_of(st.none(), st.frozensets(st.sampled_from((*PROJECTS, "none")), max_size=3)),
    ids=st.one_of(st.just(()), st.lists(st.sampled_from([f"job-{n}" for n in range(35)]), max_size=9).map(tuple)),
    name_contains=st.sampled_from(("", "größe", "JOB-1", "_1", "%", "\\", "zz")),
    states=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(JobState))),
    types=subsets(("", "PyTorchJob", "MPIJob")),
    users=subsets(("u0", "u1", "u2", "u3")),
    resource_groups=subsets(("g0", "g1")),
    workspaces=subsets(("w0", "w1", "w2", "w9")),
    created_from=st.one_of(st.none(), st.sampled_from(TIMES)),
    created_to=st.one_of(st.none(), st.sampled_from(TIMES)),
    sort=st.sampled_from(SORTS),
    descending=st.booleans(),
    offset=st.integers(0, 40),
    limit=st.integers(0, 50),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=questions)
def test_a_listing_is_a_filter_a_sort_and_a_page(filled: Registry, every: list[Job], question: JobFilter) -> None:
    check(filled, every, question)


def check(registry: Registry, every: list[Job], question: JobFilter) -> None:
    page = registry.list_jobs(question, NOW)
    expected = [job for job in every if matches(job, question)]
    assert page.total == len(expected)
    key = KEYS[question.sort]
    order = sorted((key(job) for job in expected), reverse=question.descending)
    window = slice(question.offset, question.offset + question.limit)
    assert [key(job) for job in page.jobs] == order[window]
    states = Counter(job.state for job in expected)
    assert registry.count_states(question, NOW) == states
    identities = {(job.project, job.id) for job in page.jobs}
    assert len(identities) == len(page.jobs)
    assert identities <= {(job.project, job.id) for job in expected}


@pytest.mark.parametrize("sort", SORTS)
def test_pages_laid_end_to_end_hold_every_job_once(filled: Registry, sort: str) -> None:
    total = filled.list_jobs(JobFilter(limit=0), NOW).total
    found = [
        (job.project, job.id)
        for offset in range(0, total, 7)
        for job in filled.list_jobs(JobFilter(sort=sort, offset=offset, limit=7), NOW).jobs
    ]
    assert len(found) == total == len(set(found))


@pytest.mark.parametrize(
    ("question", "field"),
    [(JobFilter(sort="labels"), "sort"), (JobFilter(offset=-1), "offset"), (JobFilter(limit=-1), "limit")],
)
def test_a_question_that_cannot_be_meant_names_its_field(filled: Registry, question: JobFilter, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        filled.list_jobs(question, NOW)
    assert refused.value.field == field


def test_no_project_means_no_job(filled: Registry) -> None:
    page = filled.list_jobs(JobFilter(projects=frozenset()), NOW)
    assert (page.jobs, page.total) == ([], 0)
