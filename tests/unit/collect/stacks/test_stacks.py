"""Tests of evidence about ranks: recorded outputs, hostile outputs, limits on time and size, and real processes."""

import fcntl
import io
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import wait_until

from jobmeter.client.transport import Response
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.checks.poll import CheckPoller
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.process.stat import Key, ProcessStat, read_stat
from jobmeter.collect.stacks import collect, python, ras, recorder
from jobmeter.collect.stacks.child import run_aside
from jobmeter.collect.stacks.collect import GoneRank, StackCollector
from jobmeter.collect.stacks.kernel import NO_CALL, read_kernel_state
from jobmeter.collect.stacks.unpickle import PlainUnpickler, list_progress
from jobmeter.model.stacks import (
    MOST_FRAMES,
    MOST_RANKS,
    MOST_THREADS,
    SELECT_OF_NOTHING,
    GroupProgress,
    NodeEvidence,
    is_bounded,
)

RECORDED = Path(__file__).parents[1] / "recorded"
OWN = os.getpid()


@contextmanager
def sleeper():
    """Run a process that sleeps until the end of the block."""
    with subprocess.Popen(["sleep", "600"]) as made:
        try:
            yield made
        finally:
            made.kill()


# py-spy


def test_a_recorded_dump():
    """The dump is py-spy 0.4.3's of Python 3.11: a program that sleeps while a thread waits for a queue."""
    first, second = python.parse_dump((RECORDED / "py_spy_dump.json").read_bytes())
    assert (first.name, second.name) == ("MainThread", "loader")
    assert [(one.function, one.file, one.line) for one in first.frames][:2] == [
        ("load", "/srv/train/data.py", 2),
        ("train", "/srv/train/data.py", 6),
    ]
    assert [one.is_own for one in second.frames] == [False, False, True, False, False, False]


@settings(max_examples=50)
@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_is_more_than_no_dump(text):
    assert isinstance(python.parse_dump(text if isinstance(text, bytes) else text.encode()), list)


def test_a_dump_is_cut_to_its_limits():
    frame = {"name": "f" * 1_000, "filename": "x" * 1_000, "line": None}
    threads = [{"os_thread_id": at, "frames": [frame] * 100} for at in range(1, 40)]
    found = python.parse_dump(json.dumps(threads).encode())
    assert len(found) == MOST_THREADS
    assert all(len(one.frames) == MOST_FRAMES for one in found)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", python.NOT_PERMITTED),
        ("Error: Failed to find python version from target process", python.NO_PYTHON),
        ("Error: something new\n\nStack backtrace: ...", "no Python stacks: something new"),
        ("", "no Python stacks: py-spy printed nothing"),
    ],
)
def test_why_there_are_no_stacks(tmp_path, error, reason):
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{error}\nEND\nexit 1\n")
    program.chmod(0o755)
    assert python.read_python_stacks(OWN, str(program)) == ([], reason)


def test_a_missing_program_is_named():
    assert python.read_python_stacks(OWN, None) == ([], python.NOT_INSTALLED)
    assert "cannot be started" in python.read_python_stacks(OWN, "/nowhere/py-spy")[1]


def test_a_program_on_the_side_has_its_bounds():
    assert run_aside(["sleep", "600"], 0.1, 10).problem == "no end within 0 s"
    endless = run_aside(["yes"], 600.0, 1_000)
    assert endless.problem == "more than 1000 bytes of output"
    assert len(endless.out) == 1_000
    nice = run_aside([sys.executable, "-c", "import os\nwhile os.nice(0) < 19: pass\nprint(os.nice(0))"], 600.0, 1_000)
    assert nice.out.strip() == b"19"


# Tests of the kernel's evidence


def state_of(pid, *more):
    state = read_kernel_state(pid, *more)
    assert state is not None
    return state


def test_the_state_of_a_real_process():
    with sleeper() as process:
        wait_until(lambda: state_of(process.pid).state == "S")
        state = state_of(process.pid)
        assert state.wait or state.missing
    assert read_kernel_state(process.pid) is None


