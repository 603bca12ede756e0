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
    assert text.splitlines()[0] == "critical worker-0 (n1): ValueError: [bold]�[2J (python_exception, root)"
    for part in (
        "2026-09-21 14:13:20",
        "worker-0 exited with status 1",
        "Read the traceback.",
        "https://example.com/rule",
        "90%",
    ):
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


def use(pid, **figures):
    return {"pid": pid, "name": f"py[bold]\x1b[2J{pid}", **figures}


PROCESSES = {
    **TASK,
    "type": "processes",
    "verdict": "unknown",
    "message": "",
    "answers": [
        {"node": "n2"},
        {"node": "n3", "time": 1, "checks": [{"name": "processes", "status": "ok", "text": "most memory: a (1)"}]},
        {"node": "n4", "time": 1, "checks": [{"name": "processes", "status": "unavailable", "text": "no /proc"}]},
        {
            "node": "n1",
            "time": 1,
            "checks": [
                {"name": "processes", "status": "ok", "text": "", "processes": rows}
                for rows in (
                    [use(8, job="b", replica="worker-1", rank=1, cores=1.5, memory=3 * 2**20, traffic=2**19)],
                    [
                        use(9, memory=2**30),
                        use(8, job="b", replica="worker-1", rank=1, cores=1.5, memory=3 * 2**20, traffic=2**19),
                    ],
                )
            ],
        },
    ],
}


def test_the_busiest_processes_are_a_table_of_each_once(server, run):
    server.on("/tasks", PROCESSES, "POST")
    done = run("diagnose", "b", "--processes", "--project", "p")
    assert json.loads(server.asked[-1].body)["type"] == "processes"
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[:3] == [
        "node n2: no answer from the agent",
        "node n3: its agent sends no table of processes: update it",
        "node n4: no /proc",
    ]
    rows = [line.split() for line in lines[3:] if line.startswith("n1")]
    assert rows == [
        ["n1", "8", "py[bold]�[2J8", "b", "worker-1", "1", "1.50", "3.0", "0.5"],
        ["n1", "9", "py[bold]�[2J9", "1,024.0"],
    ]
    assert "\x1b" not in done.stdout
    assert json.loads(run("diagnose", "--node", "n1", "--processes", "--json").stdout)["type"] == "processes"
    assert json.loads(server.asked[-1].body)["nodes"] == ["n1"]


@pytest.mark.parametrize("given", [("j", "--stacks"), ("--tasks",), ("--task", "t")])
def test_processes_are_those_of_a_job_or_a_node(run, given):
    done = run("diagnose", *given, "--processes")
    assert done.exit_code == 2
    assert "--processes needs a JOB or --node" in done.stderr


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


def test_a_finding_within_a_second_is_a_moment(server, run):
    at = 1_790_000_000_040
    server.on("/jobs/b/findings", [{**FINDINGS[0], "start": at, "end": at + 50}])
    assert "2026-09-21 14:13:20 UTC, confidence 90%" in run("diagnose", "b", "--project", "p").stdout
    assert " to " not in run("diagnose", "b", "--project", "p").stdout
