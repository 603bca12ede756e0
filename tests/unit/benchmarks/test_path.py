"""Tests of the traced path of a frame and of a question through the running program."""

import json
import subprocess
import sys

import pytest
from benchmarks.sources import private_in, private_words, states, twins


@pytest.mark.slow
def test_the_path_names_the_modules_of_each_request():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.path", "--json"], capture_output=True, text=True, timeout=900, check=True
    )
    document = json.loads(done.stdout)
    assert [row["aim"] for row in document["rows"]] == ["35 / 8", "30 / 9", "-", "12", "-", "1", "0", "one"]
    assert document["rows"][3]["measured"] == str(len(document["states_on_the_paths"]))
    assert document["rows"][4]["measured"] == str(len(document["states"]))
    assert any(state.startswith("the table of series: ") for state in document["states_on_the_paths"])
    assert "a connection to a sink, and a batch on its way" not in document["states_on_the_paths"]
    traces = {one["name"]: one for one in document["requests"]}
    assert set(traces) == {"a frame", "a live question", "GetJobMetrics"}
    assert "jobmeter.wire.native.decode" in traces["a frame"]["modules"]
    assert "jobmeter.dialects.alibaba.pai_dlc.operations.job_metrics" in traces["GetJobMetrics"]["modules"]
    for one in traces.values():
        assert "jobmeter.server.edge" in one["chain"] or "jobmeter.ingest.commit" in one["chain"]
        assert set(one["chain"]) <= set(one["modules"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("known_jobs", ["known"]),
        ("KnownSeries", ["known"]),
        ("NotAtOnceError", ["at_once"]),
        ("unknown", []),
        ("doors", []),
        ("let_in_the_door", ["door"]),
        ("KEPT", ["kept"]),
    ],
)
def test_a_private_word_is_a_whole_part_of_a_name(name, words):
    assert private_in(name) == words


def test_the_sources_are_counted(tmp_path):
    (tmp_path / "funnel.py").write_text(
        '"""What is known."""\nkept = 1\n# told\nblocking = lock.acquire(blocking=False)\n'
    )
    assert private_words(tmp_path) == {"funnel": 1, "kept": 1}
    assert twins(tmp_path) == ["funnel.py"]
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n## What outlives a request\n\n| what | where |\n|---|---|\n"
        "| keys | `access/authenticate.py` |\n| jobs | `registry/columns/`, `server/live.py` |\n\n## N\n| x |\n"
    )
    keys, jobs = states(page)
    assert (keys.name, jobs.name) == ("keys", "jobs")
    assert keys.entered_by(["jobmeter.access.authenticate"])
    assert not keys.entered_by(["jobmeter.access", "jobmeter.access.authenticate_all"])
    assert jobs.entered_by(["jobmeter.registry.columns.table"])
    assert jobs.entered_by(["jobmeter.server.live"])
    assert not jobs.entered_by(["jobmeter.registry.base", "jobmeter.server.native.live"])
