"""Tests of processes that start and end between two scans: real kernel events, and a simulation with known sums."""

import os
import subprocess
import sys
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import wait_until
from tests.unit.collect.trees import HOST, end_process, plant, plant_process

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.report import JobReporter
from jobmeter.collect.discover.rules import read_rules
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.ends import EndWatch
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.process.stat import ProcessIo
from jobmeter.collect.process_events.connector import EXEC, EXIT, FORK, Connector
from jobmeter.collect.process_events.forks import ForkCount
from jobmeter.collect.process_events.taskstats import TaskExit, TaskStats
from jobmeter.collect.process_events.watch import MOST_GONE, ProcessWatch
from jobmeter.collect.registry import JobCollectors
from jobmeter.testing.collector import NOW_MS

ROOT = 1


class Events:
    """Fake of the kernel's sockets that returns the events a test put into it."""

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.overruns = 0

    def read_changes(self) -> list[Any]:
        return [self.waiting.popleft() for _ in range(min(len(self.waiting), 256))]

    read_ends = read_changes

    def close(self) -> None:
        """Release no resource."""


class Machine:
    """Planted machine whose kernel reports events, with the collector of its jobs. Every job's process is tagged."""

    def __init__(self, root: Path, *, stats: bool = True) -> None:
        self.root = plant(root, HOST)
        proc = f"{root}/proc"
        self.events: Any = Events()
        self.finals: Any = Events()
        self.stats = stats
        self.watch = ProcessWatch()
        self.table = ProcessTable(NodeClassifier("n1", proc), proc, self.watch)
        assert self.watch.open(self.table.look, lambda _process: None, lambda _ends: self.events, self.account)
        groups = GroupReader(Hierarchies(proc, str(root)), f"{root}/sys")
        self.collector = JobsCollector(NodeIdentity("n1"), self.table, groups, proc, 100)
        self.reporter = JobReporter(NodeIdentity("n1"), self.table.list_processes, lambda ms: ms)
        self.parents: dict[int, int] = {}
        self.own: dict[int, int] = {}
        self.waited: dict[int, int] = {}
        self.tags: dict[int, dict[str, str]] = {}
        self.used = 0
        self.next = 100
        self.sums: list[float] = []

    def account(self) -> Any:
        if not self.stats:
            raise PermissionError(1, "Operation not permitted")
        return self.finals

    def fork(self, parent: int, **tags: str) -> int:
        pid, self.next = self.next, self.next + 1
        self.parents[pid], self.own[pid], self.waited[pid] = parent, 0, 0
        self.tags[pid] = tags or self.tags.get(parent, {})
        self.events.waiting.append((FORK, 0, parent, 0, pid))
        self._plant(pid)
        return pid

    def start(self, parent: int = ROOT, job: str = "j") -> int:
        """Start a process that runs a program of the job."""
        pid = self.fork(parent, JOBMETER_JOB_ID=job)
        self.events.waiting.append((EXEC, 0, pid, 0, 0))
        return pid

    def run_script(self, ticks: int, *, children: int) -> None:
        """Start a job that has run other programs before the collector reads it."""
        pid = self.start()
        self.burn(pid, ticks)
        for _ in range(children):
            child = self.fork(pid)
            self.burn(child, ticks)
            self.end(child)

    def burn(self, pid: int, ticks: int) -> None:
        self.own[pid] += ticks
        self.used += ticks
        self._plant(pid)

    def end(self, pid: int, *, ignored: bool = False) -> None:
        parent, own, waited = self.parents.pop(pid), self.own.pop(pid), self.waited.pop(pid)
        if not self.stats:
            self.events.waiting.append((EXIT, 0, pid, 0, 0))
        else:
            self.finals.waiting.append(TaskExit(pid, own / 100, 1.0, 5e6, ProcessIo(7.0, 0.0, 9.0, 2.0)))
        if parent in self.waited and not ignored:
            self.waited[parent] += own + waited
            self._plant(parent)
        for child in [child for child, its in self.parents.items() if its == pid]:
            self.parents[child] = ROOT
            self._plant(child)
        end_process(self.root, pid)
        (self.root / f"proc/{pid}").rmdir()

    def turn(self) -> None:
        """Process the pending events as their thread does."""
        self.watch.turn()
        while self.watch.waiting:
            self.watch.turn()

    def scan(self) -> dict[tuple[str, str], float]:
        samples = self.collector.collect(NOW_MS)
        found = {(sample.series.metric, sample.series.job): sample.value for sample in samples}
        if ("cpu.time", "j") in found:
            self.sums.append(found["cpu.time", "j"])
        return found

    def _plant(self, pid: int) -> None:
        ticks, waited = self.own[pid], self.waited[pid]
        tags: dict[str, Any] = {**self.tags[pid]}
        plant_process(self.root, pid, self.parents[pid], start=pid, ticks=ticks, waited=waited, io=None, **tags)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "fork", "fork", "burn", "burn", "end", "end", "ignored", "scan", "turn"]),
        st.integers(0, 10**6),
        st.integers(1, 50),
    ),
    max_size=40,
)


