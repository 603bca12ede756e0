"""Delivery against a server that fails in every way it may."""

import json
import time

import pytest
from tests.unit.collect.test_spool import frame
from tests.unit.wire.straight_reader import read_body
from tests.waiting import wait_until

from jobmeter.client.transport import FRAMES, Response
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Spool
from jobmeter.errors import (
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from jobmeter.model.time import SystemClock


class Server:
    """``refuse`` looks at the numbers of a body's frames and gives an error or None."""

    def __init__(self, refuse=lambda numbers: None):
        self.refuse = refuse
        self.taken = []
        self.asked = []

    def request(self, method, path, body=None, headers=None):
        numbers = [samples[0].time_ms for _, samples in read_body(body)]
        self.asked.append((time.monotonic(), numbers))
        error = self.refuse(numbers)
        if error:
            raise error
        assert (method, path, headers) == ("POST", "/api/jobmeter/v1/ingest", {"Content-Type": FRAMES})
        self.taken += numbers
        return Response(200, {}, json.dumps({"accepted": len(numbers), "rejected": {"future": 1}}).encode())


@pytest.fixture
def box(tmp_path):
    outbox = Outbox(Spool(tmp_path / "spool"))
    yield outbox
    outbox.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr("jobmeter.collect.deliver._FIRST_WAIT", 0.01)


def deliver(outbox, server, seconds=20, connect=None):
    delivery = Delivery(outbox, connect or (lambda: server), SystemClock())
    delivery.start()
    wait_until(lambda: not outbox.size, seconds=seconds)
    delivery.stop()
    return delivery


def test_everything_arrives_once_and_in_order(box):
    for number in range(20):
        box.put(frame(number, 2))
    server = Server()
    delivery = deliver(box, server)
    assert server.taken == list(range(20))
    assert len(server.asked) < 20
    assert box.size == 0
    assert delivery.refused == {"future": len(server.asked)}


def test_a_server_that_is_away_is_asked_again_until_it_takes_everything(box):
    errors = [UnavailableError("away"), UnauthenticatedError("no"), JobmeterError("internal"), ValueError("a bug")]
    server = Server(lambda numbers: errors.pop() if errors else None)
    for number in range(5):
        box.put(frame(number))
    delivery = deliver(box, server)
    assert server.taken == list(range(5))
    assert delivery.failed_attempts == 4
    assert delivery.last_error == ""


def test_a_connection_that_is_not_there_yet_is_looked_for_again(box):
    server, tries = Server(), []

    def connect():
        tries.append(1)
        if len(tries) < 3:
            raise UnavailableError("not yet")
        return server

    box.put(frame(1))
    deliver(box, server, connect=connect)
    assert server.taken == [1]


@pytest.mark.parametrize("error", [ThrottledError("slowly", 700), UnavailableError("later", 700)])
def test_the_wait_that_the_server_asks_for_is_kept(box, error):
    errors = [error]
    server = Server(lambda numbers: errors.pop() if errors else None)
    box.put(frame(1))
    deliver(box, server)
    (first, _), (second, _) = server.asked
    assert second - first >= 0.7


@pytest.mark.parametrize("error", [InvalidRequestError("no", "value"), LimitExceededError("too much", "body")])
def test_what_the_server_will_never_take_is_set_aside_and_the_rest_arrives(box, error, tmp_path):
    for number in range(10):
        box.put(frame(number, 3))
    server = Server(lambda numbers: error if {4, 7} & set(numbers) else None)
    deliver(box, server)
    assert server.taken == [0, 1, 2, 3, 5, 6, 8, 9]
    assert box.dropped["refused"] == 6
    rejected = sorted((tmp_path / "spool" / "rejected").glob("*.frames"))
    assert [read_body(path.read_bytes())[0][1][0].time_ms for path in rejected] == [4, 7]
    assert len([numbers for _, numbers in server.asked if 4 in numbers]) <= 2


def test_flushing_ends_at_once_when_the_server_is_away(box):
    box.put(frame(1))
    delivery = Delivery(box, lambda: Server(lambda numbers: UnavailableError("away")), SystemClock())
    delivery.start()
    begin = time.monotonic()
    assert not delivery.flush(30)
    assert time.monotonic() - begin < 10
    delivery.stop()
    assert box.size > 0


def test_flushing_waits_for_the_acknowledgement(box):
    server = Server()
    delivery = Delivery(box, lambda: server, SystemClock())
    delivery.start()
    for number in range(3):
        box.put(frame(number))
    assert delivery.flush(30)
    assert server.taken == [0, 1, 2]
    delivery.stop()
