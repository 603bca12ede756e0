"""Tests of overload: every write API refuses with 429 and a time to retry, and keeps none of the request."""

import json
import threading

import numpy as np
import pytest
from tests.support.fakes import WRITER
from tests.support.frames import frame, payload
from tests.support.memory_store import MemoryStore
from tests.support.prometheus import HEADERS_1, request_1, snappy
from tests.support.serving import serving

from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series

DOORS = ("native", "remote write", "opentsdb")


class BlockingStore(MemoryStore):
    """Store whose appends block until a test opens the gate."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()

    def append_all(self, batches, retention=Retention()):  # noqa: B008 - it is frozen
        self.entered.set()
        assert self.gate.wait(30)
        super().append_all(batches, retention)


def send(server, path):
    now_ms = server.clock.now_ms()
    bearer = {"Authorization": f"Bearer {server.admin.token}"}
    match path:
        case "native":
            rows = [(Series("cpu.usage", job=path), [(now_ms, 1.0)])]
            return server.ingest(frame(payload(rows)))
        case "remote write":
            body = snappy(request_1([([("__name__", "up"), ("instance", "n")], [(1.0, now_ms)])]))
            return server.raw("POST", "/api/v1/write", body, {**HEADERS_1, **bearer})
        case _:
            point = {"metric": "m", "timestamp": now_ms, "value": 1, "tags": {"host": "a"}}
            return server.raw("POST", "/api/put", json.dumps(point).encode(), bearer)


@pytest.fixture
def blocked(tmp_path):
    """Yield a server that is writing one request and has another one waiting, with no more room."""
    store = BlockingStore()
    server = serving(tmp_path / "data", store)
    pipeline = server.application.services.pipeline
    pipeline.committer.queue_bytes = 1
    batch = SampleBatch(
        [Series("cpu.usage", job="first")], np.array([0], np.uint32), np.array([server.clock.now_ms()]), np.array([1.0])
    )
    senders = [threading.Thread(target=pipeline.submit_samples, args=(batch, WRITER)) for _ in range(2)]
    senders[0].start()
    assert store.entered.wait(30)
    senders[1].start()
    while not pipeline.queue_bytes:
        threading.Event().wait(0.001)
    yield server
    store.gate.set()
    for sender in senders:
        sender.join()
    server.application.close()


@pytest.mark.parametrize("path", DOORS)
def test_a_full_queue_is_reported_at_every_router(blocked, path):
    reply = send(blocked, path)
    assert reply.status == 429
    assert int(reply.headers["retry-after"]) >= 1
    blocked.application.services.store.gate.set()
    while blocked.application.services.pipeline.queue_bytes:
        threading.Event().wait(0.001)
    assert send(blocked, path).status in {200, 204}


@pytest.mark.parametrize("path", DOORS)
def test_too_many_requests_at_one_time_are_reported_at_every_router(tmp_path, path):
    server = serving(tmp_path / "data")
    server.application.services.lanes.write.most = 0
    reply = send(server, path)
    assert reply.status == 429
    assert int(reply.headers["retry-after"]) >= 1
    server.application.close()


def test_a_request_for_several_projects_is_not_stored_in_part(blocked):
    pipeline = blocked.application.services.pipeline
    before = pipeline.queue_bytes
    now_ms = blocked.clock.now_ms()
    rows = [(Series("cpu.usage", project=name, job="j"), [(now_ms, 1.0)]) for name in ("one", "two")]
    assert blocked.ingest(frame(payload(rows))).status == 429
    assert pipeline.queue_bytes == before
