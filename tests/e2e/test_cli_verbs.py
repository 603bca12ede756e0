"""Tests of commands that query and change a real server, and of the names of jobs in all of them."""

import json

import pytest

from tests.e2e.conftest import start

JOBS = {"first": ("train-1-aa", 60), "train": ("train-2-bb", 30)}


@pytest.fixture(scope="module")
def stored(reach, tmp_path_factory):
    from jobmeter.model.time import SystemClock

    now = SystemClock().now_ms()
    lines = []
    for at, (name, (job, seconds)) in enumerate(JOBS.items()):
        begin = now - 600_000 + at * 60_000
        lines.append({"job_id": job, "name": name, "state": "Succeeded", "created": begin, "start": begin})
        lines[-1]["end"] = begin + seconds * 1000
        for second in range(seconds):
            place = {"job_id": job, "replica": "worker-0", "node": "n1", "time": begin + second * 1000}
            lines.append({**place, "metric": "cpu.usage", "value": 1 + at})
    file = tmp_path_factory.mktemp("jobs") / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    api, token = reach
    result = start("import", str(file), "--server", api.transport.server, "--key", token)
    assert result.status == 0, result.err
    return api


@pytest.mark.parametrize("verb", [("show", "--json"), ("metrics", "--metric", "cpu.usage", "--json"), ("logs",)])
@pytest.mark.parametrize(("text", "job"), [("train-1", "train-1-aa"), ("first", "train-1-aa"), ("last", "train-2-bb")])
def test_a_job_is_named_in_every_verb(stored, jobmeter, verb, text, job):
    name, *options = verb
    result, expected = jobmeter(name, text, *options), jobmeter(name, job, *options)
    assert (result.status, result.out) == (0, expected.out), result.err


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("show", "trian-1-aa"), "did you mean train-1-aa"),
        (("show", "train-"), "2 jobs begin with 'train-'"),
        (("metrics", "last", "--metric", "cpu.usge"), "did you mean cpu.usage"),
        (("metrics", "last", "--metric", "cpu.usage", "--replica", "worker0"), "did you mean worker-0"),
        (("logs", "last", "--replica", "worker-1"), "did you mean worker-0"),
        (("jobs", "--project", "defualt"), "did you mean default"),
        (("show", "last", "--project", "defualt"), "did you mean default"),
        *(((verb, "--project", "defualt"), "did you mean default") for verb in ("nodes", "events", "findings")),
        *(((verb, "--project", "defualt"), "did you mean default") for verb in ("alerts", "utilization")),
        (("shw", "last"), "did you mean show"),
        (("metrics", "last"), "train-2-bb has: cpu.usage"),
    ],
)
def test_unknown_names_get_suggestions(stored, jobmeter, words, near):
    result = jobmeter(*words)
    assert result.status != 0
    assert near in result.err
    assert "Traceback" not in result.err


def test_compare(stored, jobmeter):
    result = jobmeter("compare", "first", "last", "--metric", "cpu.usage")
    assert result.status == 0, result.err
    for part in ("A  train-1-aa", "B  train-2-bb", "1m", "30s", "1.00 cores", "2.00 cores", "from each start"):
        assert part in result.out
    document = json.loads(jobmeter("compare", "first", "last", "--metric", "cpu.usage", "--step", "10s", "--json").out)
    assert document["step"] == 10_000
    assert [line["points"][0] for line in document["lines"]] == [[0, 1.0], [0, 2.0]]
    assert jobmeter("compare", "last", "train-2-bb").status == 2


def test_nodes(stored, jobmeter):
    stored.transport.request(
        "POST", "/api/jobmeter/v1/jobs", b'{"nodes": [{"name": "n1", "info": {"cores": 8, "memory": 68719476736}}]}'
    )
    row = next(line for line in jobmeter("nodes").out.splitlines() if line.startswith("n1"))
    assert "64.0 GiB" in row
    assert json.loads(jobmeter("nodes", "--json").out)[0]["name"] == "n1"
    assert jobmeter("nodes", "--resource-group", "none").out == "no node matches\n"


def test_status(stored, jobmeter):
    assert "uptime" in jobmeter("status").out
    assert json.loads(jobmeter("status", "--json").out)["rows"]


def test_retention_is_shown_set_and_set_back(stored, jobmeter):
    assert "15 days" in jobmeter("retention").out
    longer = json.loads(jobmeter("retention", "--raw-days", "30", "--project", "p", "--json").out)
    assert longer == {"project": "p", "raw_days": 30, "minute_days": 90, "hour_days": 730}
    refused = jobmeter("retention", "--raw-days", "3", "--project", "p")
    assert refused.status == 1
    assert "add --yes" in refused.err
    assert json.loads(jobmeter("retention", "--project", "p", "--json").out)["raw_days"] == 30
    assert json.loads(jobmeter("retention", "--default", "--yes", "--project", "p", "--json").out)["raw_days"] == 15
    assert "there are no jobs in project 'p'" in jobmeter("retention", "--project", "p").err
    assert jobmeter("retention", "--default", "--raw-days", "3").status == 2


def test_share(stored, jobmeter):
    made = json.loads(jobmeter("share", "first", "--expires", "1h", "--json").out)
    assert made["job"] == "train-1-aa"
    assert made["token"]
    result = jobmeter("share", "first")
    assert result.out.count("\n") == 1
    assert "train-1-aa until" in result.err
    assert jobmeter("share", "first", "--expires", "2y").status == 1


def test_delete_confirms_and_forgets(stored, jobmeter):
    refused = jobmeter("delete", "train-1")
    assert refused.status == 1
    assert "add --yes" in refused.err
    assert jobmeter("show", "train-1-aa").status == 0
    assert jobmeter("delete", "train-1", "--yes").out == "deleted train-1-aa\n"
    assert jobmeter("show", "train-1-aa").status == 1
