import json
from typing import Any

import pytest

JOBS = [
    {"id": "b", "name": "second", "project": "p", "state": "Running", "type": "PyTorchJob", "user": "lin",
     "start": 1_790_000_000_000,     "created": 1_790_000_000_000, "end": None, "recorded": True},
    {"id": "a", "name": "", "project": "default", "state": "Succeeded", "type": "", "user": "",
     "first_sample": 1_780_000_000_000},
]  # fmt: skip
SUMMARY = {
    "duration_ms": 65_000,
    "start_ms": 0,
    "step_ms": 1000,
    "metrics": [
        {
            "metric": "cpu.usage",
            "unit": "{core}",
            "job_mean": 3.0,
            "job_max": 3.5,
            "mean": 1.5,
            "max": 2.0,
            "last": 1.0,
            "points": [1.0, None, 2.0],
        },
        {
            "metric": "memory.usage",
            "unit": "By",
            "job_mean": 2**30,
            "job_max": 2**32,
            "mean": 2**29,
            "max": 2**31,
            "last": 1,
            "points": [2**30],
        },
    ],
}


@pytest.fixture
def listed(server):
    server.on("/jobs", {"jobs": JOBS, "total": 2})
    server.on("/jobs/b", {"job": JOBS[0], "summary": SUMMARY})
    return server


def test_the_table_has_a_row_a_job(listed, run):
    lines = run("jobs").stdout.splitlines()
    assert lines[0].split() == [
        "id",
        "name",
        "type",
        "project",
        "state",
        "user",
        "start",
        "duration",
        "mean",
        "cpu",
        "peak",
        "memory",
    ]
    assert "second" in lines[2]
    assert lines[2].split()[-6:] == ["1m", "05s", "3.00", "cores", "4.0", "GiB"]
    assert lines[3].split() == ["a", "default", "Succeeded", "2026-05-28", "20:26:40", "-", "-", "-"]


@pytest.mark.parametrize(("utilization", "shown"), [(None, "45.0%"), (0.8, "80.0%")])
def test_a_job_on_mig_instances_has_their_activity_as_its_use(listed, run, utilization, shown):
    given = {"gpu.utilization": utilization, "gpu.sm.active": 0.45}
    metrics: Any = SUMMARY["metrics"]
    measured = [
        {**metrics[0], "metric": name, "unit": "1", "job_mean": value}
        for name, value in given.items()
        if value is not None
    ]
    listed.on("/jobs/b", {"job": JOBS[0], "summary": {**SUMMARY, "metrics": [*metrics, *measured]}})
    line = run("jobs").stdout.splitlines()[2]
    assert line.split()[-1] == shown


def test_json_is_an_array_with_every_field(listed, run):
    rows = json.loads(run("jobs", "--json").stdout)
    assert [row["id"] for row in rows] == ["b", "a"]
    assert {"id", "name", "type", "state", "project", "user", "created", "start", "end"} <= set(rows[0])
    assert rows[0]["end"] is None
    assert rows[1]["state"] == "Succeeded"


def test_jobs_are_filtered_by_findings(listed, run):
    run("jobs", "--finding", "gpu_idle_allocated", "--finding", "out_of_memory", "--severity", "Critical")
    assert listed.asked[0].parameters == {
        "finding": ["gpu_idle_allocated", "out_of_memory"], "severity": ["critical"], "limit": ["20"],
        "sort": ["active"], "findings": ["true"],
    }  # fmt: skip
    listed.on("/jobs", {"jobs": [], "total": 0})
    assert run("jobs", "--finding", "any").stdout == "no job matches\n"


def test_the_help_has_its_options_under_headings(run):
    text = run("jobs", "--help").stdout
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Filters:", "Output:", "Connection:", "Other options:"]
    which, shown, server, others = (text.index(heading) for heading in headings)
    assert which < text.index("--finding RULE") < text.index("--project") < shown
    assert shown < text.index("--limit") < server < text.index("--server URL") < others


def test_options_become_parameters(listed, run):
    run("jobs", "--state", "running", "--type", "X", "--user", "u", "--name", "n", "--project", "p", "--limit", "7")
    assert listed.asked[0].parameters == {
        "state": ["Running"], "type": ["X"], "user": ["u"], "name": ["n"], "project": ["p"], "limit": ["7"],
        "sort": ["active"], "findings": ["true"],
    }  # fmt: skip


def test_jobs_of_a_node_and_a_group_sorted_by_name(listed, run):
    run("jobs", "--node", "n1", "--node", "n2", "--group", "h200", "--sort", "name")
    assert listed.asked[0].parameters == {
        "node": ["n1", "n2"], "resource_group": ["h200"], "sort": ["name"], "order": ["asc"], "limit": ["20"],
        "findings": ["true"],
    }  # fmt: skip
    listed.asked.clear()
    assert run("jobs", "--resource-group", "h200").exit_code == 0
    assert listed.asked[0].parameters["resource_group"] == ["h200"]
    result = run("jobs", "--sort", "size")
    assert result.exit_code != 0
    assert "'active', 'created'" in result.stderr


