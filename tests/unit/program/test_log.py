"""Tests of ``jobmeter.log`` and related functions: delivery, counted losses, and no effect on the program."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.program.report_thread import MOST, ReportThread
from jobmeter.wire.program import places, report


@contextmanager
def receiving(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(path))
        made.settimeout(20)
        yield made


@pytest.fixture
def folder(tmp_path_factory):
    """Return a folder with a short path, because a socket's path has at most 107 bytes."""
    return tmp_path_factory.mktemp("p")


def messages(made, enough):
    """Receive messages until ``enough`` of the received points, events and facts is true."""
    found: list[report.ProgramReport] = []
    while not enough(found):
        found.append(report.decode(made.recv(70_000)))
    return found


def points(found):
    return [point for one in found for point in one.points]


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_program_reports_values_facts_and_events(folder):
    code = """
import jobmeter
jobmeter.meta(model="tiny", layers=4)
jobmeter.log({"val/loss": 2}, step=3)
jobmeter.event("resumed", "again", step=3, level="warning")
with jobmeter.span("save"):
    pass
"""
    with receiving(folder / "s") as made:
        done = python(code, JOBMETER_SOCKET=str(folder / "s"))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        found = messages(made, lambda found: len(points(found)) == 2 and sum(len(one.events) for one in found) == 2)
    assert [one.meta for one in found if one.meta] == [{"model": "tiny", "layers": 4}]
    (first, second) = points(found)
    assert first[1:] == (3.0, {"val/loss": 2.0})
    assert list(second[2]) == ["save_seconds"]
    events = [event[1:] for one in found for event in one.events]
    assert events[0] == ("warning", "resumed", "again, step 3")
    assert events[1][:2] == ("info", "save")


@pytest.mark.parametrize(
    "socket_of",
    [
        lambda folder: str(folder / "none"),
        lambda folder: "@no-such-name",
        str,
        lambda folder: str(folder) + "x" * 200,
    ],
)
def test_without_a_receiver_nothing_happens(folder, socket_of):
    code = "import jobmeter, sys\nfor i in range(50_000): jobmeter.log(step=i, loss=i)\nsys.exit(7)"
    done = python(code, JOBMETER_SOCKET=socket_of(folder))
    assert (done.returncode, done.stderr) == (7, "")


def test_no_argument_makes_a_call_raise(folder):
    code = """
import jobmeter
class Bad:
    def __float__(self): raise RuntimeError
    def __str__(self): raise RuntimeError
for bad in (Bad(), None, "x", {}, object, 10**400, float("nan"), True, "\\ud800"):
    jobmeter.log(bad)
    jobmeter.log(loss=bad, step=bad)
    jobmeter.log({bad: 1} if bad.__hash__ else bad)
    jobmeter.meta(model=bad)
    jobmeter.event(bad, bad)
    with jobmeter.span(bad):
        pass
jobmeter.log(loss=1.0)
"""
    with receiving(folder / "s") as made:
        done = python(code, JOBMETER_SOCKET=str(folder / "s"))
        assert (done.returncode, done.stderr) == (0, "")
        found = messages(made, lambda found: any(point[2] == {"loss": 1.0} for point in points(found)))
    assert {"loss": "nan"} in [point[2] for point in points(found)]
    assert sum(one.dropped for one in found) >= 7


def test_a_fork_sends_its_own_values_once(folder):
    code = """
import jobmeter, os
jobmeter.log(who=0)
child = os.fork()
if not child:
    jobmeter.log(who=1)
    jobmeter.flush(5)
    os._exit(0)
os.waitpid(child, 0)
"""
    with receiving(folder / "s") as made:
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        found = messages(made, lambda found: len(points(found)) >= 2)
        made.settimeout(0.01)
        with pytest.raises(TimeoutError):
            made.recv(70_000)
    assert sorted(point[2]["who"] for point in points(found)) == [0.0, 1.0]


def test_children_of_multiprocessing_send_before_they_end(folder):
    code = """
import multiprocessing, jobmeter
def work(rank): jobmeter.log(rank=rank)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work, args=(rank,)) for rank in range(4)]
    for child in children: child.start()
    for child in children: child.join()
"""
    with receiving(folder / "s") as made:
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        found = messages(made, lambda found: len(points(found)) >= 4)
    assert sorted(point[2]["rank"] for point in points(found)) == [0.0, 1.0, 2.0, 3.0]


def test_a_signals_handler_may_report(folder):
    code = """
import jobmeter, signal, os
signal.signal(signal.SIGUSR1, lambda *_: jobmeter.log(handled=1))
for i in range(2_000):
    jobmeter.log(step=i, loss=i)
    os.kill(os.getpid(), signal.SIGUSR1)
"""
    with receiving(folder / "s") as made:
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        assert messages(made, lambda found: any("handled" in point[2] for point in points(found)))


