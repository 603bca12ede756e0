"""Tests of events derived from samples and kernel lines: each is reported once, with its meaning."""

import os
from functools import partial

import pytest

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.incidents import MOST, IncidentWatch, RunIncidents
from jobmeter.collect.kernel import MOST_EVENTS, KernelWatch, NodeKills, parse_event
from jobmeter.collect.syslog.kernel import KernelLog, KernelReader
from jobmeter.model.event import EventSource, Level
from jobmeter.model.record import EventRecord, Records, check_event
from jobmeter.model.sample import Sample
from jobmeter.model.time import SECOND

PLACE = NodeIdentity("node-1", "c", "p")
OWN = Owner("j", "w-0", 2)
NOW = 1_790_000_000_000


def ticks(series, *values):
    watch, found = IncidentWatch(), []
    for at, value in enumerate(values):
        watch.watch([Sample(series, NOW + at * 10 * SECOND, value)])
        found += watch.take_records(NOW).events
    return found


def reasons(events):
    return [(event.reason, (event.time - NOW) // (10 * SECOND)) for event in events]


def test_kills_for_memory_are_reported_with_their_replica():
    events = ticks(PLACE.make_replica_series("memory.oom.kills", OWN), 5.0, 5.0, 7.0, 0.0, 1.0)
    assert reasons(events) == [("OOMKilled", 2), ("OOMKilled", 4)]
    first = check_event(events[0])
    assert (first.job, first.replica, first.attempt, first.source) == ("j", "w-0", 2, EventSource.REPLICA)
    assert first.message == "2 of its processes were killed because memory ran out."


def test_throttling_begins_when_it_lasts_and_ends_once():
    seconds = [0, 5, 10, 15, 20, 25, 25, 25, 30, 30]
    events = ticks(PLACE.make_replica_series("cpu.throttled.time", OWN), *map(float, seconds))
    assert reasons(events) == [("CpuThrottled", 3), ("CpuThrottlingEnded", 6)]
    assert "0.50 s in each second" in events[0].message


@pytest.mark.parametrize("name", ["gpu", "npu"])
def test_errors_of_a_device_name_it(name):
    device = PLACE.make_device_series(f"{name}.ecc.uncorrected", f"{name}0")
    [event] = ticks(device, 0.0, 1.0)
    assert (event.reason, event.subject, event.job, event.source) == (
        "EccUncorrected", f"device {name}0", "", EventSource.NODE,
    )  # fmt: skip
    assert reasons(ticks(PLACE.make_device_series("gpu.remapped.rows.failed", "gpu0"), 0.0, 1.0, 1.0, 0.0, 1.0)) == [
        ("RemapFailed", 1),
        ("RemapFailed", 4),
    ]


def test_a_storm_is_bounded():
    watch = IncidentWatch()
    for value in (0.0, 1.0):
        watch.watch(
            [
                Sample(PLACE.make_replica_series("memory.oom.kills", Owner("j", f"w-{at}")), NOW + int(value), value)
                for at in range(3 * MOST)
            ]
        )
    assert len(watch.take_records(NOW).events) == MOST
    assert watch.take_records(NOW).events == []


@pytest.mark.parametrize(
    ("line", "reason", "subject"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "Xid", "device 0000:3b:00"),
        *(
            (f"amdgpu 0000:{line}", "DeviceFault", f"device 0000:{line[:5]}")
            for line in (
                "c1:00.0: amdgpu: socket: 0, die: 1 2 new uncorrectable hardware errors detected in umc block",
                "0b:00.0: amdgpu: 15 uncorrectable hardware errors detected in gfx block",
                "0b:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            )
        ),
        ("Memory cgroup out of memory: Killed process 71 (python) total-vm:1kB", "OOMKilling", ""),
        ("blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)", "DiskError", ""),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "FilesystemError", ""),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "HardwareError", ""),
        ("mlx5_core 0000:1a:00.0 eth2: Link is Down", "LinkDown", ""),
    ],
)
def test_a_line_of_the_kernel_is_an_event(line, reason, subject):
    event = parse_event(line, NOW, PLACE)
    assert isinstance(event, EventRecord)
    assert (event.reason, event.subject, event.node) == (reason, subject, "node-1")
    assert line in check_event(event).message
    assert event.level is Level.ERROR


def test_an_xid_says_what_it_means_and_what_to_do():
    event = parse_event("NVRM: Xid (PCI:0000:3b:00): 79, pid=1", NOW, PLACE)
    assert event is not None
    assert event.message.endswith(
        "the GPU has fallen off the bus. "
        "Drain and reboot the node; if the error comes back, return the GPU to its vendor."
    )


@pytest.mark.parametrize(
    "line",
    [
        *("", "usb 1-1: new device", "eth0: Link is Up", "x" * 100_000, "amdgpu 0000:c1:00.0: " * 20_000),
        "amdgpu 0000:c1:00.0: amdgpu: 3 correctable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: Total 15 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c1:00.0: socket: 0, die: 0 15 uncorrectable hardware errors detected in total in umc block",
    ],
)
def test_other_lines_are_none(line):
    assert parse_event(line, NOW, PLACE) is None


def kernel_watch(path, *more):
    return KernelWatch(PLACE, KernelReader(partial(KernelLog, path)), *more)


def test_the_kernels_log_is_read_from_now_on(tmp_path):
    # Each read of a FIFO gives a whole record of its size, as /dev/kmsg does.
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    watch = kernel_watch(path)
    with path.open("wb", buffering=0) as kernel:
        kernel.write(b"3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1\n SUBSYSTEM=pci\n")
        assert [event.reason for event in watch.take_records(NOW).events] == ["Xid"]
        assert watch.take_records(NOW).events == []