def test_a_node_or_a_group_that_does_not_exist_is_reported_with_the_names(server, run):
    server.on("/jobs", lambda asked: (200, {"jobs": [] if len(asked.parameters) > 2 else JOBS, "total": 0}, {}))
    server.on("/nodes", {"nodes": [{"name": "node-1"}, {"name": "node-2"}]})
    assert "there is no node 'nod-1'; did you mean node-1" in str(run("jobs", "--node", "nod-1").exception)
    assert run("jobs", "--node", "node-1").stdout == "no job matches\n"


def test_the_size_of_a_job(server, run):
    server.on("/jobs", {"jobs": JOBS, "total": 2})
    summary = {**SUMMARY, "devices": 64, "replicas": 64, "nodes": 8}
    server.on("/jobs/b", {"job": JOBS[0], "summary": summary})
    assert "64 devices, 8 nodes" in run("jobs").stdout
    server.on("/jobs/b", {"job": JOBS[0], "summary": {**summary, "devices": 0, "nodes": 1}})
    assert "64 replicas " in run("jobs").stdout
    server.on("/jobs/b", {"job": JOBS[0], "summary": {**summary, "devices": 0, "nodes": 1, "replicas": 1}})
    assert "size" not in run("jobs").stdout


def test_since_counts_back_from_now(listed, run, monkeypatch):
    monkeypatch.setattr("jobmeter.model.time.SystemClock.now_ms", lambda self: 10_000_000)
    run("jobs", "--since", "1h", "--json")
    assert listed.asked[0].parameters["created_from"] == [str(10_000_000 - 3_600_000)]


def test_more_jobs_than_shown_are_reported(server, run):
    server.on("/jobs", {"jobs": JOBS[:1], "total": 55})
    server.on("/jobs/b", {"job": JOBS[0], "summary": SUMMARY})
    assert "1 of 55 jobs" in run("jobs", "--limit", "1").stdout


def test_nothing_yet_and_nothing_that_matches(server, run):
    server.on("/jobs", {"jobs": [], "total": 0})
    assert run("jobs").stdout == "no jobs yet: `jobmeter demo` shows one; yours: `jobmeter run -- COMMAND`\n"
    assert run("jobs", "--user", "nobody").stdout == "no job matches\n"
    assert json.loads(run("jobs", "--json").stdout) == []


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--state", "asleep"], ["extra"]])
def test_wrong_usage(run, arguments):
    assert run("jobs", *arguments).exit_code == 2


def test_a_since_that_is_none_is_named(run):
    result = run("jobs", "--since", "soon")
    assert result.exit_code == 2
    assert "--since 'soon' is not a duration" in result.output


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--type", "pytorchjob", "no job has the type 'pytorchjob'; did you mean PyTorchJob?"),
        ("--type", "Flink", "no job has the type 'Flink'; choose from PyTorchJob"),
        ("--user", "root", "no job has the user 'root'; choose from lin"),
        ("--project", "q", "there are no jobs in project 'q'; choose from default, p"),
    ],
)
def test_a_filter_that_no_job_can_match_names_the_choices(server, run, form, option, text, message):
    def matching(asked):
        return 200, {"jobs": [] if {"type", "user", "project"} & set(asked.parameters) else JOBS, "total": 0}, {}

    server.on("/jobs", matching)
    result = run("jobs", option, text, *form)
    assert (result.exit_code, result.stdout, result.exception.message) == (1, "", message)


def test_a_type_that_a_job_has_is_no_mistake(server, run):
    def matching(asked):
        return 200, {"jobs": [] if "state" in asked.parameters else JOBS, "total": 0}, {}

    server.on("/jobs", matching)
    assert run("jobs", "--type", "PyTorchJob", "--state", "failed").stdout == "no job matches\n"


def test_each_job_has_its_worst_finding(listed, run):
    sentence = "w-0 (n1, gpu2): XID 79: the GPU has fallen off the bus"
    found = {"id": "b", "project": "p", "severity": "critical", "count": 3, "rules": ["xid"], "sentence": sentence}
    listed.on("/jobs", {"jobs": JOBS, "total": 2, "findings": [found]})
    shown = " ".join(run("jobs").stdout.split())
    assert f"critical: {sentence} (+2)" in shown
    rows = {row["id"]: row["finding"] for row in json.loads(run("jobs", "--json").stdout)}
    assert rows["a"] is None
    assert rows["b"]["sentence"] == sentence
    listed.on("/jobs", {"jobs": JOBS, "total": 2, "findings": [{**found, "sentence": "", "count": 1}]})
    assert "critical: xid" in run("jobs").stdout, "a server of before says its rule alone"
