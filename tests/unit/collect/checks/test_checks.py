"""Tests of the checks of a node, on made-up /proc and /sys, including a check that hangs."""

import os
from random import Random
from threading import Event
from typing import Any

import pytest
from msgspec.structs import asdict
from tests.support.nvml import Call
from tests.unit.collect.gpus import Bench, ManualClock

from jobmeter.collect.accelerators.checks import check_accelerators
from jobmeter.collect.base import Owner
from jobmeter.collect.checks import system
from jobmeter.collect.checks.node import NodeChecks, check_clock
from jobmeter.collect.checks.processes import check_processes, check_processes_of
from jobmeter.collect.discover.member import Member, MembershipSource, Process
from jobmeter.collect.process.stat import Key, ProcessStat
from jobmeter.model.task import CHECKS, CheckStatus, TaskCheck
from jobmeter.server.native.tasks import combine_checks


def put(root, **texts):
    for path, text in texts.items():
        file = root.joinpath(*path.split("__"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def status(checks):
    return [check.status.value for check in checks]


def test_gpus(driver):
    bench = Bench(driver)
    assert check_accelerators(bench.collector, [bench.collector]) == [
        TaskCheck("gpus", CheckStatus.UNAVAILABLE, "NVML shows no GPU")
    ]
    bench.look()
    assert status(check_accelerators(bench.collector, [])) == ["ok"] * 8
    driver.devices[1].fail(3, Call.ECC)
    driver.devices[2].set(ecc=(5, 1))
    driver.devices[3].set(remapped=(0, 0, 1, 0))
    driver.devices[4].set(temperature=95)
    driver.devices[5].fail(15)
    driver.devices[6].fail(4, Call.HANDLE)
    driver.devices[6].fail(16, Call.POWER)
    driver.devices[7].set(remapped=(0, 0, 0, 1))
    found = check_accelerators(bench.collector, [])
    expected = ["ok", "ok", "critical", "warning", "warning", "critical", "ok", "critical"]
    assert status(found) == expected, "what the devices answer now"
    bench.look()
    bench.look()
    expected[6] = "warning"
    found = check_accelerators(bench.collector, [])
    assert status(found) == expected, "and what the agent found before"
    assert found[5].text == "gpu5 is not measured: lost (GPU is lost)"
    assert found[6].text == "gpu6 is not measured: no permission (Insufficient Permissions)"


def test_links(tmp_path):
    for name, state, errors in (("eth0", "up", 0), ("eth1", "down", 0), ("eth2", "up", 50)):
        folder = tmp_path / "class" / "net" / name
        (folder / "device").mkdir(parents=True)
        put(folder, operstate=f"{state}\n", flags="0x1003\n", carrier_changes="2\n")
        put(folder, statistics__rx_errors=f"{errors}\n", statistics__rx_packets="100\n")
    put(tmp_path / "class" / "net" / "lo", operstate="unknown\n")
    put(tmp_path / "class" / "infiniband", mlx5_0__ports__1__state="1: DOWN\n", mlx5_1__ports__1__state="4: ACTIVE\n")
    assert status(system.check_links(str(tmp_path))) == ["ok", "critical", "warning", "critical", "ok"]
    assert status(system.check_links(str(tmp_path / "none"))) == ["unavailable"]


def test_disks(tmp_path):
    line = f"1 0 8:1 / {tmp_path} rw - ext4 /dev/sda1 rw\n"
    put(tmp_path, self__mountinfo=line, block__md0__md__degraded="1\n")
    disks = {"sda": ("0x1f41", "0x186a0"), "sdb": ("0x8", "0x20"), "sdc": ("0x60", "0x186a0"), "sdd": ("0x60", None)}
    for name, (errors, done) in disks.items():  # as the kernel prints them
        put(tmp_path / "block" / name / "device", ioerr_cnt=f"{errors}\n")
        if done:
            put(tmp_path / "block" / name / "device", iodone_cnt=f"{done}\n")
    put(tmp_path, class__nvme__nvme0__state="live\n", class__nvme__nvme1__state="dead\n")
    found = system.check_disks(str(tmp_path), str(tmp_path))
    assert str(tmp_path) in found[0].text
    assert 0 <= found[0].values["used_ratio"] <= 1
    assert (found[1].text.split()[0], found[1].status.value) == ("md0", "critical")
    assert [(one.text, one.status.value) for one in found[2:6]] == [
        ("8001 commands to sda have failed, of 100000", "warning"),
        ("8 commands to sdb have failed, of 32", "ok"),
        ("96 commands to sdc have failed, of 100000", "ok"),
        ("96 commands to sdd have failed", "warning"),
    ]
    assert status(found[6:]) == ["ok", "critical"]


class Turn(Event):
    """Pause of the check: afterwards the processes' files are one second older."""

    def __init__(self, clock, root, later):
        super().__init__()
        self.clock, self.root, self.later = clock, root, later

    def wait(self, timeout=None):
        self.clock.seconds += timeout
        put(self.root, **self.later)
        return False


def stat_of(pid, ticks, pages, waited=0, start=5):
    return f"{pid} (a) b) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {waited} 0 20 0 1 0 {start} 0 {pages}"


def io_of(moved):
    return f"rchar: 9\nwchar: 9\nread_bytes: {moved}\nwrite_bytes: {moved}\n"


def test_the_busiest_processes_have_their_use_and_replica(tmp_path):
    count, hertz, page = 9, os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    pages = 2**20 // page
    for pid in range(1, count):
        put(tmp_path, **{f"{pid}__stat": stat_of(pid, 50, pages * pid), f"{pid}__comm": f"p{pid}\n"})
        put(tmp_path, **{f"{pid}__io": io_of(0)} if pid % 2 else {})
    later = {f"{pid}__stat": stat_of(pid, 50 + pid * hertz, pages * pid, waited=10**6) for pid in range(1, count)}
    later |= {f"{pid}__io": io_of(pid * 2**20) for pid in range(1, count, 2)}
    later["8__stat"] = stat_of(8, 10**9, pages, start=6)  # another process has the number now
    clock = ManualClock()
    found = check_processes({7: Owner("job-1", "worker-0")}.get, str(tmp_path), Turn(clock, tmp_path, later), clock)
    assert [one.text for one in found] == [
        (
            "most processor time: p7 (7) of job-1/worker-0 7.00 cores; p6 (6) 6.00 cores; p5 (5) 5.00 cores; "
            "p4 (4) 4.00 cores; p3 (3) 3.00 cores"
        ),
        "most memory: p7 (7) of job-1/worker-0 7 MiB; p6 (6) 6 MiB; p5 (5) 5 MiB; p4 (4) 4 MiB; p3 (3) 3 MiB",
        (
            "most storage traffic, of 4 processes that may be read: p7 (7) of job-1/worker-0 14.0 MiB/s; "
            "p5 (5) 10.0 MiB/s; p3 (3) 6.0 MiB/s; p1 (1) 2.0 MiB/s"
        ),
    ]
    assert found[0].values == {f"process_{pid}": pid for pid in range(3, 8)}
    assert [(one.pid, one.job, one.rank) for one in found[0].processes] == [
        (pid, "job-1" if pid == 7 else "", None) for pid in range(7, 0, -1)
    ]
    assert status(found) == ["ok"] * 3
    assert status(check_processes(lambda _pid: None, str(tmp_path / "none"), Turn(clock, tmp_path, {}), clock)) == [
        "unavailable"
    ]


def test_the_busiest_processes_of_this_machine_fit_an_answer():
    long, passed = Owner("j" * 1_000, "r" * 1_000), Event()
    passed.set()
    for one in check_processes(lambda _pid: long, pause=passed):
        assert one.status is CheckStatus.OK
        assert len(one.text) < 1_024


def process_of(pid, start, replica, rank):
    owner = Owner("job-1", replica)
    member = Member(owner=owner, source=MembershipSource.TAGS, rank=0, process_rank=rank)
    return Process(ProcessStat(Key(pid, start), 1, "R", 0, 1, 0), member), owner


@pytest.mark.parametrize("count", [1, 9, 11, 25])
def test_the_processes_of_a_job_are_ranked_with_their_replicas_and_ranks(tmp_path, count):
    rng, clock = Random(count), ManualClock()
    hertz, pages = os.sysconf("SC_CLK_TCK"), 2**20 // os.sysconf("SC_PAGE_SIZE")
    later, members = dict[str, str](), []
    expected = dict[int, dict[str, Any]]()
    for at, pid in enumerate(rng.sample(range(2, 1_000), count)):
        seconds, size, moved = rng.randrange(30), rng.randrange(999), rng.choice([None, 0, rng.randrange(99)])
        put(tmp_path, **{f"{pid}__stat": stat_of(pid, 9, pages), f"{pid}__comm": f"p{pid}\n"})
        later[f"{pid}__stat"] = stat_of(pid, 9 + seconds * hertz, pages * size)
        if moved is not None:
            put(tmp_path, **{f"{pid}__io": io_of(0)})
            later[f"{pid}__io"] = io_of(moved * 2**20)
        rank = at if at % 2 else None
        members.append(process_of(pid, 5, f"worker-{at}", rank))
        figures = {"cores": seconds, "memory": size * 2**20, "traffic": None if moved is None else moved * 2**21}
        place = {"name": f"p{pid}", "job": "job-1", "replica": f"worker-{at}", "rank": rank or 0}
        expected[pid] = {"pid": pid, **figures, **place}
    for pid, start in ((1_001, 5), (1_002, 6)):  # a process without a job, and a number that another process has now
        put(tmp_path, **{f"{pid}__stat": stat_of(pid, 9, pages), f"{pid}__comm": "other\n"})
        later[f"{pid}__stat"] = stat_of(pid, 10**6, pages * 10**4, start=start)
    members.append(process_of(1_002, 5, "worker-gone", None))
    found = check_processes_of(members, str(tmp_path), Turn(clock, tmp_path, later), clock)
    for check, kind in zip(found, ("cores", "memory", "traffic"), strict=True):
        largest = sorted((one[kind] or 0 for one in expected.values()), reverse=True)[:10]
        assert [getattr(one, kind) for one in check.processes] == pytest.approx([value for value in largest if value])
        for one in check.processes:
            values = asdict(one)
            assert values.pop("attempt") == 0
            figures = {name: values.pop(name) for name in ("cores", "memory", "traffic")}
            wanted = dict(expected[one.pid])
            assert figures == pytest.approx({name: wanted.pop(name) for name in figures})
            assert values == wanted


def test_waiting_processes_are_those_that_wait_at_every_look(tmp_path):
    put(tmp_path, **{"7__stat": "7 (a b) D 1", "8__stat": "8 (c) R 1"})
    paused = Event()
    paused.set()
    [found] = system.check_tasks(str(tmp_path), paused)
    assert (found.status, found.values) == (CheckStatus.WARNING, {"waiting": 1.0})
    assert "a b (7)" in found.text
    put(tmp_path, **{"7__stat": "7 (a b) S 1"})
    assert status(system.check_tasks(str(tmp_path), paused)) == ["ok"]
    assert status(system.check_tasks(str(tmp_path / "none"), paused)) == ["unavailable"]


def test_memory_and_the_kernels_log(tmp_path):
    put(tmp_path, meminfo="MemTotal: 1000 kB\nMemAvailable: 30 kB\n")
    assert status(system.check_memory(str(tmp_path))) == ["warning"]
    assert status(system.check_memory(str(tmp_path / "none"))) == ["unavailable"]
    assert status(system.check_kernel_log(str(tmp_path / "meminfo"))) == ["ok"]
    assert status(system.check_kernel_log(str(tmp_path / "none"))) == ["unavailable"]


def test_the_clock():
    assert status(check_clock(0.0)) == ["ok"]
    assert status(check_clock(-3.0)) == ["warning"]


def test_a_hanging_check_affects_no_other_and_unknown_names_are_ignored():
    release = Event()
    checks = NodeChecks([], float, patience=2.0)
    checks.checks = {
        "disks": [lambda: system.check_memory(str(release.wait()))],
        "gpus": [lambda: [TaskCheck("gpus", CheckStatus.OK, "well")]],
        "bad": [lambda: [TaskCheck("bad", CheckStatus.OK, str(1 / 0))]],
    }
    try:
        found = checks.make(["disks", "gpus", "rm -rf", "bad", "gpus"])
        assert [(one.name, one.status.value) for one in found] == [
            ("disks", "warning"), ("gpus", "ok"), ("bad", "unavailable"),
        ]  # fmt: skip
        assert "still hangs" in checks.make(["disks"])[0].text
    finally:
        release.set()


def test_the_agent_has_every_check_that_a_server_requests():
    assert set(CHECKS) == set(NodeChecks([], float).checks)


def test_a_node_is_healthy_where_something_was_checked_and_nothing_wrong():
    def verdict(*states):
        return combine_checks([TaskCheck("x", CheckStatus(state), "") for state in states]).value

    assert verdict("ok", "unavailable") == "healthy"
    assert verdict("ok", "warning") == "fault"
    assert verdict("unavailable") == verdict() == "unknown"
