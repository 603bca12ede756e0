"""Tests of a run's output: bytes to lines, levels, and output above the limits."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.straight_reader import read_body

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.launch import logs as sending
from jobmeter.collect.launch.lines import LineSplitter
from jobmeter.collect.launch.logs import LogSender
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Spool
from jobmeter.model.log import MAX_TEXT_BYTES, LogLine, cut_text
from jobmeter.wire.native.decode import decode
from jobmeter.wire.native.logs import make_logs_frame

S = 1_000_000_000


def split(*parts):
    """Return the texts of parts given as (seconds, bytes or None for a tick)."""
    splitter = LineSplitter()
    found = []
    for seconds, data in parts:
        now = int(seconds * S)
        found += splitter.tick(now) if data is None else splitter.feed(data, now)
    found += splitter.end(1000 * S)
    times = [time for time, _ in found]
    assert times == sorted(set(times))
    return [text for _, text in found]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\x1b", exclude_categories=["Cs"])), max_size=20), st.data()
)
def test_lines_are_found_wherever_the_bytes_are_parted(lines, data):
    whole = "\n".join(lines).encode()
    parts = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        parts.append((0, whole[:size]))
        whole = whole[size:]
    expected = "\n".join(lines).split("\n")
    assert split(*parts) == (expected[:-1] if not expected[-1] else expected)


@given(st.lists(st.tuples(st.sampled_from([0, 0.25, 1.5]), st.binary(max_size=12)), max_size=20))
def test_any_bytes_make_lines_without_line_ends(parts):
    now, timed = 0.0, []
    for passed, data in parts:
        now += passed
        timed.append((now, data))
    for text in split(*timed):
        assert not {"\n", "\r"} & set(text)


def test_line_ends_of_either_kind():
    assert split((0, b"a\nb\r\n\n\r\nlast")) == ["a", "b", "", "", "last"]
    assert split((0, b"a\r"), (0.1, b"\nb")) == ["a", "b"]
    assert split((0, b"")) == []


def test_a_progress_bar_is_stored_once_a_second_and_at_its_end():
    parts = [(at / 10, f"\r{at}%".encode()) for at in range(101)]
    texts = split(*parts, (10.05, b"\n"), (10.06, b"done\n"))
    assert texts[-2:] == ["100%", "done"]
    assert 8 <= len(texts) <= 13
    assert texts[:3] == ["0%", "10%", "20%"] or texts[0] in {"0%", "1%"}


def test_a_bar_that_stands_still_shows_where_it_is():
    assert split((0, b"\r1%"), (0.1, b"\r2%"), (0.2, None), (1.5, None), (3, None), (9, None)) == ["1%", "2%"]


def test_bars_that_are_drawn_by_moving_up_are_one_line_that_changes():
    parts = [(at / 10, f"\n\r{at}%\x1b[A".encode()) for at in range(40)]
    texts = split((0, b"start\n"), *parts, (4.0, b"\n\ndone\n"))
    assert texts[0] == "start"
    assert texts[-1] == "done"
    assert "39%" in texts
    assert len(texts) < 12


def test_colours_stay_and_other_control_sequences_go():
    assert split((0, b"\x1b[31mred\x1b[0m\x1b[K\x1b[?25l\n")) == ["\x1b[31mred\x1b[0m"]


def test_a_line_without_an_end_takes_no_memory():
    splitter, piece = LineSplitter(), b"x" * 65_536
    tracemalloc.start()
    for _ in range(100):
        splitter.feed(piece, 0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 4 * MAX_TEXT_BYTES
    assert [text for _, text in splitter.end(1)] == [cut_text("x" * 6_553_600)]


@pytest.mark.parametrize("size", [MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1, MAX_TEXT_BYTES - 1])
@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_texts_are_never_longer_than_they_may_be(size, byte):
    (text,) = split((0, byte * size + b"\n"))
    assert len(text.encode()) <= MAX_TEXT_BYTES
    assert (text == "x" * size) == (byte == b"x" and size <= MAX_TEXT_BYTES)


class Ticking:
    """Clock that advances one microsecond at each reading."""

    def __init__(self):
        self.now = 1_790_000_000 * S

    def __call__(self):
        self.now += 1000
        return self.now


PLAN = LaunchPlan(job="j", name="j", kind="", command=("x",), user="u", attempt=1)


def sent(outbox):
    found: list[LogLine] = []
    while batch := outbox.peek(2**30):
        found += decode(batch.body).lines
        outbox.release(batch.end)
    return found


def test_lines_go_to_the_outbox_with_who_wrote_them():
    outbox = Outbox(None)
    sender = LogSender(PLAN, NodeIdentity("node-1", project="p"), outbox, now_ns=Ticking())
    sender.start()
    sender.take("worker-0", "stdout", b"hello\nwor")
    sender.take("worker-1", "stderr", b"ERROR: bad\n")
    sender.take("worker-0", "stdout", b"ld")
    sender.stop()
    lines = sorted(sent(outbox), key=lambda line: line.order)
    assert [(line.replica, line.stream, line.text, line.level) for line in lines] == [
        ("worker-0", "stdout", "hello", None),
        ("worker-1", "stderr", "ERROR: bad", "error"),
        ("worker-0", "stdout", "world", None),
    ]
    assert {(line.job, line.project, line.node, line.attempt) for line in lines} == {("j", "p", "node-1", 1)}
    assert (sender.sent, sender.dropped) == (3, 0)


def test_what_comes_too_fast_is_counted_and_reported(monkeypatch):
    monkeypatch.setattr(sending, "_WAITING_BYTES", 1_000)
    outbox = Outbox(None)
    sender = LogSender(PLAN, NodeIdentity("n"), outbox, now_ns=Ticking())
    for round_ in range(3):
        for at in range(300):
            sender.take("worker-0", "stdout", b"%d-%d\nunfin" % (round_, at))
            sender.take("worker-0", "stdout", b"ished\n")
        sender.turn()
    sender.start()
    sender.stop()
    lines = sent(outbox)
    marks = [line for line in lines if line.text.startswith("[jobmeter: ")]
    begun = sum(line.text == "unfin" for line in lines)  # its end was omitted
    assert len(lines) - len(marks) - begun + sender.dropped == 1800
    assert sum(int(line.text.split()[1]) for line in marks) == sender.dropped > 1000
    assert len(marks) == 3
    times = [line.time_ns for line in lines]
    assert times == sorted(set(times))


def test_the_newest_lines_of_a_flood_at_the_end_are_stored(monkeypatch):
    monkeypatch.setattr(sending, "_LAST_BYTES", 1_000)
    monkeypatch.setattr(sending, "_ROUND_LINES", 10)
    outbox = Outbox(None)
    sender = LogSender(PLAN, NodeIdentity("n"), outbox, now_ns=Ticking())
    for at in range(1_000):
        sender.take("worker-0", "stdout", b"%d\n" % at)
    sender.start()
    sender.stop()
    mark, *lines = sent(outbox)
    assert mark.text.startswith(f"[jobmeter: {sender.dropped} lines are missing here")
    assert [line.text for line in lines] == [str(at) for at in range(sender.dropped, 1_000)]
    assert len(lines) > 100


def test_logs_leave_half_of_the_spool_to_the_samples(tmp_path):
    spool = Spool(tmp_path / "spool", max_bytes=4_000, segment_bytes=500)
    outbox = Outbox(spool)
    sender = LogSender(PLAN, NodeIdentity("n"), outbox, now_ns=Ticking())
    for number in range(60):
        sender.take("worker-0", "stdout", f"{number} {number**40}\n".encode())
        sender.turn()
    assert spool.size <= 2_500
    assert sender.dropped > 0
    assert outbox.dropped_lines == 0
    assert len(sent(outbox)) == sender.sent
    spool.close()


def test_lines_that_the_spool_gives_up_are_counted(tmp_path):
    spool = Spool(tmp_path / "spool", max_bytes=2_000, segment_bytes=300)
    outbox = Outbox(spool)
    frame = make_logs_frame([LogLine(time_ns=at, text="a", job="j") for at in range(2)])
    for _ in range(40):
        outbox.put(frame)
    assert spool.dropped_lines > 0
    assert outbox.dropped_lines + len(sent(outbox)) == 80
    assert spool.dropped["spool.full"] == 0
    spool.close()


def test_lines_that_memory_gives_up_are_counted():
    frame = make_logs_frame([LogLine(time_ns=at, text="a", job="j") for at in range(2)])
    outbox = Outbox(None, memory_bytes=5 * len(frame))
    for _ in range(8):
        outbox.put(frame)
    assert (outbox.dropped_lines, len(sent(outbox))) == (6, 10)


def test_frames_of_lines_are_read_by_the_documented_form():
    outbox = Outbox(None)
    sender = LogSender(PLAN, NodeIdentity("n"), outbox, now_ns=Ticking())
    sender.take("worker-0", "stdout", b"x\n")
    sender.start()
    sender.stop()
    batch = outbox.peek(2**20)
    assert batch is not None
    ((kind, _),) = read_body(batch.body)
    assert kind == 3
