"""Tests of a single shipper, on the memory store and a SQLite registry, with a manual clock."""

import msgspec
import pytest
from tests.support.fakes import NOW, SetClock
from tests.support.memory_store import MemoryStore
from tests.support.waiting import wait_until

from jobmeter.errors import ConflictError, LimitExceededError, NotFoundError
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.record import JobRecord, NodeRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import OutboxRow
from jobmeter.model.time import DAY, HOUR, SECOND
from jobmeter.registry.leases import LEASE_MS
from jobmeter.registry.open import open_registry
from jobmeter.ship import outbox as outboxes
from jobmeter.ship import shipping as shippings
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.outbox import GAP_SECONDS, ShippingOutbox, compute_number
from jobmeter.ship.pump import LEASE_CHECK_SECONDS, LONGEST_SECONDS, Pump
from jobmeter.ship.settings import Sinks
from jobmeter.ship.shipping import Shipping
from jobmeter.ship.sink import SinkError, SinkRefusedError, SinkSettings

KEEP = Retention(raw_days=2)


class TakingSink:
    """Sink that accepts lines unless a test makes it fail."""

    most_lines = 10
    most_bytes = 100_000
    linger_seconds = 0.0

    def __init__(self):
        self.lines = []
        self.failure = None
        self.bad = ""
        self.closed = False

    def send(self, lines):
        if self.failure:
            raise SinkError(self.failure)
        if self.bad and any(line.line.text == self.bad for line in lines):
            raise SinkRefusedError("not to its taste")
        self.lines += lines
        return 0

    def close(self):
        self.closed = True

    @property
    def texts(self):
        return [line.line.text for line in self.lines]


class House:
    """Registry with two jobs, a store, the outbox, and a sink."""

    def __init__(self, folder):
        self.clock = SetClock()
        self.store = MemoryStore()
        self.registry = open_registry(f"sqlite:///{folder / 'registry.db'}", Retention())
        jobs = [
            JobRecord(job_id=name, resource_group=group, state=JobState.RUNNING)
            for name, group in (("j1", "rg"), ("j2", "other"))
        ]
        nodes = [NodeRecord(name="n1", resource_group="rg")]
        self.registry.record("default", Records(jobs=jobs, nodes=nodes), NOW)
        self.registry.record(
            "p2", Records(jobs=[JobRecord(job_id="j3", resource_group="rg", state=JobState.RUNNING)]), NOW
        )
        self.outbox = ShippingOutbox(self.store, self.registry, self.clock)
        rows = [
            SinkSettings(project="p", logstore=name, kind="file", directory=str(folder / name)) for name in ("l", "m")
        ]
        self.shipping = Shipping(
            self.store, self.registry, self.clock, Sinks(rows, DestinationPolicy.from_settings(())), self.outbox
        )
        self.sink = TakingSink()

    def create(self, project=""):
        return self.shipping.create(project, "rg", "p", "l")

    def pump(self, shipper, sink=None):
        return Pump(shipper, lambda: sink or self.sink, self.store, self.registry, self.clock, lambda: 1.0)

    def put(self, *texts, job="j1", project="default", node="", at=NOW):
        lines = [
            LogLine(time_ns=(at + place) * 1_000_000, text=text, job=job, project=project, node=node)
            for place, text in enumerate(texts)
        ]
        self.outbox.put(lines, KEEP)

    def state(self, shipper):
        return next(one for one in self.registry.shippers.list_shippers() if one.id == shipper.id)

    def forward(self, seconds):
        self.clock.time_ms += int(seconds * SECOND)


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path)
    yield made
    made.registry.close()


def test_lines_of_the_group_are_shipped_in_the_order_of_their_arrival(house):
    house.put("before")
    shipper = house.create()
    house.put("b", "c")
    house.put("of another group", job="j2")
    house.put("late", at=NOW - HOUR)
    house.put("elsewhere", job="j3", project="p2")
    house.put("of nobody", job="j9")
    pump = house.pump(shipper)
    assert pump.step() == 0.0
    assert house.sink.texts == ["b", "c", "late", "elsewhere"]
    assert [line.number for line in house.sink.lines] == [1, 2, 3, 4]
    assert house.sink.lines[0].attributes == {
        "resource_group": "rg",
        "project": "default",
        "job": "j1",
        "stream": "stdout",
        "attempt": "0",
    }
    state = house.state(shipper)
    assert (state.shipped, state.cursor, state.waiting, state.oldest, state.error) == (4, 4, 0, None, "")
    assert pump.step() > 0


