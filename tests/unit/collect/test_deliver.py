"""Tests of delivery to a server that fails in every possible way."""

import json
import time

import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.test_spool import frame
from tests.unit.wire.straight_reader import read_body

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
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.model.time import SystemClock
from jobmeter.wire.native.encode import encode_samples
from jobmeter.wire.native.frame import FrameKind, write_frame


class Server:
    """Server of the tests; ``refuse`` maps the numbers of a body's frames to an error or None."""

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
        return Response(200, {}, json.dumps({"accepted": len(numbers), "rejected": {"expired": 1}}).encode())


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
    assert delivery.refused == {"expired": len(server.asked)}


def test_a_server_that_is_away_is_tried_again_until_it_takes_everything(box):
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
def test_the_wait_that_the_server_requests_is_respected(box, error):
    errors = [error]
    server = Server(lambda numbers: errors.pop() if errors else None)
    box.put(frame(1))
    deliver(box, server)
    (first, _), (second, _) = server.asked
    assert second - first >= 0.7


@pytest.mark.parametrize("error", [InvalidRequestError("no", "value"), LimitExceededError("too much", "body")])
def test_permanently_refused_frames_are_set_aside_and_the_rest_is_delivered(box, error, tmp_path):
    for number in range(10):
        box.put(frame(number, 3))
    server = Server(lambda numbers: error if {4, 7} & set(numbers) else None)
    deliver(box, server)
    assert server.taken == [0, 1, 2, 3, 5, 6, 8, 9]
    assert box.dropped["refused"] == 6
    rejected = sorted((tmp_path / "spool" / "rejected").glob("*.frames"))
    assert [read_body(path.read_bytes())[0][1][0].time_ms for path in rejected] == [4, 7]
    assert len([numbers for _, numbers in server.asked if 4 in numbers]) <= 2


def test_flushing_ends_immediately_when_the_server_is_away(box):
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


NOW = 1_795_222_148_000
MINUTE = 60_000


class Clocks:
    """Clock of this node, which the test sets; waiting takes real time."""

    def __init__(self):
        self.ms = NOW

    def now_ms(self):
        return self.ms

    def monotonic(self):
        return time.monotonic()


class Behind:
    """Server that refuses frames more than five minutes ahead of its clock."""

    def __init__(self, clocks, behind_ms):
        self.clocks, self.behind_ms = clocks, behind_ms
        self.taken: dict[int, float] = {}
        self.bodies = 0
        self.refusals = 0

    def request(self, method, path, body=None, headers=None):
        self.bodies += 1
        now = self.clocks.ms - self.behind_ms
        read = [sample for _, samples in read_body(body) for sample in samples]
        taken = {sample.time_ms: sample.value for sample in read if sample.time_ms <= now + 5 * MINUTE}
        self.taken |= taken
        early = len(read) - len(taken)
        self.refusals += bool(early)
        receipt = {"accepted": len(taken), "rejected": {"future": early} if early else {}, "time": now}
        return Response(200, {}, json.dumps(receipt).encode())


def stamped(time_ms, value=1.0):
    return write_frame(FrameKind.SAMPLES, encode_samples([Sample(Series("node.load1", node="n"), time_ms, value)]))


def test_a_server_whose_clock_is_behind_destroys_nothing(box, caplog):
    caplog.set_level("INFO")
    clocks = Clocks()
    server = Behind(clocks, 20 * MINUTE)
    for number in range(-30, 1):
        box.put(stamped(NOW + number * MINUTE))
    delivery = Delivery(box, lambda: server, clocks)
    delivery.start()
    wait_until(lambda: server.refusals >= 4)
    # Frames that are not ahead of the server have arrived, the rest waits.
    assert sorted(server.taken) == [NOW + number * MINUTE for number in range(-30, -14)]
    assert box.size > 0
    assert "too far ahead" in delivery.last_error
    warnings = [record.getMessage() for record in caplog.records if "too far ahead" in record.getMessage()]
    assert len(warnings) == 1
    assert "2026-11-21T00:49:08Z" in warnings[0]
    assert "2026-11-21T00:29:08Z, 1200 s behind" in warnings[0]
    assert delivery.refused == {}
    server.behind_ms = 0
    delivery.stop()
    delivery = Delivery(box, lambda: server, clocks)
    delivery.start()
    assert delivery.flush(20)
    delivery.stop()
    assert sorted(server.taken) == [NOW + number * MINUTE for number in range(-30, 1)]
    assert box.dropped == {"spool.full": 0, "refused": 0, "memory.full": 0}
    assert delivery.acknowledged == 15


def test_clocks_that_agree_again_are_reported(box, caplog):
    caplog.set_level("INFO")
    clocks = Clocks()
    server = Behind(clocks, 20 * MINUTE)
    box.put(stamped(NOW))
    delivery = Delivery(box, lambda: server, clocks)
    delivery.start()
    wait_until(lambda: server.refusals >= 2)
    server.behind_ms = 0
    wait_until(lambda: box.size == 0)
    delivery.stop()
    assert [text for text in caplog.messages if "agree again" in text]


def test_samples_that_are_ahead_of_both_clocks_are_set_aside_and_hold_up_nothing(box, tmp_path):
    clocks = Clocks()
    server = Behind(clocks, 0)
    for ahead in (360 * MINUTE, 361 * MINUTE):
        box.put(stamped(NOW + ahead))
    box.put(stamped(NOW))
    delivery = Delivery(box, lambda: server, clocks)
    delivery.start()
    assert delivery.flush(20)
    delivery.stop()
    assert server.taken == {NOW: 1.0}
    assert box.dropped["refused"] == 2
    (reason, _) = [path.read_text() for path in sorted((tmp_path / "spool" / "rejected").glob("*.txt"))]
    assert "ahead of this node's clock" in reason
    assert "ahead of this node's clock" in delivery.set_aside


def test_what_waits_for_the_servers_clock_is_bounded_and_counted(tmp_path):
    clocks = Clocks()
    box = Outbox(Spool(tmp_path / "small", max_bytes=4000, segment_bytes=500))
    server = Behind(clocks, 60 * MINUTE)
    delivery = Delivery(box, lambda: server, clocks)
    delivery.start()
    for second in range(200):
        box.put(stamped(NOW + second))
    delivery.stop()
    assert box.size <= 4000
    assert box.dropped["spool.full"] > 0
    box.close()


def test_a_project_at_its_limit_of_series_is_tried_again(box):
    full = LimitExceededError("project p has at most 10 live series", "project")
    errors = [full, full, full]
    server = Server(lambda numbers: errors.pop() if errors else None)
    for number in range(3):
        box.put(frame(number))
    deliver(box, server)
    assert server.taken == [0, 1, 2]
    assert box.dropped["refused"] == 0


def test_unknown_metrics_are_reported_once(box, caplog):
    class Older(Server):
        def request(self, *arguments, **more):
            super().request(*arguments, **more)
            return Response(200, {}, b'{"accepted": 1, "rejected": {"unknown_metric": 2}, "unknown": ["node.new"]}')

    delivery = Delivery(box, Older, SystemClock())
    delivery.start()
    for number in range(3):
        box.put(frame(number))
        wait_until(lambda: box.size == 0)
    delivery.stop()
    assert len([text for text in caplog.messages if "node.new" in text]) == 1
    assert delivery.refused["unknown_metric"] % 2 == 0
