"""More than can be written: every door says so with 429 and a time to come back, and nothing of it is kept."""

import json
import threading

import numpy as np
import pytest
from tests.fakes import WRITER
from tests.frames import frame, payload
from tests.prometheus import HEADERS_1, request_1, snappy
from tests.serving import serving

from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.store.memory import MemoryStore

DOORS = ("native", "remote write", "opentsdb")


class HeldStore(MemoryStore):
    """Lets an append end when it is told to."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def append(self, batch, retention=Retention()):  # noqa: B008 - it is frozen
        self.entered.set()
        assert self.gate.wait(30)
        super().append(batch, retention)


def send(server, door):
    now_ms = server.clock.now_ms()
    bearer = {"Authorization": f"Bearer {server.admin.token}"}
    match door:
        case "native":
            rows = [(Series("cpu.usage", job=door), [(now_ms, 1.0)])]
            return server.ingest(frame(payload(rows)))
        case "remote write":
            body = snappy(request_1([([("__name__", "up"), ("instance", "n")], [(1.0, now_ms)])]))
            return server.raw("POST", "/api/v1/write", body, {**HEADERS_1, **bearer})
        case _:
            point = {"metric": "m", "timestamp": now_ms, "value": 1, "tags": {"host": "a"}}
            return server.raw("POST", "/api/put", json.dumps(point).encode(), bearer)


@pytest.fixture
def held(tmp_path):
    """A server that is writing one request and has another waiting, with room for no more."""
    store = HeldStore()
    server = serving(tmp_path / "data", store)
    funnel = server.application.services.funnel
    funnel._committer._queue_bytes = 1
    batch = SampleBatch(
        [Series("cpu.usage", job="first")], np.array([0], np.uint32), np.array([server.clock.now_ms()]), np.array([1.0])
    )
    senders = [threading.Thread(target=funnel.samples, args=(batch, WRITER)) for _ in range(2)]
    senders[0].start()
    assert store.entered.wait(30)
    senders[1].start()
    while not funnel.queue_bytes:
        threading.Event().wait(0.001)
    yield server
    store.gate.set()
    for sender in senders:
        sender.join()
    server.application.close()


@pytest.mark.parametrize("door", DOORS)
def test_a_full_queue_is_told_at_every_door(held, door):
    reply = send(held, door)
    assert reply.status == 429
    assert int(reply.headers["retry-after"]) >= 1
    held.application.services.store.gate.set()
    while held.application.services.funnel.queue_bytes:
        threading.Event().wait(0.001)
    assert send(held, door).status in {200, 204}


@pytest.mark.parametrize("door", DOORS)
def test_too_many_requests_at_one_time_are_told_at_every_door(tmp_path, door):
    server = serving(tmp_path / "data")
    server.application.services.lanes.write._most = 0
    reply = send(server, door)
    assert reply.status == 429
    assert int(reply.headers["retry-after"]) >= 1
    server.application.close()


def test_a_request_for_several_projects_is_not_kept_in_part(held):
    funnel = held.application.services.funnel
    before = funnel.queue_bytes
    now_ms = held.clock.now_ms()
    rows = [(Series("cpu.usage", project=name, job="j"), [(now_ms, 1.0)]) for name in ("one", "two")]
    assert held.ingest(frame(payload(rows))).status == 429
    assert funnel.queue_bytes == before
