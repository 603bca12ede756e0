"""Tests of ``jobmeter run`` with real processes: the user sees only the command, and the server gets the job."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.ingest_server import ingest_server
from tests.support.waiting import wait_until


@pytest.fixture
def server():
    with ingest_server() as received:
        yield received


class Runner:
    """Runs commands as jobs, and captures everything."""

    def __init__(self, data, server):
        self.data, self.server = data, server

    def command(self, *words, options=()):
        command = [sys.executable, "-m", "jobmeter", "run", "--data", str(self.data)]
        if "--server" not in options:
            command += ["--server", self.server.url, "--key", "secret"]
        return [*command, *options, "--", *words]

    def start(self, *words, options=(), environment=None, stdin=subprocess.DEVNULL, before="", **more):
        """Start a run. ``before`` contains shell commands before the shell becomes the run."""
        command = self.command(*words, options=options)
        return subprocess.Popen(
            ["sh", "-c", f'{before}; exec "$@"', "sh", *command] if before else command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            **more,
        )

    def __call__(self, *words, feed=None, **more):
        if feed is not None:
            more["stdin"] = subprocess.PIPE
        with self.start(*words, **more) as process:
            out, err = process.communicate(feed, timeout=60)
        return process.returncode, out, err.decode()


@pytest.fixture
def run(tmp_path, server):
    return Runner(tmp_path / "data", server)


def python(code):
    return sys.executable, "-c", code


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("no-such-command-anywhere",), 127),
        (("/etc/passwd",), 126),
        (("/",), 126),
    ],
)
def test_the_exit_status_is_the_commands(run, words, status):
    assert run(*words)[0] == status


def test_output_and_input_pass_through_byte_for_byte(run):
    data = bytes(range(256)) * 5000
    status, out, err = run("cat", feed=data, options=["--quiet"])
    assert (status, out, err) == (0, data, "")


def test_what_the_command_says_on_standard_error_comes_out_as_it_is(run):
    _, _, err = run(*python("import sys; sys.stderr.write('one\\ntwo'); sys.stdout.write('x')"), options=["--quiet"])
    assert err == "one\ntwo"


def test_a_job_that_lives_for_200_ms_is_recorded_and_measured(run, server):
    status, _, err = run(
        *python("import time\nwhile time.process_time() < 0.15: pass"), options=["--type", "PyTorchJob"]
    )
    assert status == 0
    first, *_, last = server.jobs
    assert (first["state"], last["state"], last["exit_code"]) == ("Running", "Succeeded", 0)
    assert first["job_id"] == last["job_id"]
    assert last["type"] == "PyTorchJob"
    assert last["command"].startswith(sys.executable)
    assert {"cpu.limit", "memory.limit"} <= set(last["limits"])
    assert first["start"] <= first["created"] <= last["end"]
    (replica,) = last["replicas"]
    assert replica["name"] == "worker-0"
    assert replica["exit_code"] == 0
    times = server.values("cpu.time", job=last["job_id"], replica="worker-0")
    assert len(times) >= 2
    assert times[0][0] >= last["start"]
    assert times[-1][0] == last["end"]
    assert 0.14 <= times[-1][1] <= 2, "all that it used, but for a tick of the kernel"
    assert last["job_id"] in err


def test_the_cpu_time_at_the_end_is_that_of_the_whole_family(run, server):
    """Short-lived children between two samples, and a child whose parent ignores it, count completely."""
    code = """
