import json
import re

import pytest

FINDINGS = [
    {
        "rule": "python_exception",
        "role": "root",
        "severity": "critical",
        "confidence": 0.9,
        "subject": {"kind": "replica", "name": "worker-0"},
        "start": 1_790_000_000_000,
        "end": 1_790_000_065_000,
        "evidence": [
            {"kind": "log", "text": "ValueError: [bold]\x1b[2J", "time": 1_790_000_000_000, "replica": "worker-0",
             "metric": "", "value": None, "limit": None, "unit": ""},
            {"kind": "status", "text": "worker-0 exited with status 1", "time": None, "replica": "worker-0",
             "metric": "", "value": None, "limit": None, "unit": ""},
        ],
        "advice": "Read the traceback.",
        "source": "https://example.com/rule",
        "sentence": "worker-0 (n1): ValueError: [bold]\x1b[2J",
    }
]  # fmt: skip


def test_a_finding_is_reported_with_its_evidence_and_advice(server, run):
    server.on("/jobs/b/findings", FINDINGS)
    text = run("diagnose", "b", "--project", "p").stdout
    assert server.asked[0].parameters == {"project": ["p"]}
    since = "since 2026-09-21 14:13:20 UTC"
    assert text.splitlines()[0] == f"critical worker-0 (n1): ValueError: [bold]�[2J, {since} (python_exception, root)"
    for part in ("worker-0 exited with status 1", "Read the traceback.", "https://example.com/rule", "90%"):
        assert part in text


def test_json_is_an_array_of_what_the_server_says(server, run):
    server.on("/jobs/b/findings", FINDINGS)
    assert json.loads(run("diagnose", "b", "--json").stdout) == [{"replicas": [], **one} for one in FINDINGS]


def test_an_empty_result_is_reported(server, run):
    server.on("/jobs/b/findings", [])
    assert run("diagnose", "b").stdout == "no rule found anything\n"
    assert json.loads(run("diagnose", "b", "--json").stdout) == []


def test_a_job_that_there_is_not_is_a_failure(server, run):
    assert run("diagnose", "nobody").exit_code == 1


TASK = {
    "id": "diag-1",
    "type": "stacks",
    "state": "done",
    "project": "p",
    "created": 1_790_000_000_000,
    "start": 0,
    "end": 1,
    "job": "b",
    "deadline": 1_790_000_060_000,
    "verdict": "fault",
    "message": "worker-1 (n1, pid 8) is not in the collective: it sleeps in `load`\nworker-0: no kernel stacks",
    "answers": [
        {
            "node": "n1",
            "time": 1,
            "stacks": {
                "ranks": [
                    {
                        "replica": "worker-1",
                        "rank": 1,
                        "pid": 8,
                        "state": "S",
                        "call": "clock_nanosleep",
                        "wait": "hrtimer_nanosleep",
                        "threads": [
                            {
                                "id": 8,
                                "name": "Main\x1b[2J",
                                "frames": [{"function": "load", "file": "/srv/[bold]data.py", "line": 41}],
                            }
                        ],
                        "groups": [{"group": "0", "description": "default_pg", "enqueued": 7, "completed": 6}],
                    }
                ]
            },
        }
    ],
}


def test_the_stacks_of_ranks_are_shown_below_the_sentence(server, run):
    server.on("/tasks", TASK, "POST")
    done = run("diagnose", "b", "--stacks", "--project", "p")
    assert re.fullmatch(r"waiting at most \d+ s for the agents of \d+ nodes?\n", done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0] == "worker-1 (n1, pid 8) is not in the collective: it sleeps in `load`"
    assert "  note        worker-0: no kernel stacks" in lines
    assert "worker-1 rank 1 (n1, pid 8) sleeps in `load` ([bold]data.py:41)" in lines
    assert "  kernel      state S, clock_nanosleep, in hrtimer_nanosleep" in lines
    assert "    load (/srv/[bold]data.py:41)" in lines
    assert "\x1b" not in done.stdout
    assert json.loads(run("diagnose", "b", "--stacks", "--project", "p", "--json").stdout)["verdict"] == "fault"


def test_stacks_are_those_of_a_job(run):
    done = run("diagnose", "--tasks", "--stacks")
    assert done.exit_code == 2
    assert "--stacks needs a JOB" in done.stderr


@pytest.mark.parametrize("target", [("j",), ("--task", "t"), ("--tasks",)])
def test_since_needs_nodes(server, run, target):
    result = run("diagnose", *target, "--since", "2h")
    assert result.exit_code == 2
    assert "--since needs --node" in result.output
    assert not server.asked
