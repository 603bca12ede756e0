"""Tests of a run's lease: the run renews it while it runs, and at no other time."""

import json
from contextlib import contextmanager

from tests.support.fakes import SetClock
from tests.unit.wire.straight_reader import read_body

from jobmeter.client.transport import Response
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.launch.lease import RunLease, lease_owner
from jobmeter.collect.outbox import Outbox
from jobmeter.errors import UnavailableError
from jobmeter.model.record import JobRecord, Records, decode_records
from jobmeter.wire.native.encode import make_records_frame


class Server:
    """Server that takes bodies, and refuses them while ``away`` is set."""

    def __init__(self):
        self.bodies = []
        self.away = False

    def request(self, _method, _path, body=None, _headers=None):
        if self.away:
            raise UnavailableError("away")
        self.bodies.append([json.loads(read) for _, read in read_body(body)])
        return Response(200, {}, b"{}")


def sent(delivery, outbox):
    """Try to send a record; return False if the server is away."""
    outbox.put(make_records_frame(Records(jobs=[JobRecord(job_id="j")])))
    return delivery.flush(60)


@contextmanager
def leased(interval_ms=1000):
    outbox, server, clock = Outbox(None), Server(), SetClock()
    delivery = Delivery(outbox, lambda: server, clock)
    delivery.renewal = RunLease("j", "p", "o", interval_ms, clock)
    delivery.start()
    yield delivery, outbox, server, clock
    delivery.stop()


def renewals(server):
    return [sum("leases" in frame for frame in body) for body in server.bodies]


def test_a_renewal_goes_along_every_third_of_a_lease():
    with leased() as (delivery, outbox, server, clock):
        for _ in range(41):
            assert sent(delivery, outbox)
            clock.time_ms += 1000
    assert [at for at, count in enumerate(renewals(server)) if count] == [0, 20, 40]
    (record,) = [frame for frame in server.bodies[0] if "leases" in frame]
    assert record == {"leases": [{"job_id": "j", "lease": {"owner": "o", "seconds": 60}, "project": "p"}]}
    decode_records(json.dumps(record).encode())


def test_a_renewal_that_did_not_arrive_is_due_with_the_next_request_and_never_stored(monkeypatch):
    monkeypatch.setattr("jobmeter.collect.deliver._pause", lambda *_: 60.0)
    with leased() as (delivery, outbox, server, _):
        server.away = True
        assert not sent(delivery, outbox)
        assert outbox.size == len(make_records_frame(Records(jobs=[JobRecord(job_id="j")])))
        server.away = False
        assert sent(delivery, outbox)
    assert renewals(server) == [1]


def test_a_lease_is_longer_than_three_samples_take():
    assert RunLease("j", "p", "o", 60_000, SetClock()).lease.seconds == 180


def test_a_run_takes_over_the_lease_of_one_that_died_here(tmp_path):
    first = lease_owner(tmp_path)
    assert lease_owner(tmp_path) == first
    assert lease_owner(None) != lease_owner(None)
    (tmp_path / "lease").write_bytes(b"\xff" * 32)
    assert lease_owner(tmp_path) != first
    assert lease_owner(tmp_path / "missing")
