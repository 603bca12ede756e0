"""Tests of jobs and nodes with a late resource group: the whole ingestion, on the memory store and SQLite."""

import threading

import pytest
from tests.unit.ship.test_pump import House

from jobmeter.access.principal import Principal, Role
from jobmeter.errors import UnavailableError
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.event import EventFilter, EventType
from jobmeter.model.log import LogLine
from jobmeter.model.record import JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.model.time import SECOND
from jobmeter.settings import Limits
from jobmeter.ship import late as lates
from jobmeter.ship.late import LateGroups

WRITER = Principal(id="k", name="w", role=Role.WRITER)


class Way(House):
    """``House`` with a whole ingestion pipeline."""

    def __init__(self, folder):
        super().__init__(folder)
        late = LateGroups(self.store, self.registry, self.clock, self.outbox)
        self.pipeline = IngestPipeline(
            self.store, self.registry, self.clock, Limits(), forward=self.outbox.put, late=late
        )

    def write(self, *texts, job="new", before_ms=0, **fields):
        now_ns = (self.clock.now_ms() - before_ms) * 1_000_000
        lines = [LogLine(time_ns=now_ns + at, text=text, job=job, **fields) for at, text in enumerate(texts)]
        self.pipeline.submit_logs(lines, WRITER)
        self.forward(0.001)

    def name(self, group="rg", job="new", **fields):
        self.pipeline.submit_records(Records(jobs=[JobRecord(job_id=job, resource_group=group, **fields)]), WRITER)

    def say(self, *texts, node="late", **fields):
        self.write(*texts, **{"job": "", "node": node, "facility": "kern", "stream": "kernel", **fields})

    def describe(self, group="rg", node="late", project=None):
        writer = WRITER if project is None else Principal(id="k", name="w", role=Role.WRITER, project=project)
        self.pipeline.submit_records(Records(nodes=[NodeRecord(name=node, resource_group=group)]), writer)

    def shipped(self, shipper):
        pump = self.pump(shipper)
        while pump.step() == 0:
            pass
        pump.close()
        return self.sink.texts


@pytest.fixture
def way(tmp_path):
    made = Way(tmp_path)
    yield made
    made.pipeline.close()
    made.registry.close()


def test_lines_from_before_the_group_are_shipped_before_later_ones(way):
    way.write("before the shipper")
    way.forward(1)
    shipper = way.create()
    way.write("a", "b")
    way.write("c", replica="worker-1")
    assert way.shipped(shipper) == []
    way.name()
    way.write("d")
    assert way.shipped(shipper) == ["a", "b", "c", "d"]
    assert [line.number for line in way.sink.lines] == [1, 2, 3, 4]
    state = way.state(shipper)
    assert (state.shipped, state.dropped, state.waiting) == (4, 0, 0)


def test_repeated_records_and_other_groups_ship_no_duplicates(way):
    shipper = way.create()
    way.write("a")
    way.name("elsewhere")
    way.name("rg")  # it belonged to another group, which owns the lines of that time
    way.write("b")
    way.name("rg")
    way.write("c", job="other")
    way.name(None, job="other", name="train")
    way.pipeline.submit_records(Records(jobs=[JobRecord(job_id="other", resource_group="rg")] * 2), WRITER)
    assert way.shipped(shipper) == ["b", "c"]


def test_a_job_of_another_project_or_one_that_wrote_nothing(way):
    shipper = way.create("p2")
    way.write("a", project="default")
    way.name()
    way.name(job="silent", project="p2")
    way.write("b", job="silent", project="p2")
    assert way.shipped(shipper) == ["b"]


def test_every_shipper_of_the_group_gets_them(way):
    everybody, own = way.create(), way.create("default")
    way.write("a")
    way.name()
    assert way.shipped(everybody) == ["a"]
    assert way.shipped(own) == ["a", "a"]


def test_too_many_are_counted_and_reported(way, monkeypatch):
    monkeypatch.setattr(lates, "PAGE_LINES", 3)
    monkeypatch.setattr(lates, "MOST_LINES", 6)
    shipper = way.create()
    way.write(*(str(at) for at in range(10)))
    way.name()
    assert way.shipped(shipper) == ["4", "5", "6", "7", "8", "9"]
    assert (way.state(shipper).dropped, way.state(shipper).shipped) == (4, 6)
    last_event = way.registry.list_events(EventFilter(types=frozenset({EventType.SHIPPER}))).events[-1]
    assert last_event.reason == "ShipperDropped"
    expected = "4 log lines of job new arrived before its group rg was known. They exceeded the limit"
    assert last_event.message.startswith(expected)


def test_long_lines_are_too_many_sooner(way, monkeypatch):
    monkeypatch.setattr(lates, "MOST_BYTES", 250)
    shipper = way.create()
    way.write(*(letter * 100 for letter in "abcd"))
    way.name()
    assert way.shipped(shipper) == ["c" * 100, "d" * 100]
    assert way.state(shipper).dropped == 2