@pytest.fixture
def sender(folder, monkeypatch):
    monkeypatch.setenv(places.VARIABLE, str(folder / "s"))
    made = ReportThread()
    made.thread = threading.current_thread()  # no second thread: the test performs each turn
    yield made
    made.sockets.close()


def put(sender, moment_ms, step, **values):
    sender.queue.append((moment_ms * 1_000_000, step, values))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(-5, 5) | st.none(),
            st.dictionaries(st.text(max_size=8), st.floats(width=32), max_size=4),
        ),
        max_size=60,
    )
)
def test_values_arrive_as_they_are_or_are_counted(calls):
    calls.sort(key=lambda call: call[0])
    sender = ReportThread()
    for moment, step, values in calls:
        put(sender, moment, step, **values)
    sender.drain()
    sent = [json.loads(text) for text, _ in sender.pending]
    found = report.decode(json.dumps({"jobmeter": 1, "points": sent}).encode()).points
    calls = [call for call in calls if call[2]]
    given_values = [
        (None if step is None else float(step), name, value)
        for _, step, values in calls
        for name, value in values.items()
    ]
    arrived = [(step, name, float(value)) for _, step, values in found for name, value in values.items()]
    assert [str(one) for one in arrived] == [str(one) for one in given_values]
    times = [moment for moment, _, _ in found]
    assert times == sorted(set(times))


def test_many_calls_in_a_millisecond_are_thinned_and_counted(sender):
    for step in range(5_000):
        put(sender, 1_000, step, loss=step)
    sender.drain()
    found = [json.loads(text) for text, _ in sender.pending]
    assert found[-1][1:] == [4_999.0, {"loss": 4_999.0}]
    assert max(moment for moment, _, _ in found) <= 1_000 + 201
    assert len(found) + sender.dropped == 5_000


def test_a_full_socket_stops_nothing_and_what_is_lost_is_counted(sender, folder):
    with receiving(folder / "s") as made:
        total = 0
        for turn in range(40):
            for at in range(1_000):
                put(sender, turn * 1_000 + at, at, loss=at)
                total += 1
            sender.turn(due=True)
        made.settimeout(0.01)
        found = []
        while True:
            try:
                found.append(report.decode(made.recv(70_000)))
            except TimeoutError:
                if not sender.pending and not sender.dropped:
                    break
                sender.turn(due=True)
    assert len(points(found)) + sum(one.dropped for one in found) == total
    assert sum(one.dropped for one in found) > 0


def test_a_receiver_that_returns_gets_the_newest_values_and_the_facts_again(sender, folder, monkeypatch):
    monkeypatch.setattr("jobmeter.program.sockets._LOOK_SECONDS", 0.0)
    sender.note_meta({"model": "tiny"})
    with receiving(folder / "s") as made:
        put(sender, 1, 1, loss=1)
        sender.turn(due=True)
        assert points(messages(made, points))[0][2] == {"loss": 1.0}
    (folder / "s").unlink()
    for at in range(MOST + 5):
        put(sender, 10 + at, at, loss=at)
        sender.turn(due=at % 1_000 == 0)
    with receiving(folder / "s") as made:
        found = []
        made.settimeout(0.01)
        while sender.pending:
            sender.turn(due=True)
            try:
                while True:
                    found.append(report.decode(made.recv(70_000)))
            except TimeoutError:
                continue
    assert [one.meta for one in found if one.meta] == [{"model": "tiny"}]
    assert points(found)[-1][1] == MOST + 4
    assert sum(one.dropped for one in found) + len(points(found)) == MOST + 5


def test_a_receiver_that_comes_beside_another_gets_the_values_and_the_facts(sender, folder, monkeypatch):
    monkeypatch.setattr("jobmeter.program.sockets._LOOK_SECONDS", 0.0)
    paths = [str(folder / "a.sock")]
    monkeypatch.setattr(places, "list_sockets", lambda _value, _user: list(paths))
    sender.note_meta({"model": "tiny"})
    with receiving(folder / "a.sock"), receiving(folder / "b.sock") as later:
        put(sender, 1, 1, loss=1)
        sender.turn(due=True)
        paths.append(str(folder / "b.sock"))
        put(sender, 2, 2, loss=2)
        sender.turn(due=True)
        found = messages(later, points)
    assert [one.meta for one in found if one.meta] == [{"model": "tiny"}]
    assert [point[1] for point in points(found)] == [2.0]


