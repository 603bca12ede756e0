"""Tests of ``jobmeter tag`` and ``jobmeter note``."""

import json

import pytest

TAG = {"tag": "baseline", "author": "lin", "by": "team", "created": 1_790_000_000_000}
NOTE = {"id": "note-01", "text": "rate lowered", "time": 1_790_000_000_000, "author": "", "by": "team", "created": 0}


@pytest.mark.parametrize(
    ("words", "added", "removed"),
    [
        (["+a", "-b"], ["a"], ["b"]),
        (["-b", "c"], ["c"], ["b"]),
        (["--remove", "h", "+x y"], ["x y"], ["h"]),
        (["-long-name", "-"], None, None),
    ],
)
def test_tags_are_added_and_removed_in_one_call(server, run, words, added, removed):
    server.on("/jobs/j/tags", {"tags": [TAG], "notes": []}, "POST")
    done = run("tag", "j", *words, "--author", "lin")
    if added is None:
        assert done.exit_code == 2
        assert not server.asked
        return
    assert "baseline" in done.stdout
    assert json.loads(server.asked[-1].body) == {"add": added, "remove": removed, "author": "lin"}


def test_tags_and_notes_are_listed(server, run):
    server.on("/jobs/j/annotations", {"tags": [TAG], "notes": [NOTE]})
    assert "lin" in run("tag", "j").stdout
    assert json.loads(run("tag", "j", "--json").stdout) == [TAG]
    shown = run("note", "j").stdout
    assert "rate lowered" in shown
    assert "team" in shown
    assert json.loads(run("note", "j", "--json").stdout) == [NOTE]
    assert {asked.method for asked in server.asked} == {"GET"}
    server.on("/jobs/j/annotations", {"tags": [], "notes": []})
    assert run("tag", "j").stdout == "j has no tags\n"
    assert run("note", "j").stdout == "j has no notes\n"


def test_a_note_has_its_time_in_milliseconds(server, run):
    server.on("/jobs/j/notes", NOTE, "POST")
    assert "note-01" in run("note", "j", "rate lowered", "--at", "1970-01-01T00:00:01Z", "--author", "lin").stdout
    assert json.loads(server.asked[-1].body) == {"text": "rate lowered", "time": 1000, "author": "lin"}


def test_a_note_is_deleted_by_its_id(server, run):
    server.on("/jobs/j/notes/note-01", {"deleted": True}, "DELETE")
    assert "deleted note-01 of j" in run("note", "j", "--delete", "note-01").stdout
    assert json.loads(run("note", "j", "--delete", "note-01", "--json").stdout) == {"id": "note-01"}


@pytest.mark.parametrize(
    "words",
    [
        *(["note", "j", "text", "--at", "soon"], ["note", "j", "--at", "1000"], ["note", "j", "x", "--delete", "y"]),
        *(["tag", "j", "+a,b"], ["tag", "j", "+"]),
    ],
)
def test_invalid_arguments_are_refused_without_a_request(server, run, words):
    done = run(*words)
    assert done.exit_code == 2
    assert not server.asked


def test_jobs_are_filtered_by_tag(server, run):
    server.on("/jobs", {"jobs": [], "total": 0})
    run("jobs", "--tag", "a", "--tag", "b")
    assert server.asked[0].parameters["tag"] == ["a", "b"]
