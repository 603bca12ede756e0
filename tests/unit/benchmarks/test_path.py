"""The way of a frame and of a question is told from the running program."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_path_names_the_modules_of_each_request():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.path", "--json"], capture_output=True, text=True, timeout=120, check=True
    )
    traces = {one["name"]: one for one in json.loads(done.stdout)}
    assert set(traces) == {"a frame", "a live question", "GetJobMetrics"}
    assert "jobmeter.wire.native.decode" in traces["a frame"]["modules"]
    assert "jobmeter.dialects.pai_dlc.operations.job_metrics" in traces["GetJobMetrics"]["modules"]
    for one in traces.values():
        assert "jobmeter.server.edge" in one["chain"] or "jobmeter.ingest.commit" in one["chain"]
        assert set(one["chain"]) <= set(one["modules"])
