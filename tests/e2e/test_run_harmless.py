"""Tests that ``jobmeter run`` never harms its command: any failure to measure leaves the exit status unchanged."""

import os
import subprocess
import sys

import pytest

from tests.e2e.ingest_server import ingest_server

FAULTS = {
    "records cannot be made": "jobmeter.collect.launch.records:JobRecorder.record_start",
    "the end cannot be recorded": "jobmeter.collect.launch.records:JobRecorder.record_end",
    "frames cannot be encoded": "jobmeter.collect.loop:make_records_frame",
    "samples cannot be encoded": "jobmeter.collect.loop:make_samples_frame",
    "control groups cannot be read": "jobmeter.collect.launch.children:OwnGroups.__init__",
    "groups cannot be checked": "jobmeter.collect.launch.children:OwnGroups.find_entered",
    "the limits cannot be read": "jobmeter.collect.launch.session:read_limits",
    "processes cannot be read": "jobmeter.collect.launch.session:read_stat",
    "storage traffic cannot be read": "jobmeter.collect.launch.session:read_io",
    "the table fails": "jobmeter.collect.discover.table:ProcessTable.refresh",
    "the network cannot be read": "jobmeter.collect.host.network:NetworkCollector.collect",
    "figures fail": "jobmeter.collect.launch.figures:RunFigures.watch",
    "log lines fail": "jobmeter.collect.launch.logs:LogSender.take",
    "log lines cannot be cut": "jobmeter.collect.launch.logs:LineSplitter.feed",
    "the outbox fails": "jobmeter.collect.outbox:Outbox.put",
    "the outbox cannot be read": "jobmeter.collect.outbox:Outbox.peek",
    "the outbox cannot be emptied": "jobmeter.collect.outbox:Outbox.release",
    "the server cannot be asked": "jobmeter.client.transport:Transport.request",
    "the clock fails": "jobmeter.collect.clock:SampleClock.stamp",
    "the loop fails": "jobmeter.collect.loop:Loop.run",
    "the summary fails": "jobmeter.cli.run_summary:show",
}
BREAK = """
import importlib, sys
module, _, path = sys.argv[1].partition(":")
owner = importlib.import_module(module)
*names, last = path.split(".")
for name in names:
    owner = getattr(owner, name)
def broken(*_, **__):
    raise OSError(28, "injected") if len(sys.argv[1]) % 2 else RuntimeError("injected")
getattr(owner, last)  # fails for a name that is gone
setattr(owner, last, broken)
from jobmeter.cli.main import main
main(sys.argv[2:])
"""


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


def launch(server, data, *words, before=(), options=(), **more):
    command = [sys.executable, *(before or ("-m", "jobmeter")), "run", "--data", str(data), "--server", server.url]
    command += ["--key", "k", *options, "--", *words]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **more)


COMMAND = ("sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.1; done; exit 7")


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_the_command_runs_to_its_end(server, tmp_path, fault):
    done = launch(server, tmp_path / "data", *COMMAND, before=("-c", BREAK, FAULTS[fault]))
    assert done.returncode == 7, done.stderr
    assert done.stdout == b"line 1\nline 2\nline 3\n"
    assert b"Traceback" not in done.stderr, done.stderr.decode()


def test_an_argument_that_is_not_utf_8_reaches_the_command_and_the_record(server, tmp_path):
    code = "import os, sys; os.write(1, os.fsencode(sys.argv[1])); sys.exit(3)"
    done = launch(server, tmp_path / "data", sys.executable, "-c", code, b"a\xffb\xf0")
    assert (done.returncode, done.stdout) == (3, b"a\xffb\xf0"), done.stderr
    assert server.jobs[-1]["command"].endswith(" a\\xffb\\xf0")
    assert server.jobs[-1]["state"] == "Failed"
    assert server.values("cpu.time")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_names_and_surroundings_may_hold_any_bytes(server, tmp_path, locale):
    folder = tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    script = folder / os.fsdecode(b"tr\xe9in.sh")
    script.write_text('#!/bin/sh\npwd\nprintf "$ODD"\nexit 5\n')
    script.chmod(0o755)
    done = launch(
        server,
        folder / "data",
        script,
        options=["--name", b"n\xffame", "--type", b"t\xfe"],
        cwd=folder,
        env={**os.environb, b"ODD": b"v\xfd", b"LC_ALL": locale.encode(), b"USER": b"\xff"},
    )
    assert done.returncode == 5, done.stderr
    assert done.stdout == os.fsencode(folder) + b"\nv\xfd"
    assert (server.jobs[-1]["name"], server.jobs[-1]["type"]) == ("n\\xffame", "t\\xfe")


@pytest.mark.parametrize(
    "closing", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full", "2>&1 | true; exit ${PIPESTATUS[0]}"]
)
def test_streams_that_are_closed_or_take_nothing_change_no_status(server, tmp_path, closing):
    command = [sys.executable, "-m", "jobmeter", "run", "--data", str(tmp_path), "--server", server.url, "--key", "k"]
    shell = f'"$@" -- sh -c "sleep 0.2; exit 4" {closing}'
    done = subprocess.run(["bash", "-c", shell, "bash", *command], capture_output=True, check=False, timeout=60)
    assert done.returncode == 4
    assert server.jobs[-1]["exit_code"] == 4


def test_a_server_that_refuses_the_records_is_reported_at_the_end(server, tmp_path):
    refusal = b'{"error": {"code": "invalid_request", "message": "no", "field": "jobs"}}'
    server.refuse = lambda body: (400, {}, refusal)
    done = launch(server, tmp_path / "data", *COMMAND)
    assert done.returncode == 7
    assert b"refused some data: jobs: no" in done.stderr


def test_a_data_folder_that_cannot_be_written_is_reported_and_the_command_runs(server):
    done = launch(server, "/proc/none", *COMMAND)
    assert (done.returncode, done.stdout) == (7, b"line 1\nline 2\nline 3\n")
    assert b"cannot be stored on disk" in done.stderr


def test_a_process_that_outlives_the_command_is_reported(server, tmp_path):
    shell = "sleep 30 >/dev/null 2>&1 & echo $!; exit 6"
    done = launch(server, tmp_path / "data", "sh", "-c", shell, options=["--quiet"])
    pid = int(done.stdout)
    os.kill(pid, 9)
    assert done.returncode == 6
    assert f"1 process of the command still running, unmeasured: {pid}".encode() in done.stderr


def test_the_summary_says_by_what_means_cpu_time_was_counted(server, tmp_path):
    done = launch(server, tmp_path / "data", "true")
    assert b"counted by" in done.stderr
