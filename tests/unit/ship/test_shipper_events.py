"""Tests of shippers in the event stream, on the memory store and a SQLite registry, with a manual clock."""

import pytest
from tests.unit.ship.test_pump import KEEP, House

from jobmeter.errors import NotFoundError
from jobmeter.model.event import EventFilter, EventSource, EventType, Level
from jobmeter.model.time import DAY, SECOND
from jobmeter.ship.events import QUIET_SECONDS


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path)
    yield made
    made.registry.close()


def shipper_events(house, **wanted):
    """Return the events of shippers, in their order."""
    filter_ = EventFilter(types=frozenset({EventType.SHIPPER}), limit=1000, **wanted)
    return house.registry.list_events(filter_).events


def reasons(house, **wanted):
    return [one.reason.removeprefix("Shipper") for one in shipper_events(house, **wanted)]


def test_making_and_deleting_are_reported_once(house):
    shipper = house.create("p2")
    assert house.create("p2") == shipper  # already there
    house.put("waits", job="j3", project="p2")
    house.forward(1)
    house.shipping.delete(shipper)
    with pytest.raises(NotFoundError):
        house.shipping.delete(shipper)
    made, gone = shipper_events(house)
    assert (made.reason, made.source, made.level, made.project) == (
        "ShipperCreated", EventSource.SERVER, Level.INFO, "p2",
    )  # fmt: skip
    assert (made.object.kind, made.object.name) == ("shipper", shipper.id)
    assert made.message == "The logs of rg are shipped to p/l."
    assert gone.message == "The logs of rg are not shipped to p/l any more. 1 waiting lines were not shipped."


def test_a_shipper_of_every_project_is_nobodys(house):
    house.create()
    assert reasons(house, projects=frozenset({"default", "p2"})) == []
    assert reasons(house) == ["Created"]


def test_a_failing_sink_is_reported_once_and_so_is_its_return(house):
    shipper = house.create()
    pump = house.pump(shipper)
    house.put("a")
    house.sink.failure = "it is away"
    for _ in range(5):
        house.forward(pump.step())
    assert reasons(house) == ["Created", "Failed"]
    failed = shipper_events(house)[-1]
    assert failed.message == "The sink p/l of the logs of rg does not accept lines: it is away."
    assert failed.level is Level.WARNING
    house.sink.failure = None
    pump.step()
    house.put("b")
    pump.step()
    assert reasons(house) == ["Created", "Failed", "Recovered"]


def test_another_server_that_goes_on_reports_nothing_twice(house):
    shipper = house.create()
    first = house.pump(shipper)
    house.put("a")
    house.sink.failure = "it is away"
    first.step()
    first.close()
    second = house.pump(house.state(shipper))
    house.forward(QUIET_SECONDS)
    second.step()
    assert reasons(house) == ["Created", "Failed"]
    house.sink.failure = None
    second.step()
    assert reasons(house) == ["Created", "Failed", "Recovered"]


def test_a_sink_that_comes_and_goes_is_reported_once_a_minute(house):
    shipper = house.create()
    pump = house.pump(shipper)
    for at in range(30):
        house.put(str(at))
        for house.sink.failure in ("it is away", None):
            pump.step()
            house.forward(1)
    assert reasons(house) == ["Created", "Failed", "Recovered"]
    house.forward(QUIET_SECONDS)
    house.put("later")
    house.sink.failure = "it is away"
    pump.step()
    assert reasons(house)[-1] == "Failed"


def test_what_is_lost_is_reported_with_its_number_and_not_by_every_batch(house):
    shipper = house.create()
    house.put(*(f"old {at}" for at in range(25)))
    house.forward(KEEP.raw_days * DAY / SECOND + 10)
    pump = house.pump(shipper)
    for _ in range(4):
        pump.step()
    assert reasons(house) == ["Created", "Dropped"]
    house.put("good", "bad")
    house.sink.bad = "bad"
    pump.step()
    house.forward(QUIET_SECONDS)
    pump.step()
    assert reasons(house) == ["Created", "Dropped", "Dropped", "Rejected"]
    assert [one.message for one in shipper_events(house)[1:]] == [
        "10 log lines of rg expired before delivery and were not shipped to p/l.",
        "15 log lines of rg expired before delivery and were not shipped to p/l.",
        "1 log lines of rg were permanently refused and were not shipped to p/l.",
    ]
    assert house.state(shipper).dropped == 25