def test_a_process_that_sleeps_by_select():
    code = "import select; select.select([], [], [], 600)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            wait_until(
                lambda: state_of(process.pid).call == SELECT_OF_NOTHING or NO_CALL in state_of(process.pid).missing
            )
        finally:
            process.kill()


def test_a_made_up_process_that_reads_a_pipe_and_hides_its_stack(tmp_path):
    folder = tmp_path / "7"
    (folder / "fd").mkdir(parents=True)
    (folder / "fd" / "5").symlink_to("pipe:[1234]")
    (folder / "stat").write_text("7 (a) b) D 1 " + " ".join(["0"] * 48))
    (folder / "syscall").write_text("0 0x5 0x0\n" if os.uname().machine == "x86_64" else "63 0x5 0x0\n")
    (folder / "wchan").write_text("pipe_read")
    state = state_of(7, str(tmp_path))
    assert (state.state, state.call, state.target, state.wait) == ("D", "read", "pipe:[1234]", "pipe_read")
    assert len(state.missing) == 1
    assert "CAP_SYS_ADMIN" in state.missing[0]


# NCCL's RAS: the texts are the sample outputs of its documentation, see ``ras``.


def test_a_report_of_the_documentation():
    assert ras.parse_report((RECORDED / "nccl_ras.txt").read_text()) == [
        (
            "INCOMPLETE: Missing communicator data from 1 job process; "
            "Process 3487984 on node 172.16.64.213 managing GPU 5"
        ),
        "#0-0 (cf264af53edbe986) INCOMPLETE: Missing communicator data from 1 rank; The missing rank: 21",
        "TIMEOUT: Encountered 2 communication timeouts while gathering communicator data",
        (
            "#0-1 (27a079b828ff1a75) MISMATCH: Communicator ranks have different collective operation counts; "
            "26 ranks have launched up to operation 6650; 1 ranks have launched up to operation 6649; "
            "Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210"
        ),
    ]


@settings(max_examples=50)
@given(st.text())
def test_any_text_is_a_bounded_report(text):
    found = ras.parse_report(text)
    assert len(found) <= 32
    assert all(len(one) <= 512 for one in found)


class Responder:
    """Listener in this process that responds once, as NCCL does or otherwise."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._answers = answers
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rb") as reader:
            for answer in self._answers:
                self.requests.append(reader.readline())
                connection.sendall(answer)

    def close(self) -> None:
        self._thread.join()
        self._socket.close()


def test_a_query_speaks_the_protocol():
    report = (RECORDED / "nccl_ras.txt").read_bytes()
    nccl = Responder(b"SERVER PROTOCOL 2\n", b"OK\n", report)
    found, problem = ras.query_ras([OWN], f"localhost:{nccl.port}")
    nccl.close()
    assert problem == ""
    assert len(found) == 4
    assert nccl.requests == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 5\n", b"VERBOSE STATUS\n"]


def test_what_is_not_nccl_is_left_alone():
    other = Responder(b"HTTP/1.1 400 Bad Request\n")
    found, problem = ras.query_ras([OWN], f"127.0.0.1:{other.port}")
    other.close()
    assert found == []
    assert "does not speak its protocol" in problem


def test_only_a_socket_of_the_job_on_this_machine_is_connected_to():
    nccl = Responder()
    with sleeper() as stranger:
        for pid, address in [
            (stranger.pid, f"localhost:{nccl.port}"),
            (OWN, f"203.0.113.9:{nccl.port}"),
            (OWN, f"example.com:{nccl.port}"),
            (OWN, "localhost:0"),
            (OWN, "localhost:x"),
            (OWN, ""),
        ]:
            assert ras.query_ras([pid], address) == ([], "")
    socket.create_connection(("127.0.0.1", nccl.port)).close()
    nccl.close()


# Tests of PyTorch's flight recorder


def dump(enqueued=12, completed=11):
    """Return a dump in the form that PyTorch's documentation shows, version 2.5."""
    return {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": enqueued, "last_started_collective": -1,
                            "last_completed_collective": completed}},
        "entries": [{"record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 12,
                     "profiling_name": "nccl:all_reduce", "state": "scheduled"}],
    }  # fmt: skip


