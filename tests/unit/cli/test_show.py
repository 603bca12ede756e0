import json

from tests.unit.cli.test_diagnose import FINDINGS
from tests.unit.cli.test_jobs import SUMMARY

DETAIL = {
    "job": {
        "id": "b",
        "name": "train[bold]",
        "project": "p",
        "state": "Failed",
        "start": 1_790_000_000_000,
        "end": 1_790_000_065_000,
        "exit_code": 3,
        "error": "out of \x1b[2Jmemory",
        "recorded": True,
        "command": "python train.py",
    },
    "replicas": [
        {"name": "worker-0", "attempt": 0, "rank": 0, "node": "n1", "state": "Failed", "start": 1_790_000_000_000,
         "end": 1_790_000_065_000, "exit_code": 3},
        {"name": "worker-1", "attempt": 0, "rank": 1, "node": "n1", "state": None},
    ],
    "allocations": [{"replica": "worker-0", "node": "n1", "device": "gpu0", "start": 5, "source": "process"}],
    "devices": [{"node": "n1", "device": "gpu0", "replica": "worker-0", "rank": 0}],
    "nodes": ["n1"],
    "summary": {**SUMMARY, "replicas": 2, "gpu_energy_joules": 7200.0},
}  # fmt: skip


def test_everything_that_is_stored_is_shown(server, run):
    server.on("/jobs/b", DETAIL)
    text = run("show", "b", "--project", "p").stdout
    assert server.asked[0].parameters == {"project": ["p"]}
    for part in (
        "b  Failed",
        "train[bold]",
        "exit status    3",
        "duration       1m 05s",
        "worker-1",
        "gpu0",
        "mean of one",
        "3.00 cores",
        "1.50 cores",
    ):
        assert part in text
    assert "█" in text
    assert "energy of the GPUs: 2 Wh" in text
    assert "jobmeter metrics b --metric cpu.usage" in text


def test_nothing_in_it_acts_on_the_terminal(server, run):
    server.on("/jobs/b", DETAIL)
    assert "\x1b" not in run("show", "b").stdout


def test_json_is_one_object_with_every_part(server, run):
    server.on("/jobs/b", DETAIL)
    found = json.loads(run("show", "b", "--json").stdout)
    parts = {"job", "replicas", "allocations", "devices", "nodes", "summary", "quality", "phases", "annotations"}
    assert set(found) == parts

    assert found["quality"] is None
    assert found["job"]["exit_code"] == 3
    assert found["replicas"][1]["state"] is None
    assert found["summary"]["metrics"][0]["points"] == [1.0, None, 2.0]


PHASES = {
    "job": "b",
    "start": 1_790_000_000_000 - 60_000,
    "end": 1_790_000_065_000,
    "spans": [
        {"phase": "queued", "start": 1_789_999_940_000, "end": 1_790_000_000_000},
        {"phase": "training", "start": 1_790_000_000_000, "end": 1_790_000_040_000},
        {"phase": "checkpoint", "start": 1_790_000_040_000, "end": 1_790_000_045_000},
        {"phase": "training", "start": 1_790_000_045_000, "end": 1_790_000_065_000},
    ],
    "totals": {"queued": 60_000, "training": 60_000, "checkpoint": 5_000},
    "unknown": {"prepare": "no event says when it was scheduled"},
}


def test_phases_are_shown_and_unknown_ones_are_not(server, run):
    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/phases", PHASES)
    text = run("show", "b").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["queued", "1m", "48%", "1"] in rows
    assert ["training", "1m", "48%", "2"] in rows
    assert ["checkpoint", "5s", "4%", "1"] in rows
    assert "prolog" not in text
    assert json.loads(run("show", "b", "--json").stdout)["phases"]["unknown"] == PHASES["unknown"]


def test_a_job_of_which_no_phase_is_separate_has_no_table_of_phases(server, run):
    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/phases", {**PHASES, "totals": {"unattributed": 5_000}})
    assert "unattributed" not in run("show", "b").stdout


def test_missing_data_is_reported_in_at_most_three_lines(server, run):
    server.on("/jobs/b", DETAIL)
    assert "data quality" not in run("show", "b").stdout
    quality = {"job": "b", "project": "p", "complete": False, "coverage": 0.5}
    server.on("/jobs/b/quality", {**quality, "sentences": ["one \x1b[2Jgap", "two", "three", "four"]})
    text = run("show", "b").stdout
    assert "  data quality   one" in text
    assert "                 three" in text
    assert "four" not in text
    assert "\x1b" not in text
    found = json.loads(run("show", "b", "--json").stdout)["quality"]
    assert (found["complete"], found["coverage"], len(found["sentences"])) == (False, 0.5, 4)


