"""Tests of the fair queue: the next work is that of the key with the least recent use."""

import pytest
from tests.support.fakes import SetClock

from jobmeter.errors import ThrottledError
from jobmeter.server import fair
from jobmeter.server.fair import FairQueue, QueueEntry


class Queue:
    """Queue, and the order in which it admits."""

    def __init__(self, slots, of_a_key=4):
        self.clock = SetClock()
        self.queue = FairQueue(slots, of_a_key, self.clock)
        self.admitted = []

    def wait(self, key, times=1):
        places = [QueueEntry(key, lambda: self.admitted.append(key)) for _ in range(times)]
        for place in places:
            self.queue.wait(place)
        return places

    def work(self, key, seconds):
        """End a running piece of the key's work after these seconds."""
        self.clock.time_ms += int(seconds * 1000)
        self.queue.leave(key)


def test_what_fits_begins_at_once_and_the_rest_waits():
    one = Queue(slots=3, of_a_key=2)
    assert [one.queue.enter(key) for key in "aaabc"] == [True, True, False, True, False]
    one.queue.leave("b")
    assert one.queue.enter("c")


def test_a_quiet_key_s_question_passes_the_200_that_wait():
    one = Queue(slots=4)
    heavy = [f"heavy-{number}" for number in range(8)]
    for key in heavy:
        assert one.queue.enter(key)
        one.work(key, seconds=3)
    for key in heavy:
        one.wait(key, 25)
    running = list(one.admitted)
    assert len(running) == 4
    one.wait("quiet")
    for key in running:
        # The quiet key passes repeatedly, although it has used a little by then.
        one.work(key, seconds=3)
        assert one.admitted[-1] == "quiet"
        one.work("quiet", seconds=0.01)
        assert one.admitted[-1] != "quiet"
        one.wait("quiet")


def test_keys_share_by_seconds_not_by_number():
    one = Queue(slots=1)
    one.wait("long", 100)
    one.wait("short", 100)
    seconds = {"long": 4.0, "short": 1.0}
    for _ in range(100):
        one.work(one.admitted[-1], seconds[one.admitted[-1]])
    used = {key: one.admitted.count(key) * seconds[key] for key in seconds}
    assert 0.6 < used["long"] / used["short"] < 1.7


def test_one_key_alone_has_no_more_than_its_number():
    one = Queue(slots=4, of_a_key=2)
    one.wait("a", 10)
    assert one.admitted == ["a", "a"]
    one.wait("b", 10)
    assert one.admitted == ["a", "a", "b", "b"]


def test_who_rested_gains_no_credit_and_who_worked_is_forgiven():
    one = Queue(slots=1)
    one.wait("a", 2)
    one.work("a", 60)
    one.work("a", 1)
    one.clock.time_ms += 3_600_000
    one.wait("c")
    one.wait("a")
    one.wait("b")
    one.work("c", 1)
    one.work(one.admitted[-1], 0)
    assert sorted(one.admitted[-2:]) == ["a", "b"]


def test_who_gives_up_leaves_the_place_to_others():
    one = Queue(slots=1)
    _running, first, second = one.wait("a", 3)
    one.queue.give_up(first)
    one.work("a", 1)
    assert second.admitted
    assert not first.admitted
    # The entry is given up at the very moment of its turn.
    (last,) = one.wait("b")
    one.queue.give_up(second)
    assert last.admitted
    one.queue.give_up(last)
    assert one.queue.enter("c")


def test_a_queue_that_is_full_refuses(monkeypatch):
    monkeypatch.setattr(fair, "WAITING", 2)
    one = Queue(slots=1)
    one.wait("a", 3)
    with pytest.raises(ThrottledError):
        one.wait("a")
    one.wait("b")


def test_keys_without_work_are_forgotten(monkeypatch):
    monkeypatch.setattr(fair, "KEYS", 10)
    one = Queue(slots=1)
    assert one.queue.enter("heavy")
    one.work("heavy", seconds=5)
    for number in range(9):
        assert one.queue.enter(str(number))
        one.queue.leave(str(number))
    assert one.queue.enter("last")
    one.wait("heavy")
    one.wait("1")
    one.queue.leave("last")
    assert one.admitted == ["heavy"], "its use was forgotten"


def test_as_many_keys_are_remembered_as_is_said():
    """The use of a key counts until as many other keys as documented came after it."""
    one = Queue(slots=1, of_a_key=1)
    assert one.queue.enter("heavy")
    one.work("heavy", seconds=5)
    for number in range(fair.KEYS - 2):
        assert one.queue.enter(str(number))
        one.queue.leave(str(number))
    assert one.queue.enter("last")
    one.wait("heavy")
    one.wait("0")
    one.queue.leave("last")
    assert one.admitted == ["0"], "it used less"


def test_those_idle_for_longest_are_forgotten_first_and_none_that_works_or_waits(monkeypatch):
    monkeypatch.setattr(fair, "KEYS", 4)
    one = Queue(slots=2)
    assert one.queue.enter("works")
    assert one.queue.enter("idle")
    one.wait("waits")
    one.work("idle", seconds=5)
    assert one.admitted == ["waits"]
    one.wait("waits")
    for number in range(9):
        one.wait(f"new-{number}")
    assert (one.queue.count_running("works"), one.queue.count_running("waits"), one.queue.waiting) == (1, 1, 10)
    one.wait("idle")
    for key in ("works", *(f"new-{number}" for number in range(9))):
        one.work(key, seconds=0)
    assert one.admitted[-1] == "idle", "what it used was forgotten"