def test_lines_of_a_node_belong_to_its_group(house):
    shipper = house.create()
    house.put("kernel", job="", node="n1")
    house.put("kernel", job="", node="n2")
    house.pump(shipper).step()
    assert house.sink.texts == ["kernel"]
    assert house.sink.lines[0].attributes["node"] == "n1"


def test_a_shipper_of_a_project_ships_that_projects_lines(house):
    shipper = house.create("p2")
    house.put("mine", job="j3", project="p2")
    house.put("theirs")
    house.pump(shipper).step()
    assert house.sink.texts == ["mine"]


def test_a_sink_that_is_down_is_tried_ever_more_seldom_and_then_has_everything(house):
    shipper = house.create()
    house.put(*(str(place) for place in range(25)))
    house.sink.failure = "it is away"
    pump = house.pump(shipper)
    waits = []
    for _ in range(10):
        waits.append(pump.step())
        house.forward(waits[-1])
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(waits) == waits[-1] == LONGEST_SECONDS
    state = house.state(shipper)
    assert (state.failures, state.error, state.waiting, state.oldest, state.shipped) == (10, "it is away", 25, NOW, 0)
    house.sink.failure = None
    assert [pump.step(), pump.step(), pump.step()] == [0.0, 0.0, 0.0]
    assert house.sink.texts == [str(place) for place in range(25)]
    state = house.state(shipper)
    assert (state.error, state.waiting, state.oldest, state.shipped) == ("", 0, None, 25)


def test_what_expired_before_it_was_shipped_is_counted(house):
    shipper = house.create()
    house.put("old 1", "old 2")
    house.forward(KEEP.raw_days * DAY / SECOND - 10)
    house.put("young")
    house.sink.failure = "it is away"
    pump = house.pump(shipper)
    pump.step()
    house.forward(20)
    house.sink.failure = None
    pump.step()
    pump.step()
    state = house.state(shipper)
    assert house.sink.texts == ["young"]
    assert (state.dropped, state.shipped, state.waiting) == (2, 1, 0)


def test_lines_that_expired_while_no_server_shipped_are_counted(house):
    shipper = house.create()
    house.put("gone 1", "gone 2")
    house.forward(5 * DAY / SECOND)
    house.store.outbox.trim(compute_number(shipper), None)
    house.put("there")
    pump = house.pump(shipper)
    assert pump.step() > 0
    house.forward(GAP_SECONDS)
    for _ in range(3):
        pump.step()
    state = house.state(shipper)
    assert house.sink.texts == ["there"]
    assert (state.dropped, state.shipped, state.waiting) == (2, 1, 0)


def test_unwritten_numbers_are_skipped_after_a_while_and_are_no_loss(house):
    shipper = house.create()
    house.put("a")
    assert house.registry.shippers.reserve(shipper.id, 3) == 2  # by a server that died then
    house.put("b")
    pump = house.pump(shipper)
    pump.step()
    assert house.sink.texts == ["a"]
    pump.step()
    house.forward(GAP_SECONDS - 15)
    pump.step()
    assert house.sink.texts == ["a"]
    house.forward(20)
    pump.step()
    pump.step()
    assert house.sink.texts == ["a", "b"]
    # The highest numbers may be missing too.
    house.registry.shippers.reserve(shipper.id, 2)
    pump.step()
    house.forward(GAP_SECONDS + 1)
    pump.step()
    state = house.state(shipper)
    assert (state.dropped, state.shipped, state.waiting) == (0, 2, 0)


def test_a_row_that_comes_late_is_waited_for(house):
    shipper = house.create()
    first = house.registry.shippers.reserve(shipper.id, 1)
    house.put("second")
    pump = house.pump(shipper)
    pump.step()
    assert house.sink.texts == []
    line = LogLine(time_ns=NOW * 1_000_000, text="first", job="j1")
    house.store.outbox.append(compute_number(shipper), [OutboxRow(first, NOW, 2, msgspec.json.encode(line))])
    pump.step()
    assert house.sink.texts == ["first", "second"]


def test_a_write_that_took_too_long_is_made_again_under_new_numbers(house, monkeypatch):
    shipper = house.create()
    append, slow = house.store.outbox.append, [True]

    def slowly(number, rows):
        append(number, rows)
        if slow.pop() if slow else False:
            house.forward(outboxes.WRITE_SECONDS)

    monkeypatch.setattr(house.store.outbox, "append", slowly)
    house.put("a")
    house.pump(shipper).step()
    assert [(line.number, line.line.text) for line in house.sink.lines] == [(1, "a"), (2, "a")]


