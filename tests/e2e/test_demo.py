"""Tests of ``make demo`` and of the example with the real trace, in their own processes."""

import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.oracle.samples import folder

GENTD26 = folder()


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_the_demonstration_shows_the_main_job_and_leaves_nothing_behind():
    done = run("jobmeter.examples.demo", "--seconds", "12")
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
    assert done.stderr == ""
    for part in (
        "epoch 1: ",
        "jobmeter top digits-",
        "Succeeded (exit status 0)",
        "GET /api/jobmeter/v1/jobs/digits-",
        "x-acs-action: GetJobMetrics, Authorization: ACS3-HMAC-SHA256",
        "everything is stopped",
    ):
        assert part in text
    assert re.search(r"all \d+ values agree", text)
    assert {"worker-0", "worker-1"} <= set(text.split())
    url = re.search(r"it listens at (\S+)", text)
    assert url
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(url[1]).port or 0), timeout=5)


@pytest.mark.slow
@pytest.mark.skipif(GENTD26 is None, reason="JOBMETER_GENTD26 names no folder with the GenTD26 trace")
def test_the_real_trace_is_imported_and_queried():
    done = run("jobmeter.examples.gentd26", "--directory", str(GENTD26))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported 533,720 rows and 1 job record of 1 job" in done.stdout
    assert len(re.findall(r"all [\d,]+ values agree", done.stdout)) == 2


def test_without_the_trace_the_example_says_how_to_name_it(tmp_path):
    done = run("jobmeter.examples.gentd26", "--directory", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("gentd26: ")
    assert "--directory" in done.stderr


def test_the_verb_shows_its_job_until_it_is_interrupted(reach):
    api, token = reach
    with subprocess.Popen(
        [sys.executable, "-m", "jobmeter", "demo", "--seconds", "600", "--print"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "JOBMETER_SERVER": api.transport.server, "JOBMETER_KEY": token},
    ) as process:
        assert process.stdout is not None
        link = next(line for line in process.stdout if line.startswith("http"))
        job = parse_qs(link.partition("?")[2].strip())["job"][0]
        assert api.find(job).state == "Running"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert "Traceback" not in rest
    detail = api.read_job(job)
    assert (detail.job.state, len(detail.replicas)) == ("Stopped", 2)
