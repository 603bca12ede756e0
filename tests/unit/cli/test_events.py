import json

EVENTS = [
    {
        "time": 1_790_000_000_000 + n * 1000,
        "project": "p",
        "job": "b",
        "replica": "worker-0" if n else "",
        "attempt": n // 2,
        "cluster": "",
        "node": "n1",
        "source": "state" if n % 2 else "replica",
        "level": "error" if n % 3 == 0 else "info",
        "reason": f"Reason{n}",
        "message": "[bold]\x1b[2J message",
    }
    for n in range(5)
]


def answer(asked):
    limit, offset = (int(asked.parameters.get(name, ["0"])[0]) for name in ("limit", "offset"))
    newest = EVENTS[::-1][offset : offset + limit]
    return 200, json.dumps({"job": "b", "project": "p", "events": newest, "total": len(EVENTS)}).encode(), {}


def test_the_table_has_a_row_an_event_the_newest_last(server, run):
    server.on("/jobs/b/events", answer)
    text = run("events", "b").stdout
    lines = text.splitlines()
    assert lines[0].split() == ["time", "replica", "type", "source", "level", "reason", "message"]
    assert [line.split()[2:7] for line in lines[2:4]] == [
        ["other", "replica", "error", "Reason0", "[bold]�[2J"],
        ["worker-0", "replica_state", "state", "info", "Reason1"],
    ]
    assert "worker-0 (attempt 2)" in lines[6]
    assert "\x1b" not in text
    assert server.asked[0].parameters == {"order": ["desc"], "limit": ["100"]}


def test_only_the_newest_are_shown_and_the_others_are_reported(server, run):
    server.on("/jobs/b/events", answer)
    lines = run("events", "b", "--limit", "2").stdout.splitlines()
    assert ["Reason3" in lines[2], "Reason4" in lines[3]] == [True, True]
    assert lines[-1] == "the newest 2 of 5 events: --limit 5 shows all"


def test_json_is_an_array_of_all_the_oldest_first(server, run):
    server.on("/jobs/b/events", answer)
    found = json.loads(run("events", "b", "--json").stdout)
    assert [event["reason"] for event in found] == [f"Reason{n}" for n in range(5)]
    whole = {"actor": "", "subject": "", "type": "other", "object": {"kind": "job", "name": "b"}, "id": found[0]["id"]}
    assert found[0] == {**EVENTS[0], **whole}
    assert len({one["id"] for one in found}) == len(found)


def test_options_become_parameters(server, run):
    server.on("/jobs/b/events", answer)
    run("events", "b", "--level", "WARNING", "--since", "30m", "--project", "p", "--limit", "7")
    assert server.asked[0].parameters == {
        "level": ["warning"], "since": ["30m"], "project": ["p"], "order": ["desc"], "limit": ["7"],
    }  # fmt: skip


def test_an_empty_list_is_reported(server, run):
    server.on("/jobs/b/events", {"job": "b", "project": "p", "events": [], "total": 0})
    assert run("events", "b").stdout == "no events yet\n"
    assert run("events", "b", "--level", "error").stdout == "no event matches\n"
    assert run("events", "b", "--json").stdout.strip() == "[]"


def test_a_job_that_there_is_not_is_a_failure(server, run):
    assert run("events", "none").exit_code == 1
    assert run("events", "b", "--since", "soon").exit_code != 0