def play(machine: Machine, steps: list[tuple[str, int, int]], *, promptly: bool) -> None:
    """Run the steps; ``promptly``: process the events of each program before it ends."""
    for action, number, amount in steps:
        alive = sorted(machine.own)
        if action == "start":
            machine.run_script(amount, children=number % 2)
            if promptly:
                machine.turn()
        elif action == "scan":
            machine.scan()
        elif action == "turn":
            machine.turn()
        elif alive:
            pid = alive[number % len(alive)]
            if action == "fork":
                machine.burn(machine.fork(pid), amount)
            elif action == "burn":
                machine.burn(pid, amount)
            else:
                machine.end(pid, ignored=action == "ignored")
    machine.turn()
    for _ in range(3):
        machine.scan()


@given(STEPS)
@settings(max_examples=60)
def test_all_that_a_job_uses_counts_once_whenever_the_scans_are(tmp_path_factory, steps):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    play(machine, steps, promptly=True)
    assert machine.sums[-1:] == pytest.approx([machine.used / 100] if machine.used else [])
    assert all(before <= after + 1e-9 for before, after in pairwise(machine.sums))
    assert machine.table.missed == 0


@given(STEPS)
@settings(max_examples=40)
def test_what_was_not_looked_at_in_time_is_counted_as_missed(tmp_path_factory, steps):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    play(machine, steps, promptly=False)
    found = machine.sums[-1] if machine.sums else 0.0
    assert found <= machine.used / 100 + 1e-9
    assert all(before <= after + 1e-9 for before, after in pairwise(machine.sums))
    if found < machine.used / 100 - 1e-9:
        assert machine.table.missed > 0


@given(STEPS)
@settings(max_examples=25)
def test_without_last_figures_no_more_is_counted_than_was_used(tmp_path_factory, steps):
    machine = Machine(tmp_path_factory.mktemp("machine"), stats=False)
    play(machine, steps, promptly=True)
    assert all(total <= machine.used / 100 + 1e-9 for total in machine.sums)
    assert all(before <= after + 1e-9 for before, after in pairwise(machine.sums))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_job_that_no_scan_has_found_is_recorded_with_all_its_figures(machine):
    machine.scan()
    pid = machine.start()
    machine.turn()
    machine.burn(pid, 30)
    machine.end(pid)
    machine.turn()
    assert machine.scan() == {
        ("cpu.time", "j"): 0.3,
        ("memory.peak", "j"): 5e6,
        ("disk.read", "j"): 7.0,
        ("disk.write", "j"): 0.0,
        ("io.read", "j"): 9.0,
        ("io.write", "j"): 2.0,
    }
    (job,) = machine.reporter.take_records(NOW_MS).jobs
    assert (job.job_id, [replica.name for replica in job.replicas]) == ("j", ["worker-0"])
    assert machine.scan() == {}, "once"


def test_children_that_ended_before_their_parent_was_looked_at_count(machine):
    first = machine.start()
    for ticks in (20, 30):
        child = machine.fork(first)
        machine.burn(child, ticks)
        machine.end(child)
    running = machine.fork(first)
    machine.burn(running, 1)
    machine.turn()
    machine.burn(running, 4)
    machine.end(running)
    machine.end(first)
    machine.turn()
    assert machine.scan()["cpu.time", "j"] == pytest.approx(0.55)


def test_what_a_scanned_process_had_waited_for_counts_when_it_ends(machine):
    first, other = machine.start(), machine.start()
    child = machine.fork(first)
    machine.burn(child, 70)
    machine.end(child)
    assert machine.scan()["cpu.time", "j"] == 0.7
    machine.end(first)
    machine.burn(other, 10)
    assert machine.scan()["cpu.time", "j"] == pytest.approx(0.8)