def test_a_failed_record_write_is_retried_whole(way, monkeypatch):
    shipper = way.create()
    way.write("a")
    record = way.registry.record

    def failing(*_):
        monkeypatch.setattr(way.registry, "record", record)
        raise UnavailableError("away")

    monkeypatch.setattr(way.registry, "record", failing)
    with pytest.raises(UnavailableError):
        way.name()
    way.write("b")
    way.name()
    way.write("c")
    assert list(dict.fromkeys(way.shipped(shipper))) == ["a", "b", "c"]


def test_lines_that_come_while_the_group_is_written_keep_their_order(way, monkeypatch):
    """Writers continue throughout. The record arrives in the middle, and is slow."""
    shipper = way.create()
    way.write("first")
    record, begun, go_on = way.registry.record, threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        assert go_on.wait(60)
        return record(*arguments)

    monkeypatch.setattr(way.registry, "record", slow)
    naming = threading.Thread(target=way.name)
    naming.start()
    assert begun.wait(60)
    now_ns = (way.clock.now_ms() + 10) * 1_000_000
    lines = [[LogLine(time_ns=now_ns + at, text=str(at), job="new")] for at in range(5)]
    writers = [threading.Thread(target=way.pipeline.submit_logs, args=(one, WRITER)) for one in lines]
    for writer in writers:
        writer.start()
    go_on.set()
    for thread in (naming, *writers):
        thread.join(60)
    found = way.shipped(shipper)
    assert found[0] == "first"
    assert sorted(found[1:]) == [str(at) for at in range(5)]


def test_no_log_is_read_without_shippers(way, monkeypatch):
    way.write("a")
    monkeypatch.setattr(way.store.logs, "read", None)
    way.name()
    way.forward(SECOND)


def test_lines_of_a_node_from_before_its_group_are_shipped_before_later_ones(way):
    way.say("before the shipper")
    way.forward(1)
    shipper = way.create()
    way.describe("")
    way.say("a", "b")
    way.say("elsewhere", node="other")
    assert way.shipped(shipper) == []
    way.describe()
    way.say("c")
    way.describe()
    assert way.shipped(shipper) == ["a", "b", "c"]
    assert (way.state(shipper).shipped, way.state(shipper).dropped) == (3, 0)


def test_a_node_that_changes_its_group_is_not_caught_up_with(way):
    shipper = way.create()
    way.describe("elsewhere")
    way.say("a")
    way.describe("rg")
    way.registry.memory.forget_groups()  # like ten seconds later
    way.say("b")
    assert way.shipped(shipper) == ["b"]


def test_lines_of_a_node_about_jobs_go_with_the_jobs_group_else_with_the_nodes(way):
    shipper = way.create()
    way.name("elsewhere", job="theirs")
    way.say("killed 1", job="theirs")
    way.say("killed 2", job="groupless")
    way.describe()
    way.say("killed 3", job="theirs")
    way.say("killed 4", job="groupless")
    assert way.shipped(shipper) == ["killed 2", "killed 4"]


def test_lines_of_nodes_about_a_job_from_before_its_group_are_shipped_with_its_own(way):
    shipper = way.create()
    way.pipeline.submit_records(
        Records(jobs=[JobRecord(job_id="new", replicas=[ReplicaRecord(name="worker-0", node="late")])]), WRITER
    )
    way.describe("nodes")
    way.write("began")
    way.say("killed", job="new")
    way.say("killed another", job="other")
    way.say("nobody's")
    way.say("elsewhere", job="new", node="another")
    way.write("goes on")
    way.name()
    way.say("killed again", job="new")
    assert way.shipped(shipper) == ["began", "killed", "goes on", "killed again"]
    assert (way.state(shipper).shipped, way.state(shipper).dropped) == (4, 0)


def test_lines_of_a_node_of_the_same_group_about_a_job_are_not_shipped_again(way):
    shipper = way.create()
    way.pipeline.submit_records(
        Records(jobs=[JobRecord(job_id="new", replicas=[ReplicaRecord(name="worker-0", node="late")])]), WRITER
    )
    way.describe("rg")
    way.say("killed", job="new")
    way.write("mine")
    way.name()
    assert way.shipped(shipper) == ["killed", "mine"]


def test_a_shipper_of_one_project_gets_no_node_lines_of_another(way):
    everybody, own = way.create(), way.create("p2")
    way.say("theirs", project="default")
    way.say("ours", project="p2")
    way.describe(project="p2")
    assert way.shipped(own) == ["ours"]
    assert sorted(way.shipped(everybody)) == ["ours", "ours"]
    assert way.outbox.find_group_of_node("p2", "late") == "rg"


def test_too_many_lines_of_a_node_are_counted(way, monkeypatch):
    monkeypatch.setattr(lates, "PAGE_LINES", 2)
    monkeypatch.setattr(lates, "MOST_LINES", 4)
    shipper = way.create()
    way.say(*(str(at) for at in range(7)))
    way.describe()
    assert way.shipped(shipper) == ["3", "4", "5", "6"]
    assert way.state(shipper).dropped == 3
    last_event = way.registry.list_events(EventFilter(types=frozenset({EventType.SHIPPER}))).events[-1]
    assert last_event.message.startswith("3 log lines of node late arrived before its group rg was known")
