"""Tests of names of jobs: an id, a unique prefix of an id, a name (then the newest job), or ``last``."""

import pytest
from tests.support.fakes import NOW

JOBS = [
    {"job_id": "resnet-1-aa", "name": "resnet", "created": NOW - 5000},
    {"job_id": "resnet-2-bb", "name": "resnet", "created": NOW - 4000},
    {"job_id": "bert-1", "name": "bert", "created": NOW - 3000},
    {"job_id": "bert", "name": "other", "created": NOW - 6000},
    {"job_id": "gpt-1", "name": "gpt [x] 漢", "created": NOW - 1000},
]


@pytest.fixture
def stored(server):
    assert server.call("POST", "/jobs", {"jobs": JOBS}).status == 200
    return server


def resolve(server, text, **more):
    from urllib.parse import urlencode

    return server.call("GET", f"/resolve?{urlencode({'job': text, **more})}")


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("bert-1", "bert-1"),
        ("bert", "bert"),
        ("other", "bert"),
        ("resnet", "resnet-2-bb"),
        ("resnet-1", "resnet-1-aa"),
        ("last", "gpt-1"),
        ("g", "gpt-1"),
        ("gpt [x] 漢", "gpt-1"),
    ],
)
def test_what_a_text_names(stored, text, job):
    assert resolve(stored, text).json()["id"] == job


def test_an_unclear_beginning_names_those_that_are_meant(stored):
    reply = resolve(stored, "resnet-")
    assert reply.status == 409
    assert (
        "2 jobs begin with 'resnet-', use a longer prefix: resnet-2-bb, resnet-1-aa" in reply.json()["error"]["message"]
    )


def test_an_unknown_job_is_answered_with_those_that_are_near(stored):
    reply = resolve(stored, "brt-1")
    assert reply.status == 404
    assert "did you mean bert-1" in reply.json()["error"]["message"]
    assert "did you mean" not in resolve(stored, "zzzzzz").json()["error"]["message"]


def test_a_key_of_a_project_hears_of_no_other_projects_jobs(stored):
    key = stored.key("reader", "other")
    for text in ("bert-1", "resnet", "last", "brt-1"):
        reply = stored.call("GET", f"/resolve?job={text}", key=key)
        assert reply.status == 404
        assert "there are no jobs yet" in reply.json()["error"]["message"]


def test_one_id_in_two_projects_needs_its_project(stored):
    stored.call("POST", "/jobs", {"job_id": "bert-1", "project": "second"})
    assert resolve(stored, "bert-1").status == 409
    assert resolve(stored, "bert-1", project="second").json()["project"] == "second"


@pytest.mark.parametrize("query", ["", "?job=", f"?job={'x' * 1001}"])
def test_a_text_that_is_none_is_refused(stored, query):
    assert stored.call("GET", f"/resolve{query}").status == 400
