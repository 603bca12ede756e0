"""Tests of tags and notes of a job: permission to write, permission to see, and refusals."""

import json

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records

from jobmeter.model.annotation import LONGEST_NOTE, MOST_TAGS
from jobmeter.server.native.router import BASE

PATH = "/jobs/mine/annotations"


@pytest.fixture
def filled(server):
    server.ingest(records({"jobs": [{"job_id": "mine"}, {"job_id": "other"}]}))
    return server


def tags(answer):
    assert answer.status == 200, answer.body
    return [one["tag"] for one in answer.json()["tags"]]


def test_tags_have_an_author_and_lists_are_filtered_by_them(filled):
    writer = filled.key("writer")
    made = filled.call("POST", "/jobs/mine/tags", {"add": ["good", " v2 "], "author": "lin"}, key=writer)
    assert made.json()["tags"] == [
        {"tag": name, "author": "lin", "by": "writer-key", "created": NOW} for name in ("good", "v2")
    ]
    assert tags(filled.call("POST", "/jobs/mine/tags", {"add": ["new"], "remove": ["v2", "none"]})) == ["good", "new"]
    assert tags(filled.call("GET", PATH, key=filled.key("reader"))) == ["good", "new"]
    listed = filled.call("GET", "/jobs?tag=good&tag=none&tags=true").json()
    assert ([job["id"] for job in listed["jobs"]], listed["tags"]) == (["mine"], [["good", "new"]])
    assert filled.call("GET", "/jobs?tag=none").json() == {"jobs": [], "total": 0}
    assert sorted(filled.call("GET", "/jobs?tags=true").json()["tags"]) == [[], ["good", "new"]]


def test_notes_are_written_listed_and_deleted(filled):
    first = filled.call("POST", "/jobs/mine/notes", {"text": "whole", "author": "lin"}).json()
    second = filled.call("POST", "/jobs/mine/notes", {"text": "a moment", "time": NOW - 5}).json()
    assert (first["time"], second["time"], first["author"], first["created"]) == (None, NOW - 5, "lin", NOW)
    assert filled.call("GET", PATH).json()["notes"] == sorted((first, second), key=lambda one: one["id"])
    assert filled.call("DELETE", f"/jobs/other/notes/{first['id']}").status == 404
    assert filled.call("DELETE", f"/jobs/mine/notes/{first['id']}").json() == {"deleted": True}
    assert filled.call("DELETE", f"/jobs/mine/notes/{first['id']}").status == 404
    assert filled.call("GET", PATH).json()["notes"] == [second]


def test_readers_read_and_do_not_write(filled):
    filled.call("POST", "/jobs/mine/tags", {"add": ["good"]})
    note = filled.call("POST", "/jobs/mine/notes", {"text": "x"}).json()["id"]
    reader = filled.key("reader")
    for method, path, body in (
        ("POST", "/jobs/mine/tags", {"add": ["x"]}),
        ("POST", "/jobs/mine/notes", {"text": "x"}),
        ("DELETE", f"/jobs/mine/notes/{note}", None),
    ):
        assert filled.call(method, path, body, key=reader).status == 403
    elsewhere = filled.key("writer", "elsewhere")
    assert filled.call("GET", PATH, key=elsewhere).status == 404
    assert filled.call("POST", "/jobs/mine/tags", {"add": ["x"]}, key=elsewhere).status == 404
    assert filled.call("POST", "/jobs/mine/notes", {"text": "x"}, key=elsewhere).status == 404
    assert tags(filled.call("GET", PATH)) == ["good"]


def test_the_holder_of_a_link_reads_tags_and_notes_without_the_names_of_keys(filled):
    writer = filled.key("writer")
    filled.call("POST", "/jobs/mine/tags", {"add": ["good"], "author": "lin"}, key=writer)
    filled.call("POST", "/jobs/mine/notes", {"text": "x"}, key=writer)
    whole = filled.call("GET", PATH).json()
    assert [one["by"] for kind in ("tags", "notes") for one in whole[kind]] == ["writer-key"] * 2
    token = filled.call("POST", "/jobs/mine/links", {}).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    reply = filled.raw("GET", f"{BASE}{PATH}", headers=headers)
    assert json.loads(reply.body) == {kind: [{**one, "by": ""} for one in whole[kind]] for kind in whole}
    assert filled.raw("GET", f"{BASE}/jobs/other/annotations", headers=headers).status == 404
    body = json.dumps({"text": "x"}).encode()
    assert filled.raw("POST", f"{BASE}/jobs/mine/notes", body, headers=headers).status == 403


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("tags", {"add": ["a,b"]}, 400),
        ("tags", {"add": ["x"], "remove": ["x"]}, 400),
        ("tags", {"add": [str(at) for at in range(MOST_TAGS + 1)]}, 400),
        ("tags", {"added": ["x"]}, 400),
        ("notes", {}, 400),
        ("notes", {"text": "x" * (LONGEST_NOTE + 1)}, 400),
        ("notes", {"text": "x", "time": "soon"}, 400),
        ("notes", {"text": "x", "author": "a\nb"}, 400),
    ],
)
def test_invalid_tags_and_notes_are_refused_and_not_stored(filled, path, body, status):
    assert filled.call("POST", f"/jobs/mine/{path}", body).status == status
    assert filled.call("GET", PATH).json() == {"tags": [], "notes": []}