def test_a_job_whose_data_takes_too_long_to_look_at_is_shown_all_the_same(server, run):
    server.on("/jobs/b", DETAIL)
    problem = {"error": {"code": "limit_exceeded", "message": "too much", "field": "range"}, "request_id": "X"}
    server.on("/jobs/b/quality", lambda asked: (400, problem, {}))
    assert "b  Failed" in run("show", "b").stdout


def test_a_job_without_samples(server, run):
    server.on("/jobs/b", {"job": {"id": "b"}, "summary": {}})
    text = run("show", "b").stdout
    assert "no measurements yet" in text
    assert "not recorded" in text


def test_thousands_of_replicas_are_counted(server, run):
    replicas = [{"name": f"worker-{n}"} for n in range(5000)]
    server.on("/jobs/b", {**DETAIL, "replicas": replicas})
    assert "5,000 replicas on 1 node" in run("show", "b").stdout


def test_an_unknown_job_is_reported(run):
    assert "there is no" in str(run("show", "zzz").exception)


def test_a_failed_job_ends_with_its_findings_and_last_error_lines(server, run):
    lines = [{"text": f"error {at}", "time": 1_790_000_000_000 + at, "replica": "worker-0"} for at in (2, 1)]
    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/findings", FINDINGS)
    server.on("/jobs/b/logs", "\n".join(json.dumps(line) for line in lines).encode())
    text = run("show", "b").stdout
    findings, _, errors = text.partition("last error lines")
    assert "critical worker-0 (n1): ValueError" in findings
    assert errors.index("error 1") < errors.index("error 2")
    asked = next(one for one in server.asked if one.path.endswith("/logs"))
    assert asked.parameters["level"] == ["error"]
    assert asked.parameters["order"] == ["desc"]


def test_the_frames_of_a_traceback_are_shown_with_its_error_lines(server, run):
    texts = ["step 7", "Traceback (most recent call last):", '  File "train.py", line 3', "    f()", "ValueError: x"]
    lines = [
        {"text": text, "time": 1_790_000_000_000 + at, "time_ns": str(at), "replica": "worker-0", "level": "info"}
        for at, text in enumerate(texts)
    ]
    errors = [lines[1], lines[4]]

    def logs(asked):
        found = errors if "level" in asked.parameters else lines
        return 200, "\n".join(map(json.dumps, reversed(found))).encode(), {}

    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/logs", logs)
    shown = run("show", "b").stdout.partition("last error lines of its log\n")[2].splitlines()
    assert shown[:4] == [f"  {text}" for text in texts[1:]]
    asked = [one.parameters for one in server.asked if one.path.endswith("/logs")]
    assert (asked[1]["replica"], asked[1]["start"]) == (["worker-0"], ["1790000000001"])
    assert asked[1]["end"] == ["1790000000005"]


def test_the_pod_of_a_replica_is_named(server, run):
    pods = [f"train-{at}-x7k2p" for at in range(2)]
    replicas = [{"name": f"worker-{at}", "pod": pod} for at, pod in enumerate(pods)]
    server.on("/jobs/b", {**DETAIL, "replicas": replicas})
    text = run("show", "b").stdout
    assert "pod" in text
    assert "train-0-x7k2p" in text
    assert "train-1-x7k2p" in text
    assert json.loads(run("show", "b", "--json").stdout)["replicas"][1]["pod"] == "train-1-x7k2p"
    server.on("/jobs/b", DETAIL)
    assert "pod" not in run("show", "b").stdout


def test_the_numbers_of_the_program_are_shown_with_their_last_step(server, run):
    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/metrics/names", {"metrics": ["cpu.usage", "app.loss", "app.step"]})
    lines = [
        {"metric": "app.step", "points": [[1_790_000_000_000, 1.0], [1_790_000_010_000, 1200.0]]},
        {"metric": "app.loss", "points": [[1_790_000_000_000, 2.0], [1_790_000_010_000, 0.25]]},
    ]
    span = {"start": 1_790_000_000_000, "end": 1_790_000_020_000, "step": 10_000}
    server.on("/jobs/b/metrics", {"job": "b", **span, "lines": lines})
    text = run("show", "b").stdout
    assert "numbers of the program, the last at step 1,200" in text
    (row,) = [line for line in text.splitlines() if line.startswith("app.loss")]
    assert row.split()[1] == "0.25"
    assert "cpu.usage" not in server.asked[-1].parameters.get("metric", [])


def test_without_reports_nothing_is_said_of_numbers(server, run):
    server.on("/jobs/b", DETAIL)
    server.on("/jobs/b/metrics/names", {"metrics": ["cpu.usage"]})
    assert "numbers of the program" not in run("show", "b").stdout


def test_a_queued_job_says_how_long_it_waits(server, run):
    server.on("/jobs/b", {**DETAIL, "job": {"id": "b", "state": "Queued"}})
    text = run("show", "b").stdout
    assert "waiting        1m 05s" in text
    assert "duration       " not in text
