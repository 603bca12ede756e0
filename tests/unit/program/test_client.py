"""Tests of ``Client.jobs`` with a server that gets jobs between two pages, and of the asynchronous client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.client.api import Api
from jobmeter.model.job_answers import JobBody, JobList
from jobmeter.program import client as module
from jobmeter.program.asynchronous import AsyncClient, AsyncJob
from jobmeter.program.client import Client
from jobmeter.program.job import JobHandle


class Server(Api):
    """List of jobs, newest first, that grows after each page."""

    def __init__(self, transport, count, growth):
        super().__init__(transport)
        self.count, self.growth, self.searches = count, growth, []

    def list_jobs(self, search):
        self.searches.append(search)
        newest_first = [JobBody(id=f"j{at}", project="p") for at in reversed(range(self.count))]
        page = newest_first[search.offset or 0 :][: search.limit]
        answer = JobList(jobs=page, total=self.count)
        self.count += self.growth
        return answer


def listed(count, growth, limit=None):
    client = Client("http://127.0.0.1:9", "key")
    client.api = Server(client.api.transport, count, growth)
    return client.jobs(limit=limit), client.api.searches


@given(st.integers(0, 40), st.integers(0, 3), st.none() | st.integers(1, 50))
def test_each_job_is_listed_once_however_many_are_created_meanwhile(count, growth, limit):
    page = vars(module)["PAGE"]
    vars(module)["PAGE"] = 5
    try:
        jobs, _ = listed(count, growth, limit)
    finally:
        vars(module)["PAGE"] = page
    ids = [job.id for job in jobs]
    assert ids == [f"j{at}" for at in range(count - 1, -1, -1)][:limit]


def test_a_hundred_jobs_and_their_facts_are_one_request():
    jobs, searches = listed(100, 0)
    assert len(jobs.to_arrow()) == 100
    assert "100 jobs" in repr(jobs)
    assert jobs._repr_html_().count("<tr>") == 101
    assert len(searches) == 1


@pytest.mark.parametrize(("kind", "twin"), [(JobHandle, AsyncJob), (Client, AsyncClient)])
def test_the_asynchronous_twin_has_every_call(kind, twin):
    calls = {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
    assert calls - {"columns", "poll"} - set(vars(twin)) == set()
