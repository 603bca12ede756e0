import json

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
