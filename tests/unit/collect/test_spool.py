"""Tests of the spool: no frame is lost or reordered, whatever happens to its writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.wire.straight_reader import read_body

from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Spool, SpoolPosition
from jobmeter.errors import ConflictError
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.wire.native.encode import encode_samples
from jobmeter.wire.native.frame import FrameKind, write_frame


def frame(number, count=1):
    """Return an uncompressed frame: frames with equal numbers of samples have equal lengths."""
    samples = [Sample(Series("cpu.time", node=f"n{number:03d}"), number, float(i)) for i in range(count)]
    return write_frame(FrameKind.SAMPLES, encode_samples(samples), 0)


def drain(spool, max_bytes=2**20):
    """Return the numbers of the frames in their order."""
    numbers = []
    while batch := spool.peek(max_bytes):
        for _, samples in read_body(batch.body):
            numbers.append(samples[0].time_ms)
        spool.release(batch.end)
    return numbers


@pytest.fixture
def opened(tmp_path):
    spools = []

    def open_spool(name="spool", **more):
        spool = Spool(tmp_path / name, **more)
        spools.append(spool)
        return spool

    yield open_spool
    for spool in spools:
        try:
            spool.close()
        except OSError:
            continue


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["append", "peek", "release", "reopen"]), max_size=40),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_released_frames_are_deleted_and_the_others_stay_in_order(tmp_path_factory, steps, per_segment, per_peek):
    folder = tmp_path_factory.mktemp("spool")
    size = len(frame(0))
    spool = Spool(folder, segment_bytes=size * per_segment)
    waiting, batch, number = [], None, 0
    for step in steps:
        if step == "append":
            spool.append(frame(number))
            waiting.append(number)
            number += 1
        elif step == "peek":
            batch = spool.peek(size * per_peek + 5)
            assert (batch is None) == (not waiting)
            if batch:
                got = [samples[0].time_ms for _, samples in read_body(batch.body)]
                assert got == waiting[: len(got)]
        elif step == "release" and batch:
            waiting = [n for n in waiting if n not in [s[0].time_ms for _, s in read_body(batch.body)]]
            spool.release(batch.end)
            batch = None
        elif step == "reopen":
            spool.close()
            spool = Spool(folder, segment_bytes=size * per_segment)
            batch = None
            # Released frames of a segment that still exists come again: the server counts them once.
            again = [n for n in range(number) if n not in waiting]
            peeked = spool.peek(2**30)
            first = read_body(peeked.body)[0][1][0].time_ms if peeked else number
            waiting = [n for n in again if n >= first] + waiting if waiting else [n for n in again if n >= first]
    spool.close()
    spool = Spool(folder)
    numbers = drain(spool)
    spool.close()
    assert numbers == sorted(numbers)
    assert set(waiting) <= set(numbers)
    assert list(folder.glob("*.frames")) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_tail_is_cut_off_and_nothing_else(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder)
    frames = [frame(number, number + 1) for number in range(3)]
    for written in frames:
        spool.append(written)
    spool.close()
    (segment,) = folder.glob("*.frames")
    cut = data.draw(st.integers(0, segment.stat().st_size))
    os.truncate(segment, cut)
    spool = Spool(folder)
    spool.append(frame(9))
    ends = [sum(len(f) for f in frames[: i + 1]) for i in range(3)]
    assert drain(spool) == [number for number, end in enumerate(ends) if end <= cut] + [9]
    spool.close()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_in_the_middle_costs_the_damaged_frame_alone(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder)
    frames = [frame(number, 3) for number in range(4)]
    for written in frames:
        spool.append(written)
    spool.close()
    (segment,) = folder.glob("*.frames")
    content = bytearray(segment.read_bytes())
    size = len(frames[0])
    # In the payload of one of the first three frames, where the checksum detects it.
    hurt = data.draw(st.integers(0, 2))
    content[hurt * size + data.draw(st.integers(20, size - 1))] ^= data.draw(st.integers(1, 255))
    segment.write_bytes(content)
    spool = Spool(folder)
    assert drain(spool) == [number for number in range(4) if number != hurt]
    assert spool.damaged == size
    spool.close()


@pytest.mark.parametrize("lines", [1, 17, 60])
def test_kill_9_loses_nothing_that_was_appended(tmp_path, lines):
    """A process appends as fast as it can and prints each number once it is stored; it is killed at some line."""
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests.unit.collect.test_spool import frame
from jobmeter.collect.spool import Spool
spool = Spool(Path({str(tmp_path)!r}) / "spool", segment_bytes=2000)
number = 0
while True:
    spool.append(frame(number, 5))
    print(number, flush=True)
    number += 1
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split(b"\n")[:-1]
    said += [int(line) for line in rest]
    spool = Spool(tmp_path / "spool")
    numbers = drain(spool)
    spool.close()
    assert numbers[: len(said)] == said
    assert len(numbers) <= len(said) + 1  # stored, and killed before it could print the number


def test_the_oldest_goes_when_the_bound_is_reached_and_is_counted(opened):
    size = len(frame(0, 7))
    spool = opened(max_bytes=size * 4, segment_bytes=size)
    for number in range(10):
        spool.append(frame(number, 7))
        assert spool.size <= size * 4
    assert spool.dropped["spool.full"] == 6 * 7
    assert drain(spool) == [6, 7, 8, 9]


def test_the_bound_holds_while_a_batch_is_under_way(opened):
    size = len(frame(0))
    spool = opened(max_bytes=size * 3, segment_bytes=size)
    for number in range(3):
        spool.append(frame(number))
    batch = spool.peek(size)
    for number in range(3, 6):
        spool.append(frame(number))
    spool.release(batch.end)
    assert drain(spool) == [3, 4, 5]


def test_another_process_is_locked_out(opened, tmp_path):
    opened()
    with pytest.raises(ConflictError):
        Spool(tmp_path / "spool")


def test_what_is_refused_is_set_aside_counted_and_bounded(opened, tmp_path):
    spool = opened()
    for number in range(70):
        spool.append(frame(number, 2))
        batch = spool.peek(2**20)
        spool.set_aside(batch, "value: wrong")
    assert spool.dropped["refused"] == 140
    assert spool.peek(2**20) is None
    rejected = sorted((tmp_path / "spool" / "rejected").glob("*.frames"))
    assert len(rejected) == 64
    assert rejected[-1].with_suffix(".txt").read_text() == "value: wrong\n"
    assert read_body(rejected[-1].read_bytes())[0][1][0].time_ms == 69


def test_frames_of_an_adopted_spool_come_first(opened, tmp_path):
    left = opened("left")
    left.append(frame(1))
    left.append(frame(2))
    busy = opened("busy")
    busy.append(frame(8))
    spool = opened("own")
    assert not spool.adopt(tmp_path / "left")
    left.close()
    assert spool.adopt(tmp_path / "left")
    assert not spool.adopt(tmp_path / "busy")
    assert not (tmp_path / "left").exists()
    spool.append(frame(3))
    assert drain(spool) == [1, 2, 3]
    assert drain(busy) == [8]


class FailingSpool:
    """Spool whose disk is full."""

    directory = Path("/nowhere")
    size = 0
    damaged = 0

    def __init__(self):
        self.dropped = {"spool.full": 0, "refused": 0}
        self.full = True
        self.rejected = []

    def append(self, written):
        if self.full:
            raise OSError(28, "No space left on device")
        self.rejected.append(written)

    def peek(self, max_bytes, max_frames=1):
        return None

    def close(self):
        pass


def test_while_the_disk_takes_nothing_memory_does_up_to_its_bound():
    size = len(frame(0, 3))
    outbox = Outbox(FailingSpool(), memory_bytes=size * 2)  # type: ignore[arg-type]
    for number in range(5):
        outbox.put(frame(number, 3))
    assert outbox.size == size * 2
    assert outbox.dropped["memory.full"] == 9
    assert drain(outbox) == [3, 4]
    assert outbox.size == 0


@given(st.lists(st.integers(1, 4), max_size=10))
def test_memory_alone_is_a_queue_too(takes):
    outbox = Outbox(None)
    for number in range(10):
        outbox.put(frame(number))
    numbers = []
    for take in takes:
        batch = outbox.peek(2**20, take)
        if batch:
            numbers += [samples[0].time_ms for _, samples in read_body(batch.body)]
            outbox.release(batch.end)
    assert numbers == list(range(min(sum(takes), 10)))


def test_a_short_write_leaves_no_half_frame(opened, monkeypatch):
    spool = opened()
    spool.append(frame(1))
    real = os.write
    monkeypatch.setattr("jobmeter.collect.spool.os.write", lambda fd, data: real(fd, data[: len(data) // 2]))
    with pytest.raises(OSError, match="accepted"):
        spool.append(frame(2))
    monkeypatch.undo()
    spool.append(frame(3))
    assert drain(spool) == [1, 3]


def test_positions_are_ordered_as_they_lie():
    assert SpoolPosition(1, 900) < SpoolPosition(2, 0) < SpoolPosition(2, 20)


def test_the_lock_names_the_process_that_uses_the_folder(tmp_path):
    (tmp_path / "lock").write_text("12345678\n")
    spool = Spool(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    spool.close()
