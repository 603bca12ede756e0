"""Tests of names, log lines and messages with terminal control sequences, shown on a terminal by every command."""

import json
import re
import shlex
import time
from datetime import UTC, datetime

import pytest

from jobmeter.cli.registry import VERBS
from tests.support.frames import records, samples
from tests.support.processes import API, running
from tests.support.terminal import Terminal

pytestmark = pytest.mark.slow

EVIL = "\u202e\u2066\u200f\x9b31m\x1b]0;owned\x07"
"""Text that changes the writing direction, sets a colour by a one-byte control, and sets the window title."""
NOW = int(time.time() * 1000)
SHOWN = {
    "jobs": "",
    "show": "j1",
    "logs": "j1 --json",
    "metrics": "j1 --metric app.loss --start 2020-01-01",
    "traces": "j1",
    "events": "j1",
    "compare": "j1 j2",
    "diagnose": "j1",
    "findings": "",
    "top": "j1 --once",
    "nodes": "",
    "status": "",
    "retention": "",
    "shippers": "",
    "share": "j1",
    "alerts": "",
    "silence": "list",
    "tag": "j1",
    "note": "j1",
    "usage": "",
    "utilization": "--by user",
    "catalog": "",
    "key": "list",
    "delete": "j2 --yes",
}
NOTHING_OF_OTHERS = {
    *("run", "demo", "serve", "agent", "scheduler", "import", "open", "doctor", "backup", "restore", "size"),
    "migrate-store",
}
"""Commands that show no stored text."""
MORE = ("logs j1", "logs --node n1", "logs --node n1 --json", "jobs --json", "show j1 --json", "key list --json")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("names") / "data") as made:
        jobs = [
            {
                "job_id": name,
                "name": f"{EVIL}{name}",
                "user": EVIL,
                "command": EVIL,
                "error": EVIL,
                "labels": {"team": "x"},
                "state": "Failed",
                "start": NOW - 60_000,
                "end": NOW,
                "replicas": [{"name": "w", "node": "n1", "reason": EVIL}],
            }
            for name in ("j1", "j2")
        ]
        events = [{"time": NOW - 5, "job": "j1", "reason": "Hello", "message": EVIL}]
        loss = {"metric": "app.loss", "job": "j1", "replica": "w", "node": "n1"}
        body = records({"jobs": jobs, "events": events, "nodes": [{"name": "n1", "info": {"model": EVIL}}]})
        assert made.ingest(body + samples([(loss, [(NOW - 30_000, 1)])])).status == 200
        lines = [{"text": EVIL, "time": NOW - 5}]
        assert made.call("POST", f"{API}/jobs/j1/logs", json.dumps({"lines": lines}).encode()).status == 200
        assert made.call("POST", f"{API}/nodes/n1/logs", json.dumps({"lines": lines}).encode()).status == 200
        silence = {
            "matchers": [{"name": "job_id", "value": EVIL, "isRegex": False}],
            "startsAt": datetime.fromtimestamp(NOW / 1000, UTC).isoformat(),
            "endsAt": datetime.fromtimestamp(NOW / 1000 + 3600, UTC).isoformat(),
            "createdBy": EVIL,
            "comment": EVIL,
        }
        assert made.call("POST", "/api/v2/silences", json.dumps(silence).encode()).status == 200
        made.request("POST", "/jobs/j1/notes", {"text": EVIL, "time": NOW - 5})
        made.request("POST", "/jobs/j1/tags", {"add": ["x"]})
        yield made


def test_every_verb_is_in_one_of_the_tables():
    assert set(VERBS) == set(SHOWN) | NOTHING_OF_OTHERS


@pytest.mark.parametrize(
    "words", [*MORE, *(f"{verb} {more}".strip() for verb, more in SHOWN.items()), f"show {EVIL!r}"]
)
def test_nothing_that_is_shown_steers_the_terminal(server, words):
    arguments = ["show", EVIL] if words.startswith("show '") else shlex.split(words)
    screen = Terminal(100, 40, *arguments, JOBMETER_DATA=str(server.data))
    try:
        screen.read()
    finally:
        screen.close()
    text = screen.written.decode()
    assert text.strip()
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\x80-\x9f\x07]", text), text
    assert "\x1b]" not in text
    if words in {"jobs", "logs j1", "logs --node n1", "events j1", "show j1", "note j1", "silence list"}:
        assert "\ufffd" in text