def test_a_program_that_begins_while_the_processes_are_listed_is_found(machine):
    """The scan sees a copy of its parent, and the event comes before the scan ends."""
    pid = machine.fork(ROOT, SECRET="x")
    machine.watch.begin_scan()
    listed = [pid]
    machine.tags[pid] = {"JOBMETER_JOB_ID": "j"}
    machine.burn(pid, 10)
    machine.events.waiting.append((EXEC, 0, pid, 0, 0))
    machine.watch.compare_scan(listed, [])
    machine.turn()
    machine.end(pid)
    assert machine.scan()["cpu.time", "j"] == 0.1


def test_a_process_that_goes_on_after_its_parent_has_ended_stays_in_the_job(machine):
    first = machine.start()
    machine.turn()
    orphan = machine.fork(first)
    machine.tags[orphan] = {}
    machine.burn(orphan, 20)
    machine.end(first)
    machine.turn()
    assert machine.scan()["cpu.time", "j"] == 0.2
    machine.burn(orphan, 20)
    assert machine.scan()["cpu.time", "j"] == 0.4


def test_a_process_without_a_job_that_runs_a_jobs_program_later_is_found(machine):
    pid = machine.fork(ROOT, SECRET="x")
    for _ in range(3):
        assert machine.scan() == {}
    machine.tags[pid] = {"JOBMETER_JOB_ID": "j"}
    machine.burn(pid, 10)
    machine.events.waiting.append((EXEC, 0, pid, 0, 0))
    machine.turn()
    assert machine.scan()["cpu.time", "j"] == 0.1


def test_very_many_ends_count_through_their_parent_or_as_missed(machine):
    first, second = machine.start(), machine.start()
    machine.turn()
    for pid in range(1_000, 1_000 + MOST_GONE + 5):
        machine.events.waiting.append((FORK, 0, first if pid % 2 else second, 0, pid))
    machine.end(second)
    machine.turn()
    for pid in range(1_000, 1_000 + MOST_GONE + 5):
        machine.finals.waiting.append(TaskExit(pid, 0.0, 0.0, 0.0, None))
    machine.turn()
    machine.scan()
    assert len(machine.table.left) == MOST_GONE
    assert machine.table.missed == 3, "half of those that are too many"


def test_where_events_are_lost_forks_are_counted(machine):
    def forks(count):
        plant(machine.root, {"proc/stat": HOST["proc/stat"].replace("processes 26254", f"processes {count}")})

    forks(100)
    machine.scan()
    machine.start()
    forks(111)
    machine.events.overruns = 1
    machine.scan()
    assert machine.table.missed == 10
    forks(150)
    machine.scan()
    assert machine.table.missed == 10, "by events, which are complete again"


def test_forks_without_events(tmp_path):
    def scan(forks, pids):
        plant(tmp_path, {"proc/stat": f"cpu  1 2 3\nprocesses {forks}\n"})
        count.begin_scan()
        return count.count_unseen(pids)

    count = ForkCount(f"{tmp_path}/proc")
    assert scan(1_000, {1, 2}) == 0
    assert scan(1_005, {1, 2, 3}) == 4
    assert scan(1_005, {3}) == 0
    assert ForkCount(f"{tmp_path}/nowhere").count_unseen({1}) == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), max_size=30))
def test_who_waits_as_long_as_a_budget_says_spends_no_more_than_its_share(work):
    now = used = 0.0
    budget = MeasuringBudget(0.01, 0.1, lambda: now, lambda: used)
    for pause, cost in work:
        now += pause
        budget.begin()
        used += cost
        now += budget.end()
        budget.begin()
        budget.end()
        assert used <= 0.1 + now * 0.01 + 1e-9
        assert budget.left >= -1e-9


def permitted() -> bool:
    try:
        Connector(ends=True).close()
        TaskStats().close()
    except OSError:
        return False
    return True


reported = pytest.mark.skipif(not permitted(), reason="the kernel does not report its processes to this user")
BURN = "import sys, time\nwhile time.process_time() < 0.2: pass\nsys.stdin.read()"
WRITE = "import os\nos.write(os.open(os.devnull, os.O_WRONLY), bytes(100_003))"
THREADS = """
import sys, threading, time
def burn():
    while time.thread_time() < 0.1: pass
threads = [threading.Thread(target=burn) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
memory = b"x" * (60 << 20)
sys.stdin.read()
"""


@reported
def test_the_kernels_events_of_a_real_process():
    connector = Connector(ends=True)
    with subprocess.Popen([sys.executable, "-c", THREADS], stdin=subprocess.PIPE) as child:
        child.communicate()
    found = set()

    def seen() -> bool:
        for what, _, first, _, second in connector.read_changes():
            found.add((what, second if what == FORK else first))
        return (EXIT, child.pid) in found

    wait_until(seen)
    connector.close()
    assert {(FORK, child.pid), (EXEC, child.pid)} <= found