def test_an_event_of_the_kernel_has_the_time_of_its_line(tmp_path):
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    watch = kernel_watch(path, lambda: 500 * SECOND * 1_000_000)
    with path.open("wb", buffering=0) as kernel:
        kernel.write(b"3,1,420000000,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1\n")
        assert [event.time for event in watch.take_records(NOW).events] == [NOW - 80 * SECOND]
        kernel.write(b"3,2,999000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n")
        assert [event.time for event in watch.take_records(NOW).events] == [NOW]  # never later than the clock


KILLED = "Memory cgroup out of memory: Killed process {} (python) total-vm:1kB"


class Kernel:
    """Kernel with lines that a test sets."""

    def __init__(self):
        self.pids = []

    def take_records(self, now_ms):
        pids, self.pids = self.pids, []
        return Records(events=[event for pid in pids if (event := parse_event(KILLED.format(pid), now_ms, PLACE))])


def of_node(*steps):
    """Return the events of ticks; a step is the counter's value (None: not read) and the processes the kernel names."""
    kernel = Kernel()
    watch = NodeKills(PLACE, kernel)
    found = []
    for at, (value, pids) in enumerate(steps):
        series = PLACE.make_node_series("node.memory.oom.kills")
        watch.watch([] if value is None else [Sample(series, NOW + at * SECOND, value)])
        kernel.pids = pids
        found += [(at, one.reason, "counter" in one.message) for one in watch.take_records(NOW + at * SECOND).events]
    return found


def test_a_kill_that_line_and_counter_show_is_one_event_with_both():
    assert of_node((3.0, []), (4.0, [71])) == [(1, "OOMKilling", True)]
    assert of_node((3.0, []), (5.0, [71, 72]), (5.0, [])) == [(1, "OOMKilling", True)] * 2


def test_a_kill_between_the_reading_and_the_lines_is_reported_once():
    assert of_node((3.0, []), (3.0, [71]), (4.0, [])) == [(1, "OOMKilling", False)]
    assert of_node((3.0, []), (None, [71]), (5.0, [72])) == [(1, "OOMKilling", False), (2, "OOMKilling", True)]


def test_kills_without_a_line_of_the_kernel_are_reported_by_the_counter():
    assert of_node((3.0, []), (5.0, [])) == [(1, "SystemOOM", False)]
    kernel = Kernel()
    watch = NodeKills(PLACE, kernel)
    for value in (0.0, 3.0):
        watch.watch([Sample(PLACE.make_node_series("node.memory.oom.kills"), NOW, value)])
    kernel.pids = [71]
    line, counted = watch.take_records(NOW).events
    assert line.message.startswith(KILLED.format(71))
    assert (counted.message[:1], counted.node, counted.source) == ("2", "node-1", EventSource.NODE)
    assert check_event(counted).level is Level.ERROR


def test_lines_from_before_the_first_reading_do_not_hide_a_later_kill():
    assert of_node((None, [70]), (9.0, [71]), (10.0, []), (11.0, [72])) == [
        (0, "OOMKilling", False),
        (1, "OOMKilling", False),
        (3, "OOMKilling", True),
    ]
    assert of_node((9.0, []), (2.0, []), (3.0, [])) == [(2, "SystemOOM", False)]  # the counter was reset


def kills(run, *values):
    """Return the times (in ticks) and replicas of the kills that a run reports."""
    series = PLACE.make_replica_series("memory.oom.kills", OWN)
    reported = []
    for at, value in enumerate(values):
        run.watch([Sample(series, NOW + at * SECOND, value)])
        reported += [(at, (one.time - NOW) // SECOND) for one in run.take_records(NOW).events]
    return reported


def test_a_kill_in_a_run_waits_a_tick_and_is_reported_where_its_replica_goes_on():
    run = RunIncidents(lambda _: False)
    assert kills(run, 0.0, 1.0, 1.0, 3.0) == [(2, 1)]
    [last] = run.finish(lambda _: False).events
    assert (last.reason, last.message[:1], last.replica) == ("OOMKilled", "2", "w-0")
    assert run.finish(lambda _: False).events == []


def test_a_kill_that_ended_its_replica_is_reported_by_the_end_alone():
    ended: set[str] = set()
    run = RunIncidents(ended.__contains__)
    assert kills(run, 0.0, 1.0) == []
    ended.add("w-0")
    assert kills(run, 1.0, 1.0) == []
    assert run.finish({"w-0"}.__contains__).events == []


def test_a_kill_without_other_evidence_at_the_end_is_reported_from_the_counter():
    run = RunIncidents(lambda _: True)
    assert kills(run, 0.0, 1.0, 1.0) == []
    assert len(run.finish(lambda _: False).events) == 1


def test_other_incidents_of_a_run_do_not_wait():
    run = RunIncidents(lambda _: True)
    series = PLACE.make_replica_series("cpu.throttled.time", OWN)
    found = []
    for at in range(6):
        run.watch([Sample(series, NOW + at * SECOND, at * 0.5)])
        found += [one.reason for one in run.take_records(NOW).events]
    assert found == ["CpuThrottled"]


def test_no_kernel_log_is_no_failure(tmp_path):
    assert kernel_watch(tmp_path / "none").take_records(NOW).events == []
    assert MOST_EVENTS > 0
