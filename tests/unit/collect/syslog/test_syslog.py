"""Tests of sources of system logs: positions, rotation, and delivery of every line once and in order."""

import os
import random
import shutil
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.log_node import START, Node, append, lines_in

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.kernel import KernelWatch
from jobmeter.collect.state_file import StateFile
from jobmeter.collect.syslog import kernel
from jobmeter.collect.syslog import watch as watches
from jobmeter.collect.syslog.kernel import KernelLog, KernelReader, KernelSource, parse_record
from jobmeter.collect.syslog.lines import LineCutter


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path, [tmp_path / "logs" / "*.log"])
    (tmp_path / "logs").mkdir()
    assert made.rounds() == []
    return made


def test_lines_of_a_file_come_once_in_order_with_growing_times(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    append(log, *(f"line {at}" for at in range(5000)))
    lines = node.rounds()
    assert [line.text for line in lines] == [f"line {at}" for at in range(5000)]
    assert {(line.stream, line.node, line.facility) for line in lines} == {(f"file:{log}", "n1", "user")}
    times = [line.time_ns for line in lines]
    assert times == sorted(set(times))
    append(log, "ERROR: disk")
    (line,) = node.rounds()
    assert (line.severity, line.level) == (3, "error")


def test_a_file_that_is_there_at_the_first_start_is_read_from_its_end_on(tmp_path):
    log = tmp_path / "old.log"
    append(log, "before")
    node = Node(tmp_path, [tmp_path / "*.log"])
    assert node.texts() == []
    append(log, "after")
    append(tmp_path / "new.log", "whole")
    assert sorted(node.texts(20)) == ["after", "whole"]


def test_files_that_come_and_go_make_room_for_others_and_leave_no_places(node, tmp_path, monkeypatch):
    monkeypatch.setattr(watches, "MOST_FILES", 3)
    logs = tmp_path / "logs"
    for turn in range(4):
        for at in range(3):
            append(logs / f"job-{turn}-{at}.log", f"{turn} {at}")
        assert sorted(node.texts(20)) == [f"{turn} {at}" for at in range(3)]
        for at in range(3):
            (logs / f"job-{turn}-{at}.log").unlink()
        assert node.texts(300) == []
    assert "job-" not in (tmp_path / "logs.json").read_text()
    append(logs / "job-0-0.log", "another")
    assert node.texts(20) == ["another"]


def test_places_of_files_that_went_while_the_agent_was_away_are_forgotten(node, tmp_path):
    log, other = tmp_path / "logs" / "app.log", tmp_path / "logs" / "other.log"
    append(log, "one")
    append(other, "two")
    assert sorted(node.texts()) == ["one", "two"]
    log.unlink()
    append(other, "three")
    other.rename(tmp_path / "logs" / "other.log.1")  # the file exists under another name
    node.start()
    assert node.texts(20) == []
    saved = (tmp_path / "logs.json").read_text()
    assert ("app.log" in saved, "other.log" in saved) == (False, True)
    append(log, "new")
    append(other, "four")
    assert sorted(node.texts(40)) == ["four", "new", "three"]


def test_a_partial_line_waits_for_its_end(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    log.write_bytes(b"whole\nhal")
    assert node.texts() == ["whole"]
    with log.open("ab") as out:
        out.write(b"f\n")
    assert node.texts() == ["half"]


def test_what_is_not_utf8_and_a_line_of_ten_megabytes_are_bounded(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    log.write_bytes(b"\xff\x00 caf\xe9\n" + b"x" * 10 * 2**20 + b"\nnext\n")
    first, second, third = node.rounds(40)
    assert first.text == "\ufffd\x00 caf\ufffd"
    assert len(second.text) <= 65_536
    assert second.text.endswith(f" [{10 * 2**20 - len(second.text.rpartition(' [')[0])} bytes cut]")
    assert third.text == "next"


@pytest.mark.parametrize("restart", [False, True])
def test_rotation_by_renaming_loses_nothing(node, tmp_path, restart):
    log = tmp_path / "logs" / "app.log"
    append(log, "a1", "a2")
    assert node.texts() == ["a1", "a2"]
    append(log, "a3")
    log.rename(tmp_path / "logs" / "app.log.1")
    append(tmp_path / "logs" / "app.log.1", "a4")
    append(log, "b1")
    if restart:
        node.start()
    assert node.texts(24) == ["a3", "a4", "b1"]
    assert node.texts(24) == []


def test_several_rotations_while_the_agent_is_away(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    append(log, "a1")
    assert node.texts() == ["a1"]
    for generation in range(1, 4):
        append(log, f"end of {generation}")
        for number in range(generation, 1, -1):
            (tmp_path / "logs" / f"app.log.{number - 1}").rename(tmp_path / "logs" / f"app.log.{number}")
        log.rename(tmp_path / "logs" / "app.log.1")
        os.utime(tmp_path / "logs" / "app.log.1", ns=(START, START + generation * 10**9))
        append(log, f"begin {generation}")
    os.utime(log, ns=(START, START + 9 * 10**9))
    node.start()
    wanted = ["end of 1", "begin 1", "end of 2", "begin 2", "end of 3", "begin 3"]
    assert node.texts(60) == wanted


@pytest.mark.parametrize("restart", [False, True])
def test_rotation_by_copying_and_truncating_loses_nothing(node, tmp_path, restart):
    log = tmp_path / "logs" / "app.log"
    append(log, *(f"a{at}" for at in range(100)))
    assert len(node.texts()) == 100
    append(log, "last")
    shutil.copy2(log, tmp_path / "logs" / "app.log.1")
    os.truncate(log, 0)
    append(log, *(f"b{at}" for at in range(200)))
    if restart:
        node.start()
    assert node.texts(24) == ["last", *(f"b{at}" for at in range(200))]


def test_a_truncated_file_is_read_from_its_beginning(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    append(log, "one", "two")
    assert node.texts() == ["one", "two"]
    log.write_bytes(b"three and more than there was before\n")
    assert node.texts() == ["three and more than there was before"]


def test_a_file_that_was_compressed_before_it_was_read_is_reported(node, tmp_path):
    log = tmp_path / "logs" / "app.log"
    append(log, "a1")
    assert node.texts() == ["a1"]
    append(log, "lost")
    log.rename(tmp_path / "logs" / "app.log.1.gz")
    append(log, "b1")
    node.start()
    note, line = node.rounds()
    assert note.text.startswith("[jobmeter: lines may be missing here")
    assert (note.severity, line.text) == (4, "b1")


def test_lines_above_the_rate_are_counted_in_the_log(tmp_path):
    (tmp_path / "logs").mkdir()
    node = Node(tmp_path, [tmp_path / "logs" / "*.log"], rate=10.0)
    node.rounds()
    append(tmp_path / "logs" / "app.log", *(f"line {at}" for at in range(1000)))
    texts = node.texts(8)
    assert texts[:100] == [f"line {at}" for at in range(100)]
    assert texts[-1] == "[jobmeter: 900 lines are missing here, they came faster than 10 a second]"
    assert node.reader.dropped == 900


def test_nothing_is_lost_or_reported_twice_however_often_it_dies(tmp_path, monkeypatch):
    chance = random.Random(7)
    (tmp_path / "logs").mkdir()
    node = Node(tmp_path, [tmp_path / "logs" / "*.log"])
    node.rounds()
    log = tmp_path / "logs" / "app.log"
    append(log, "-1")
    assert node.texts() == ["-1"]
    written = 0
    got: dict[tuple[int, str, int, str, bytes], Any] = {}
    for _ in range(60):
        some = chance.randrange(40)
        append(log, *(f"{at}" for at in range(written, written + some)))
        written += some
        if chance.random() < 0.3:
            log.rename(tmp_path / "logs" / f"app.log.{written}")
        # The agent dies at some moment: before, between or after its writes of positions and lines.
        remaining = chance.randrange(4)
        write = StateFile.write

        def dying(file, state, write=write):
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise KeyboardInterrupt
            write(file, state)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(StateFile, "write", dying)
            for _ in range(chance.randrange(1, 30)):
                node.time.ns += 250_000_000
                node.reader.round()
        for line in lines_in(node.outbox):
            got.setdefault(line.order, line)
        node.start()
    for line in node.rounds(200):
        got.setdefault(line.order, line)
    assert [int(got[order].text) for order in sorted(got)] == list(range(written))


class Ring:
    """Ring of kernel records behind the protocol of its device."""

    def __init__(self):
        self.records = []
        self.first = 0
        self.opened = self.open = 0

    def log(self, text, priority=6, micros=None):
        number = self.first + len(self.records)
        self.records.append(f"{priority},{number},{1000 * number if micros is None else micros},-;{text}\n".encode())

    def overwrite(self, count):
        self.records, self.first = self.records[count:], self.first + count

    def connect(self):
        self.opened += 1
        return RingDevice(self)


class RingDevice(KernelLog):
    def __init__(self, ring):
        self._ring, self._at = ring, ring.first
        ring.open += 1

    def read(self):
        if self._at < self._ring.first:
            self._at = self._ring.first
            raise BrokenPipeError
        if self._at >= self._ring.first + len(self._ring.records):
            return None
        self._at += 1
        return self._ring.records[self._at - 1 - self._ring.first]

    def close(self):
        self._ring.open -= 1


@pytest.fixture
def ring():
    return Ring()


def kernel_node(tmp_path, ring, boots=("boot-1",), **options):
    boot = iter(boots)
    current = [next(boot)]

    def make():
        return KernelSource(lambda: START, lambda: 10**12, reader=KernelReader(ring.connect), boot=lambda: current[0])

    node = Node(tmp_path, sources=[make], **options)
    return node, lambda: current.__setitem__(0, next(boot))


def test_records_of_the_kernel_have_their_time_severity_and_owner(tmp_path, ring):
    ring.log("Linux version 6", micros=5_000_000)
    ring.log("Out of memory: Killed process 4321 (python)", priority=3)
    ring.log("from user space", priority=14)
    owner = {4321: Owner("job-7", "worker-1")}
    node, _ = kernel_node(tmp_path, ring, owner_of=owner.get)
    first, second, third = node.rounds()
    assert (first.time_ns, first.facility, first.severity) == (START - 10**12 + 5 * 10**9, "kern", 6)
    assert (second.job, second.replica, second.level) == ("job-7", "worker-1", "error")
    assert (third.facility, third.severity, third.stream) == ("user", 6, "kernel")


def test_the_kernel_s_log_goes_on_after_a_restart_and_begins_anew_after_a_reboot(tmp_path, ring):
    ring.log("one")
    node, reboot = kernel_node(tmp_path, ring, boots=("boot-1", "boot-2"))
    assert node.texts() == ["one"]
    ring.log("two")
    node.start()
    assert node.texts() == ["two"]
    node.start()
    assert node.texts() == []
    reboot()
    node.start()
    assert node.texts() == ["one", "two"]


def test_records_that_were_overwritten_are_counted(tmp_path, ring):
    ring.log("0")
    node, _ = kernel_node(tmp_path, ring)
    assert node.texts() == ["0"]
    for at in range(1, 20):
        ring.log(str(at))
    ring.overwrite(10)
    texts = node.texts()
    assert "9 records of the kernel are missing" in texts[0]
    assert texts[1:] == [str(at) for at in range(10, 20)]


@given(st.lists(st.tuples(st.sampled_from(["log", "overwrite", 0, 1, 2]), st.integers(1, 30)), max_size=30))
def test_each_consumer_of_the_kernel_s_log_gets_each_record_once_by_one_open_device(steps):
    ring = Ring()
    with mock.patch.object(kernel, "_KEPT", 5):
        reader = KernelReader(ring.connect)
        read = [[-1], [-1], [-1]]
        for step, count in steps:
            if step == "log":
                for _ in range(count):
                    ring.log("x")
            elif step == "overwrite":
                ring.overwrite(min(count, len(ring.records)))
            else:
                at, last = read[step], read[step][-1]
                found = [record.sequence for record in reader.read_after(last, count)]
                assert found == sorted(set(found))
                assert all(number > last for number in found)
                there = range(max(ring.first, last + 1), ring.first + len(ring.records))
                assert [number for number in found if number in there] == [*there][: sum(n in there for n in found)]
                assert len(found) == count or [*there] == found[len(found) - len(there) :]
                at += found
            assert ring.open <= 1


def test_the_watch_for_events_reads_on_while_the_lines_wait_for_room(tmp_path, ring):
    ring.log("NVRM: Xid (PCI:0000:3b:00): 13, before the agent")
    reader = KernelReader(ring.connect)
    watch = KernelWatch(NodeIdentity("n1"), reader)
    source = KernelSource(lambda: START, lambda: 10**12, reader=reader, boot=lambda: "b")
    ring.log("NVRM: Xid (PCI:0000:3b:00): 79, gone")
    assert [one.message[:35] for one in watch.take_records(START).events] == [
        "NVRM: Xid (PCI:0000:3b:00): 79, gone"[:35]
    ]
    begin = source.read(None)
    lines = source.read(begin.end if begin else None)
    assert lines is not None
    assert [entry.text[-6:] for entry in lines.entries] == [" agent", ", gone"]
    assert watch.take_records(START).events == []
    assert (ring.opened, ring.open) == (1, 1)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            b"6,339,5140900,-;NET: Registered protocol family 10\n",
            (6, 339, 5140900, "NET: Registered protocol family 10"),
        ),
        (
            b"30,340,5690716,-,caller=T1;udevd[80]: starting\n SUBSYSTEM=acpi\n",
            (30, 340, 5690716, "udevd[80]: starting"),
        ),
        (b"4,1,2,c;caf\\xc3\\xa9 \\x5c;\n", (4, 1, 2, "café \\;")),
        (b"nonsense", None),
        (b"a,b,c;d", None),
    ],
)
def test_a_record_is_read_as_the_kernel_documents_it(data, found):
    record = parse_record(data)
    assert (record and (record.priority, record.sequence, record.micros, record.text)) == found


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
def test_the_kernel_s_own_device_gives_records_in_order():
    device, numbers = KernelLog(), []
    while (data := device.read()) is not None:
        record = parse_record(data)
        assert record is not None
        numbers.append(record.sequence)
    device.close()
    assert numbers == sorted(set(numbers))
    assert numbers


def test_without_a_spool_a_position_is_remembered_once_the_server_has_the_lines(node, tmp_path):
    node.start(spool=False)
    append(tmp_path / "logs" / "app.log", "kept")
    for _ in range(20):
        node.reader.round()
    assert '"intent":{' in (tmp_path / "logs.json").read_text()
    first = lines_in(node.outbox)
    node.start(spool=False)  # the agent died before the server answered
    again = node.rounds(20)
    assert [line.text for line in first] == ["kept"]
    assert again == first
    assert node.rounds(4) == []
    assert '"intent":null' in (tmp_path / "logs.json").read_text()


def test_pieces_of_any_size_make_the_same_lines():
    data = b"one\r\n\ntwo\xff\n" + b"y" * 100_000 + b"\nend"
    for size in (1, 3, 1000, len(data)):
        cutter = LineCutter()
        pieces = [piece for at in range(0, len(data), size) for piece in cutter.feed(data[at : at + size])]
        last = cutter.finish()
        assert last is not None
        assert [piece.text[:10] for piece in [*pieces, last]] == ["one", "", "two\ufffd", "y" * 10, "end"]
        assert sum(piece.length for piece in [*pieces, last]) == len(data)