PROGRESS = GroupProgress(
    group="0", description="default_pg", members=4, enqueued=12, completed=11, operation="all_reduce"
)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


class Outside(pickle.Pickler):
    def persistent_id(self, obj):
        return "elsewhere" if isinstance(obj, bytearray) else None


def persistent():
    file = io.BytesIO()
    Outside(file).dump([bytearray()])
    return file.getvalue()


HOSTILE = {
    "a call": pickle.dumps(Evil()),
    "a call, old protocol": pickle.dumps(Evil(), protocol=0),
    "a class": pickle.dumps(Path("/tmp")),
    "a reference": persistent(),
    "an extension": b"\x80\x02\x82\x01.",
    "much memory": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
    "much memory by doubling": b"]" + b"(" + b"e".join([b"2" * 1000]) + b".",
    "a long number": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"\xff.",
    "depth": b"(" * 1_000_000,
    "nothing": b"",
    "garbage": b"\xff" * 100,
    "cut": pickle.dumps(dump())[:-20],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_dump_is_refused_with_a_sentence(tmp_path, name):
    (tmp_path / "fr_3").write_bytes(HOSTILE[name])
    groups, problem = recorder.read_dump(OWN, 3, {recorder.FILES[0]: f"{tmp_path}/fr_"}, 0.0)
    assert groups == []
    assert problem.startswith("no dump of PyTorch's flight recorder in ")


@settings(max_examples=50)
@given(st.recursive(st.none() | st.integers() | st.text() | st.booleans(), lambda some: st.dictionaries(
    st.sampled_from(["pg_status", "pg_config", "entries", "0", "ranks", "process_group", "last_enqueued_collective"]),
    some | st.lists(some))))  # fmt: skip
def test_any_plain_value_is_a_dump_or_none(value):
    assert isinstance(list_progress(PlainUnpickler(io.BytesIO(pickle.dumps(value))).load()), list)


def test_a_dump_is_requested_through_the_pipe_and_read(tmp_path):
    variables = {recorder.PIPE: f"{tmp_path}/pipe_", recorder.FILES[1]: f"{tmp_path}/fr_"}
    os.mkfifo(tmp_path / "pipe_3.pipe")
    pipe = os.open(tmp_path / "pipe_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
    recorder.request_dump(OWN, 3, variables)
    assert os.read(pipe, 100)
    os.close(pipe)
    (tmp_path / "fr_3").write_bytes(pickle.dumps(dump()))
    assert recorder.read_dump(OWN, 3, variables, 1.0) == ([PROGRESS], "")


def test_an_old_dump_does_not_answer_a_request(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "_WAIT", 0.0)
    (tmp_path / "fr_3").write_bytes(pickle.dumps(dump()))
    os.utime(tmp_path / "fr_3", (1_000, 1_000))
    variables = {recorder.PIPE: f"{tmp_path}/pipe_", recorder.FILES[1]: f"{tmp_path}/fr_"}
    groups, problem = recorder.read_dump(OWN, 3, variables, 2_000.0)
    assert groups == []
    assert "wrote none when its pipe requested one" in problem


def test_a_dump_of_an_earlier_process_does_not_count(tmp_path):
    (tmp_path / "fr_3").write_bytes(pickle.dumps(dump()))
    variables = {recorder.FILES[1]: f"{tmp_path}/fr_"}
    assert recorder.read_dump(OWN, 3, variables, 0.0) == ([PROGRESS], "")
    os.utime(tmp_path / "fr_3", (1_000, 1_000))
    assert recorder.read_dump(OWN, 3, variables, 0.0)[1].endswith("the process wrote none")


def test_nothing_is_said_of_a_recorder_that_is_not_set_up():
    assert recorder.read_dump(OWN, 0, {}, 0.0) == ([], "")


def test_no_file_of_others_is_opened(tmp_path, monkeypatch):
    """A job names a file: a link, a folder, a device and a file of another user are refused."""
    (tmp_path / "target").write_bytes(pickle.dumps(dump()))
    (tmp_path / "fr_0").symlink_to(tmp_path / "target")
    (tmp_path / "fr_1").mkdir()
    (tmp_path / "fr_2").write_bytes(pickle.dumps(dump()))
    os.truncate(tmp_path / "fr_2", recorder.MOST_FILE_BYTES + 1)
    (tmp_path / "fr_3").write_bytes(pickle.dumps(dump()))
    for rank in range(3):
        assert recorder.read_dump(OWN, rank, {recorder.FILES[0]: f"{tmp_path}/fr_"}, 0.0)[1] != ""
    assert recorder.read_dump(OWN, 3, {recorder.FILES[0]: "fr_"}, 0.0)[1].endswith("its name is not absolute")
    monkeypatch.setattr(recorder, "read_real_user", lambda _proc, _pid: os.getuid() + 1)
    assert "not a file of the job's user" in recorder.read_dump(OWN, 3, {recorder.FILES[0]: f"{tmp_path}/fr_"}, 0.0)[1]


UNLOCK_TERMINAL, TERMINAL_NUMBER = 0x40045431, 0x80045430
"""TIOCSPTLCK and TIOCGPTN of ioctl_tty(2)."""


def test_a_device_that_a_job_names_is_never_opened():
    """Some devices act as soon as they are opened. A terminal shows the open: its master then reads a hangup."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(master, UNLOCK_TERMINAL, struct.pack("i", 0))
        (number,) = struct.unpack("i", fcntl.ioctl(master, TERMINAL_NUMBER, b"\0" * 4))
        for name in (recorder.FILES[0], recorder.PIPE):
            recorder.request_dump(OWN, number, {recorder.PIPE: "/dev/pts/"})
            problem = recorder.read_dump(OWN, number, {name: "/dev/pts/", recorder.FILES[0]: "/dev/pts/"}, 0.0)[1]
            assert "not a file of the job's user" in problem
        with pytest.raises(BlockingIOError):
            os.read(master, 1)
        os.close(os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY))
        with pytest.raises(OSError, match="Input/output error"):
            os.read(master, 1)
    finally:
        os.close(master)


# All sources together


def process(pid, replica="worker-0", parent=1, ticks=0, rank=None):
    stat = read_stat("/proc", pid) or ProcessStat(Key(pid, pid), parent, "S", ticks, 1, 0)
    member = Member(owner=Owner("j", replica), source=MembershipSource.TAGS, process_rank=rank)
    return Process(stat._replace(parent=parent, cpu_ticks=ticks), member), member.owner


def collector(processes, **more):
    return StackCollector(lambda _job: processes, between=0.0, **more)


def test_the_worker_of_a_rank_is_found_behind_shells_and_launchers(tmp_path):
    """bash (10) starts a launcher in Python (11), which starts ranks 0 (12) and 1 (13); 14 is a loader of rank 1."""
    for pid, program in ((10, "bash"), (11, "python3.11"), (12, "python3.11"), (13, "python3.11"), (14, "python3.11")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "exe").symlink_to(f"/usr/bin/{program}")
    own = [
        process(10), process(11, parent=10, rank=0), process(12, parent=11, rank=0), process(13, parent=11, rank=1),
        process(14, parent=13, rank=1, ticks=10**6),
    ]  # fmt: skip
    ranks = StackCollector(lambda _job: own, proc_root=str(tmp_path)).find_ranks(own)
    assert [(one.key, one.pid) for one in ranks] == [(("worker-0", 0, 0), 12), (("worker-0", 0, 1), 13)]
    alone = [process(10), process(12, parent=10), process(13, parent=10, ticks=5)]
    ranks = StackCollector(lambda _job: alone, proc_root=str(tmp_path)).find_ranks(alone)
    assert [one.pid for one in ranks] == [13], "the busiest child of a shell"


def test_evidence_of_real_processes_without_py_spy(monkeypatch):
    monkeypatch.setattr(collect, "find_py_spy", lambda: None)
    with sleeper() as one:
        gone = GoneRank(Owner("j", "worker-1"), 1, 99, 137)
        evidence = collector([process(one.pid, rank=0)], gone=lambda _job: [gone]).collect("j")
    first, second = evidence.ranks
    assert (first.pid, first.rank, first.threads) == (one.pid, 0, [])
    assert first.missing[0] == python.NOT_INSTALLED
    assert (second.state, second.exit_code) == ("X", 137)
    assert is_bounded(evidence)


def test_no_rank_no_evidence_and_not_too_often(monkeypatch):
    monkeypatch.setattr(collect, "find_py_spy", lambda: None)
    assert collector([]).collect("j") is None
    calls = []
    with sleeper() as one:

        def processes(job):
            calls.append(job)
            return [process(one.pid)]

        found = StackCollector(processes, between=0.0)
        assert found.collect("j") == found.collect("j")
    assert calls == ["j"]


class Server:
    """Server that gives the same requests at each poll, and takes the answers."""

    def __init__(self, *requests):
        self.requests = list(requests)
        self.bodies = []

    def request(self, method, path, body=None, headers=None):
        self.bodies.append(json.loads(body))
        return Response(200, {}, json.dumps({"asks": self.requests}).encode())


def test_a_run_answers_requests_for_its_ranks_alone_and_leaves_what_it_does_not_measure(monkeypatch):
    """Checks of the node are for its agent, even if a server gives them to every poll."""
    monkeypatch.setattr(collect, "find_py_spy", lambda: None)
    server = Server({"task": "t1", "checks": ["disks"]}, {"task": "t2", "checks": [], "job": "j"})
    with sleeper() as one:
        own = collector([process(one.pid)])
        poller = CheckPoller(NodeIdentity("n", project="p"), lambda: server, None, own, 1_000, "j")
        assert poller.poll_once() == 1
    first, second = server.bodies
    assert (first["job"], first["project"], first["answers"]) == ("j", "p", [])
    assert [answer["task"] for answer in second["answers"]] == ["t2"]
    none = CheckPoller(NodeIdentity("n"), lambda: server, None, collector([]), 1_000, "j")
    assert none.poll_once() == 0


def test_what_measures_a_job_answers_for_its_processes():
    server = Server(*({"task": name, "checks": ["processes"], "job": name} for name in ("j", "another")))
    with sleeper() as one:
        members = {"j": [process(one.pid)]}
        stacks = StackCollector(lambda job: members.get(job, []))
        poller = CheckPoller(NodeIdentity("n", project="p"), lambda: server, None, stacks, 1_000, "j")
        assert poller.poll_once() == 1
    [answer] = server.bodies[1]["answers"]
    assert (answer["task"], {check["name"] for check in answer["checks"]}) == ("j", {"processes"})
    assert [use["pid"] for use in answer["checks"][1]["processes"]] == [one.pid], "ranked by memory"


def test_the_ranks_and_the_time_of_a_node_are_bounded(monkeypatch):
    monkeypatch.setattr(collect, "BUDGET_SECONDS", -1.0)
    many = [process(2**22 + at, f"worker-{at}") for at in range(MOST_RANKS + 3)]
    evidence = collector(many).collect("j")
    assert len(evidence.ranks) == MOST_RANKS
    assert evidence.missing == [f"no evidence of 3 more ranks on the node: {MOST_RANKS} at most"]


def test_what_is_too_large_is_not_bounded():
    from msgspec.structs import replace

    from jobmeter.model.stacks import RankEvidence, StackFrame, ThreadStack

    rank = RankEvidence(replica="worker-0")
    assert is_bounded(NodeEvidence([rank]))
    for bad in (
        replace(rank, wait="x" * 1_000),
        replace(rank, kernel=["x"] * 1_000),
        replace(rank, threads=[ThreadStack(1, "t", [])] * 1_000),
        replace(rank, threads=[ThreadStack(1, "t", [StackFrame("f", "x" * 1_000, 1)])]),
        replace(rank, groups=[GroupProgress(group="0")] * 100),
    ):
        assert not is_bounded(NodeEvidence([bad]))
    assert not is_bounded(NodeEvidence([rank] * 1_000))