def test_a_line_that_its_sink_refuses_does_not_hold_up_the_others(house):
    shipper = house.create()
    house.put("a", "b", "bad", "c", "d")
    house.sink.bad = "bad"
    house.pump(shipper).step()
    state = house.state(shipper)
    assert house.sink.texts == ["a", "b", "c", "d"]
    assert (state.shipped, state.rejected, state.waiting) == (4, 1, 0)


def test_few_lines_wait_for_more_where_the_sink_wants_large_batches(house):
    shipper = house.create()
    house.sink.linger_seconds = 30.0
    house.put("a")
    pump = house.pump(shipper)
    pump.step()
    assert house.sink.texts == []
    assert house.state(shipper).oldest == NOW
    house.put(*"bcdefghijk")
    pump.step()
    assert house.sink.texts == list("abcdefghij")
    house.forward(31)
    pump.step()
    assert house.sink.texts == list("abcdefghijk")


def test_one_server_of_several_ships_until_it_is_gone(house):
    shipper = house.create()
    first, second, other = house.pump(shipper), None, TakingSink()
    house.put("a")
    first.step()
    second = house.pump(shipper, other)
    house.put("b")
    assert second.step() == LEASE_CHECK_SECONDS
    assert (house.sink.texts, other.texts) == (["a"], [])
    house.forward(LEASE_MS / SECOND + 1)
    second.step()
    assert other.texts == ["b"]
    # The first shipper returns, and finds that it has lost the lease.
    house.put("c")
    assert first.step() == LEASE_CHECK_SECONDS
    assert house.sink.texts == ["a"]


def test_a_server_that_lost_its_lease_meanwhile_writes_nothing_down(house):
    shipper = house.create()
    house.put("a")
    first = house.pump(shipper)
    send = house.sink.send

    def paused(lines):
        house.forward(LEASE_MS / SECOND + 1)
        other = house.pump(shipper, TakingSink())
        other.step()
        other.close()
        return send(lines)

    house.sink.send = paused
    first.step()
    state = house.state(shipper)
    assert (state.cursor, state.shipped) == (1, 1)


def test_closing_lets_another_server_continue_immediately(house):
    shipper = house.create()
    first = house.pump(shipper)
    house.put("a")
    first.step()
    first.close()
    assert house.sink.closed
    other = TakingSink()
    house.put("b")
    house.pump(shipper, other).step()
    assert other.texts == ["b"]


def test_a_sink_removed_from_the_settings_is_reported_as_missing(house):
    shipper = house.create()
    house.put("a")

    def missing():
        raise NotFoundError("the settings of this server have no sink for p/l", "sink")

    pump = Pump(shipper, missing, house.store, house.registry, house.clock)
    assert pump.step() > 0
    assert house.state(shipper).error == "the settings of this server have no sink for p/l"


def test_shipped_lines_leave_the_outbox(house, monkeypatch):
    monkeypatch.setattr("jobmeter.ship.pump.TRIM_LINES", 5)
    shipper = house.create()
    house.put(*"abcde")
    house.pump(shipper).step()
    assert house.store.outbox.read(compute_number(shipper), 0, 10, 10_000) == []


def test_making_and_deleting(house):
    shipper = house.create()
    assert house.create() == house.state(shipper)
    with pytest.raises(ConflictError, match="go to p/l"):
        house.shipping.create("", "rg", "p", "m")
    with pytest.raises(NotFoundError) as caught:
        house.shipping.create("", "rg2", "p", "elsewhere")
    assert caught.value.kind == "sink"
    house.put("waits")
    assert house.shipping.delete(shipper).waiting == 1
    assert house.shipping.list_shippers() == []
    house.put("nobody wants it")
    assert house.store.outbox.read(compute_number(shipper), 0, 10, 10_000) == []


def test_there_is_a_limit_to_shippers(house, monkeypatch):
    monkeypatch.setattr(shippings, "MOST", 1)
    house.create()
    with pytest.raises(LimitExceededError):
        house.shipping.create("", "rg2", "p", "l")


def test_shippers_are_looked_for_again_after_an_unexpected_error(house, monkeypatch, caplog):
    monkeypatch.setattr(shippings, "_POLL_SECONDS", 0.001)
    seen, read = [], house.shipping.list_shippers

    def every():
        seen.append(1)
        if len(seen) < 4:
            raise ValueError("a bug")
        return read()

    monkeypatch.setattr(house.shipping, "list_shippers", every)
    house.shipping.start()
    wait_until(lambda: len(seen) > 6)
    house.shipping.stop()
    assert caplog.text.count("the shippers cannot be read") == 3