def test_facts_that_one_message_cannot_hold_arrive(sender, folder):
    facts = {f"{number:03}{'n' * 150}": "\u20ac" * 500 for number in range(90)}
    sender.note_meta(facts)
    with receiving(folder / "s") as made:
        arrived: dict[str, float | str] = {}
        made.settimeout(0.01)
        for _ in range(20):
            sender.turn(due=True)
            try:
                while True:
                    data = made.recv(70_000)
                    assert len(data) <= places.MOST_BYTES
                    arrived |= report.decode(data).meta
            except TimeoutError:
                continue
    assert arrived == facts


def test_a_program_that_closes_all_descriptors_keeps_the_files_that_it_opens_then(folder):
    code = """
import jobmeter, os
jobmeter.log(before=1)
assert jobmeter.flush(20)
os.closerange(3, 100)
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
jobmeter.log(after=1)
assert jobmeter.flush(20)
for one in opened: os.fstat(one)
"""
    with receiving(folder / "s") as made:
        done = python(code, JOBMETER_SOCKET=str(folder / "s"))
        assert (done.returncode, done.stderr) == (0, "")
        found = messages(made, lambda found: len(points(found)) == 2)
    assert [list(point[2]) for point in points(found)] == [["before"], ["after"]]


def test_what_waits_at_the_end_is_sent_although_the_socket_is_full(folder):
    code = """
import jobmeter, time
from jobmeter.program import log, report_thread
report_thread._LAST_SECONDS = 20
now = time.time()
for at in range(9_000):
    log.log_at(now - 100 + at / 100, {f"a_long_name_of_a_value_{part}": float(at) for part in range(3)})
"""
    with receiving(folder / "s") as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        found: list[report.ProgramReport] = []
        reader = threading.Thread(target=lambda: found.extend(messages(made, lambda some: len(points(some)) >= 9_000)))
        reader.start()
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        reader.join()
    assert len(points(found)) == 9_000


def test_a_handler_at_the_end_of_the_program_may_report(folder):
    code = "import atexit, jobmeter\natexit.register(lambda: jobmeter.log(last=1))\njobmeter.log(first=1)"
    with receiving(folder / "s") as made:
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        found = messages(made, lambda found: len(points(found)) == 2)
    assert [list(point[2]) for point in points(found)] == [["first"], ["last"]]


def test_values_on_a_device_are_copied_there_and_read_by_the_thread(folder):
    code = """
import threading, jobmeter
class Device: type = "cuda"
class Tensor:
    device = Device
    def __init__(self, value): self.value = value
    def detach(self): return self
    def clone(self): return Tensor(self.value)
    def __float__(self):
        assert threading.current_thread() is not threading.main_thread()
        return self.value
one = Tensor(5.0)
jobmeter.log(loss=one)
one.value = 6.0
"""
    with receiving(folder / "s") as made:
        assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == 0
        assert points(messages(made, points))[0][2] == {"loss": 5.0}


def test_a_program_that_is_killed_ends_by_its_signal(folder):
    code = "import jobmeter, os, signal\njobmeter.log(loss=1)\nos.kill(os.getpid(), signal.SIGKILL)"
    assert python(code, JOBMETER_SOCKET=str(folder / "s")).returncode == -signal.SIGKILL


def test_importing_loads_nothing_but_the_package():
    code = "import sys; before = set(sys.modules); import jobmeter; print(*sorted(set(sys.modules) - before))"
    loaded = set(python(code).stdout.split())
    assert loaded <= {"importlib", "warnings", "jobmeter", "importlib._bootstrap", "importlib._bootstrap_external"}
    code = "import jobmeter, sys; jobmeter.log; print(*sorted(name for name in sys.modules if '.' not in name))"
    own = set(python(code).stdout.split())
    assert not own & {"msgspec", "click", "typing", "json", "socket", "asyncio", "numpy"}


@pytest.mark.parametrize(("value", "seen"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (True, 1.0)])
def test_values_that_json_has_not_are_texts(sender, value, seen):
    put(sender, 1, None, loss=value)
    sender.drain()
    assert json.loads(sender.pending[0][0])[2] == {"loss": seen}


def test_folders_that_others_can_change_are_left_alone(folder):
    own = folder / "own"
    own.mkdir(mode=0o755)
    own.chmod(0o755)
    assert places.is_safe(str(own), os.getuid())
    own.chmod(0o777)
    assert not places.is_safe(str(own), os.getuid())
    (folder / "link").symlink_to(folder)
    assert not places.is_safe(str(folder / "link"), os.getuid())
    assert places.list_sockets("@x", 5) == ["\0x"]