import os, resource, signal, subprocess, sys, time
burn = "import time; t = time.process_time()\\nwhile time.process_time() - t < 0.15: pass"
for _ in range(4):
    subprocess.run([sys.executable, "-c", burn], check=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", burn.replace("0.15", "1.5")])
child.wait()
"""
    status, _, err = run(*python(code), options=["--interval", "200ms"])
    assert status == 0, err
    values = [value for _, value in server.values("cpu.time")]
    assert values == sorted(values)
    assert values[-1] > 4 * 0.15 + 1.2


def test_a_signal_is_passed_on_once_and_its_effect_is_the_commands(run, server):
    code = """
import signal, sys
numbers = [getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2")]
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
for _ in numbers: print(int(signal.sigwait(numbers)), flush=True)
sys.exit(3)
"""
    numbers = [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ]
    with run.start(*python(code), start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        for number in numbers:
            process.send_signal(number)
            assert int(process.stdout.readline()) == number
        out, _ = process.communicate(timeout=60)
    assert out == b""
    assert process.returncode == 3
    assert server.jobs[-1]["state"] == "Stopped"


def test_a_signal_to_the_whole_group_reaches_the_command_once(run):
    code = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])
print("ready", flush=True)
signal.sigwait([signal.SIGTERM])
os.kill(os.getppid(), signal.SIGUSR2)  # passed on after a second SIGTERM would have been
signal.sigwait([signal.SIGUSR2])
print(1 + (signal.SIGTERM in signal.sigpending()))
"""
    with run.start(*python(code), start_new_session=True) as process:
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert out == b"1\n"


def test_a_shell_does_not_leave_its_program_behind(run, tmp_path):
    with run.start("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; echo ready; wait", start_new_session=True) as job:
        job.stdout.readline()
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_the_caller_ignores_stays_ignored(run):
    code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.pthread_sigmask(0, []))"
    with run.start(*python(code), before="trap '' HUP", options=["--quiet"]) as process:
        out, _ = process.communicate(timeout=60)
    assert out == b"True set()\n"


def test_replicas_get_ranks_and_the_first_failure_decides(run, server):
    code = """
import os, sys
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR JOBMETER_REPLICA".split()
line = " ".join(os.environ[name] for name in names) + " " + repr(sys.stdin.read()) + "\\n"
os.write(1, line.encode())
assert 0 < int(os.environ["MASTER_PORT"]) < 65536
sys.exit(5 if os.environ["RANK"] == "1" else 0)
"""
    status, out, _ = run(*python(code), feed=b"input", options=["--replicas", "3"])
    assert status == 5
    assert sorted(out.decode().splitlines()) == [
        "0 0 3 3 0 127.0.0.1 worker-0 'input'",
        "1 1 3 3 0 127.0.0.1 worker-1 ''",
        "2 2 3 3 0 127.0.0.1 worker-2 ''",
    ]
    last = server.jobs[-1]
    assert [(r["name"], r.get("rank"), r["exit_code"]) for r in last["replicas"]] == [
        ("worker-0", 0, 0),
        ("worker-1", 1, 5),
        ("worker-2", 2, 0),
    ]
    assert last["state"] == "Failed"
    (event,) = server.events
    assert (event["job"], event["replica"], event["reason"]) == (last["job_id"], "worker-1", "Exited")
    assert (event["level"], event["source"]) == ("error", "replica")
    assert "status 5" in event["message"]
    assert {sample.series.replica for sample in server.samples if sample.series.metric == "cpu.time"} == {
        "worker-0",
        "worker-1",
        "worker-2",
    }


def test_without_replicas_the_environment_has_the_tags_the_socket_and_nothing_else_new(run, tmp_path):
    status, out, _ = run("env", "-0", options=["--job-id", "mine", "--quiet"], environment={"KEPT": "a\nb"})
    assert status == 0
    got = dict(entry.split("=", 1) for entry in out.decode().split("\0") if entry)
    assert got["KEPT"] == "a\nb"
    assert got.pop("JOBMETER_SOCKET").endswith(".sock")  # address for the command's metrics
    assert {name: got[name] for name in got if name.startswith("JOBMETER_")} == {
        "JOBMETER_JOB_ID": "mine",
        "JOBMETER_REPLICA": "worker-0",
        "JOBMETER_ATTEMPT": "0",
        "JOBMETER_MEASURED": "run",
    }
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT"} & (set(got) - set(os.environ))


def test_an_open_file_of_the_caller_reaches_the_command(run, tmp_path):
    (tmp_path / "secret").write_text("through")
    descriptor = os.open(tmp_path / "secret", os.O_RDONLY)
    try:
        _, out, _ = run("sh", "-c", f"cat /dev/fd/{descriptor}", pass_fds=[descriptor], options=["--quiet"])
    finally:
        os.close(descriptor)
    assert out == b"through"


def test_without_a_server_the_command_runs_and_the_next_run_sends_its_samples(run, server, tmp_path):
    nowhere = ["--server", "http://127.0.0.1:9", "--key", "secret", "--job-id", "first"]
    status, out, err = run("sh", "-c", "echo done; exit 4", options=nowhere)
    assert (status, out) == (4, b"done\n")
    assert "not delivered" in err
    assert server.bodies == []
    # Use the same server address: data that waits for one server is never sent to another.
    assert run("true", options=["--job-id", "other"])[0] == 0
    assert {job["job_id"] for job in server.jobs} == {"other"}
    for folder in (tmp_path / "data" / "spool").glob("run-*"):
        (folder / "target").write_text(server.url)
    assert run("true", options=["--job-id", "second"])[0] == 0
    assert [job["job_id"] for job in server.jobs][1:].count("first") == 2
    assert {"first", "second"} <= {sample.series.job for sample in server.samples}
    assert list((tmp_path / "data" / "spool").glob("run-*")) == []


def test_quiet_says_nothing_and_otherwise_the_summary_names_the_job(run):
    assert run("true", options=["--quiet"])[2] == ""
    _, _, err = run("true", options=["--job-id", "seen"])
    assert "seen" in err
    assert "jobmeter show seen" in err
    assert "Succeeded" in err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--interval", "nonsense"], "--interval"),
        (["--interval", "1ms"], "--interval"),
        (["--job-id", "a/b"], "--job-id"),
        (["--project", "no spaces"], "--project"),
        (["--replicas", "0"], "--replicas"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_started(run, tmp_path, options, word):
    status, _, err = run("touch", str(tmp_path / "started"), options=options)
    assert status == 2
    assert word in err
    assert not (tmp_path / "started").exists()


def test_a_kill_for_want_of_memory_is_reported(run, server):
    """Use the kernel's own limit, if this machine allows to create and limit a cgroup."""
    group = Path(f"/sys/fs/cgroup/memory/jobmeter-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group of version 1 can be made here")
    try:
        (group / "memory.limit_in_bytes").write_text(str(96 * 2**20))
        code = "x = bytearray(200_000_000)"
        with run.start(*python(code), before=f"echo 0 > {group}/cgroup.procs") as process:
            process.communicate(timeout=60)
        assert process.returncode == 137
        last = server.jobs[-1]
        assert last["state"] == "Failed"
        assert "OOMKilled" in last["error"]
        assert "OOMKilled" in last["replicas"][0]["reason"]
        # The end of the replica and the counter of its cgroup describe the same kill, which makes one event.
        assert [event["reason"] for event in server.events] == ["OOMKilled"]
        assert last["limits"]["memory.limit"] == 96 * 2**20
    finally:
        wait_until(lambda: _removed(group), "the end of the group", 5)


def _removed(folder):
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def test_ctrl_c_on_a_terminal_reaches_the_command_once(run, server):
    """Both are in the terminal's foreground group, so the kernel signals both. Forwarding would signal twice."""
    code = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR2])
print("ready", sys.stdin.isatty(), flush=True)
signal.sigwait([signal.SIGINT])
os.kill(os.getppid(), signal.SIGUSR2)  # passed on after a second SIGINT would have been
signal.sigwait([signal.SIGUSR2])
print("got", 1 + (signal.SIGINT in signal.sigpending()), flush=True)
"""
    with subprocess.Popen(
        [*python("import pty, sys; pty.spawn(sys.argv[1:])"), *run.command(*python(code), options=["--quiet"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as terminal:
        assert terminal.stdout is not None
        assert terminal.stdin is not None
        assert terminal.stdout.readline() == b"ready True\r\n"
        terminal.stdin.write(b"\x03")
        terminal.stdin.flush()
        out = terminal.stdout.read()
    assert b"got 1\r\n" in out