@reported
@pytest.mark.parametrize("code", [BURN, WRITE, THREADS])
def test_the_last_figures_of_a_real_process(code):
    stats = TaskStats()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.close()
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0
    ends: dict[int, TaskExit] = {}

    def ended() -> bool:
        ends.update((final.pid, final) for final in stats.read_ends())
        return child.pid in ends

    wait_until(ended)
    stats.close()
    final = ends[child.pid]
    # The rest of its end is missing, and so is its usage since the last tick of the clock.
    assert final.cpu_seconds == pytest.approx(used.ru_utime + used.ru_stime, abs=0.1)
    if code == WRITE:
        assert final.io is not None
        assert final.io.called_write == 100_003 // 1024 * 1024, "the kernel gives whole KiB"
        assert final.io.called_read > 10_000, "its modules"
    if code == THREADS:
        assert final.memory_peak > 60 * 2**20
        assert final.cpu_seconds >= 0.25, "of all threads"


@reported
def test_real_processes_between_two_scans(tmp_path):
    """A command of a rule and its children each end before a scan sees them."""
    (tmp_path / "rules.toml").write_text('[[job]]\ncommand = "*short-job-*"\njob = "short-{2}"\n')
    watch = ProcessWatch()
    table = ProcessTable(NodeClassifier("n1", rules=read_rules(tmp_path / "rules.toml")), watch=watch)
    reader = GroupReader(Hierarchies())
    collector = JobsCollector(NodeIdentity("n1"), table, reader)
    collectors: Any = JobCollectors(table, collector, None, watch, EndWatch(reader))  # type: ignore[arg-type]
    collector.collect(NOW_MS)
    begun: list[int] = []
    watch.start(table.look, lambda process: begun.append(process.stat.key.pid))
    try:
        assert watch.active, watch.problem
        with subprocess.Popen([sys.executable, "-c", BURN, f"short-job-{os.getpid()}"], stdin=subprocess.PIPE) as child:
            wait_until(lambda: child.pid in begun)
            child.communicate()
        samples = wait_until(lambda: [one for one in collector.collect(NOW_MS) if "short-" in one.series.job])
    finally:
        collectors.stop()
    values = {one.series.metric: one.value for one in samples}
    assert {one.series.job for one in samples} == {f"short-{os.getpid()}"}
    assert values["cpu.time"] == pytest.approx(0.2, abs=0.1)
    assert Owner(f"short-{os.getpid()}", "worker-0") in {process.member.owner for process in table.list_processes()}


@pytest.fixture
def task():
    """Return the group of a Slurm task, version 1, and the file by which a process enters it."""
    controller = "cpuacct"
    path = f"/slurm_test{os.getpid()}/uid_0/job_{os.getpid()}/step_0/task_0"
    directory = Hierarchies().find_directory(controller, path)
    if directory is None:
        pytest.skip("control groups of version 1 are not mounted here")
    folders = [Path(directory), *Path(directory).parents][:5]
    try:
        Path(directory).mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield Path(directory)
    for folder in folders:
        if folder.exists():
            folder.rmdir()


@reported
def test_a_task_of_slurm_that_no_scan_has_found_has_its_cpu_time(task):
    """Slurm removes the group immediately after the task's end."""
    watch = ProcessWatch()
    table = ProcessTable(NodeClassifier("n1"), watch=watch)
    reader = GroupReader(Hierarchies())
    ends = EndWatch(reader)
    collector = JobsCollector(NodeIdentity("n1"), table, reader, ends=ends)
    collector.collect(NOW_MS)
    begun: list[int] = []

    def include(process):
        ends.include(process)
        begun.append(process.stat.key.pid)

    watch.start(table.look, include)
    try:
        script = f"echo $$ > {task}/cgroup.procs; exec {sys.executable} -c '{BURN}'"
        variables = {**os.environ, "SLURM_JOB_ID": str(os.getpid()), "SLURM_PROCID": "3"}
        with subprocess.Popen(["sh", "-c", script], env=variables, stdin=subprocess.PIPE) as child:
            wait_until(lambda: child.pid in begun)
            child.communicate()
        task.rmdir()
        samples = wait_until(lambda: [one for one in collector.collect(NOW_MS) if one.series.job == str(os.getpid())])
    finally:
        watch.stop()
    values = {one.series.metric: one.value for one in samples}
    assert {one.series.replica for one in samples} == {"worker-3"}
    assert values["cpu.time"] == pytest.approx(0.2, abs=0.15)
