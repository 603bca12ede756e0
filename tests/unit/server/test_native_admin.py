import gzip
import json
import shutil
import sqlite3
import subprocess

import msgspec
import pytest
from tests.support.fakes import NOW
from tests.support.frames import FRAMES, samples
from tests.support.memory_store import MemoryStore
from tests.support.serving import BASE, serving

from jobmeter.errors import UnavailableError
from jobmeter.model.move import MoveLine, MoveStep

PROMTOOL = shutil.which("promtool") or ""
_CPU = {"metric": "cpu.usage", "job": "j1", "replica": "worker-0"}


def test_a_key_is_made_listed_used_and_revoked(server):
    made = server.call("POST", "/keys", {"name": "ci", "role": "writer", "project": "p1"}).json()
    assert set(made) == {"id", "token", "access_key_id", "access_key_secret", "role", "project", "policies"}
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert server.raw("GET", f"{BASE}/whoami", headers=headers).json() == {
        "id": made["id"],
        "name": "ci",
        "role": "writer",
        "project": "p1",
        "job": None,
        "expires": None,
    }
    listed = {one["id"]: one for one in server.call("GET", "/keys").json()["keys"]}
    assert listed[made["id"]]["revoked"] is None
    assert made["token"] not in json.dumps(listed)
    assert made["access_key_secret"] not in json.dumps(listed)
    assert server.call("DELETE", f"/keys/{made['id']}").json() == {"deleted": True}
    assert server.raw("GET", f"{BASE}/whoami", headers=headers).status == 401
    assert server.call("DELETE", f"/keys/{made['id']}").status == 404


def test_a_projects_administrator_stays_inside_it(server):
    own = server.key("admin", "p1")
    foreign = server.key("reader", "p2")
    assert server.call("POST", "/keys", {"name": "a", "role": "reader"}, own).json()["project"] == "p1"
    assert server.call("POST", "/keys", {"name": "a", "role": "reader", "project": "p2"}, own).status == 403
    assert {key["project"] for key in server.call("GET", "/keys", key=own).json()["keys"]} == {"p1"}
    assert server.call("DELETE", f"/keys/{foreign.id}", key=own).status == 404
    assert server.call("GET", "/status", key=own).status == 403
    assert server.call("POST", "/backup", {"directory": "/x"}, own).status == 403
    assert server.call("GET", "/projects/p1/retention", key=own).status == 200
    assert server.call("GET", "/projects/p2/retention", key=own).status == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, ""),
        ({"name": "a", "role": "king"}, "role"),
        ({"name": "a b", "role": "reader"}, "name"),
        ({"name": "a", "role": "reader", "project": "x y"}, "project"),
        ({"name": "a", "role": "reader", "colour": 1}, ""),
        ([], "body"),
    ],
)
def test_a_wrong_key_is_refused(server, body, field):
    reply = server.call("POST", "/keys", body)
    assert (reply.status, reply.json()["error"].get("field", "")) == (
        400,
        field or reply.json()["error"].get("field", ""),
    )


def test_a_writers_samples_belong_to_its_project(server):
    writer = server.key("writer", "p1")
    assert server.ingest(samples([(_CPU, [(NOW - 1000, 1.0)])]), writer).json()["accepted"] == 1
    assert server.call("GET", "/jobs/j1").json()["job"]["project"] == "p1"
    foreign = samples([({**_CPU, "project": "p2"}, [(NOW - 1000, 1.0)])])
    assert server.ingest(foreign, writer).status == 403


def test_samples_of_the_future_are_counted(server):
    body = samples([(_CPU, [(NOW - 1000, 1.0), (NOW + 3_600_000, 1.0)])])
    receipt = server.ingest(body).json()
    assert receipt == {"accepted": 1, "records": 0, "rejected": {"future": 1}, "time": NOW}
    text = server.raw("GET", "/metrics").body.decode()
    assert 'jobmeter_ingest_samples_rejected_total{reason="future"} 1.0' in text
    assert "jobmeter_ingest_samples_accepted_total 1.0" in text
    assert 'jobmeter_store_rows{table="samples"}' in text


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: apt-get install prometheus)")
def test_promtool_finds_nothing_to_mend_in_metrics(server):
    server.ingest(samples([(_CPU, [(NOW - 1000, 1.0)])]))
    assert server.call("GET", "/jobs/none").status == 404
    text = server.raw("GET", "/metrics").body
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.stdout, checked.stderr, checked.returncode) == (b"", b"", 0)


def test_only_frames_are_ingested(server):
    good = samples([(_CPU, [(NOW - 1000, 1.0)])])
    wrong = server.call("POST", "/ingest", good, headers={"Content-Type": "application/json"})
    assert (wrong.status, wrong.json()["error"]["field"]) == (400, "Content-Type")
    zipped = server.call(
        "POST", "/ingest", gzip.compress(good), headers={"Content-Type": FRAMES, "Content-Encoding": "gzip"}
    )
    assert (zipped.status, zipped.json()["error"]["field"]) == (400, "Content-Encoding")
    assert server.ingest(good[:-1]).status == 400
    assert server.ingest(b"").status == 400
    assert server.call("GET", "/jobs").json()["total"] == 0


def test_json_may_come_compressed(server):
    body = gzip.compress(b'{"job_id": "j1"}')
    assert server.call("POST", "/jobs", body, headers={"Content-Encoding": "gzip"}).json() == {"records": 1}
    bad = server.call("POST", "/jobs", b"nothing", headers={"Content-Encoding": "gzip"})
    assert (bad.status, bad.json()["error"]["field"]) == (400, "Content-Encoding")


def test_a_body_beyond_the_limit_is_413(tmp_path):
    from jobmeter.settings import Limits

    server = serving(tmp_path / "data", limits=Limits(body_bytes=1000, decoded_bytes=2000))
    for method, path in (("POST", "/ingest"), ("POST", "/jobs"), ("GET", "/jobs")):
        reply = server.call(method, path, bytes(70_000))
        assert (reply.status, reply.json()["error"]["code"]) == (413, "limit_exceeded")
    bomb = server.call("POST", "/jobs", gzip.compress(bytes(100_000)), headers={"Content-Encoding": "gzip"})
    assert bomb.status == 413
    server.application.close()


class _BrokenStore(MemoryStore):
    broken = False

    def append_all(self, batches, retention=None):
        if self.broken:
            raise UnavailableError("the disk is full")
        super().append_all(batches)

    def find(self, selector):
        if self.broken:
            raise UnavailableError("the disk is full")
        return super().find(selector)


def test_a_store_that_cannot_work_is_503_until_it_can_again(tmp_path):
    store = _BrokenStore()
    server = serving(tmp_path / "data", store)
    body = samples([(_CPU, [(NOW - 1000, 1.0)])])
    store.broken = True
    reply = server.ingest(body)
    assert (reply.status, reply.json()["error"]["code"]) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert server.raw("GET", "/readyz").status == 503
    assert server.raw("GET", "/healthz").status == 200
    store.broken = False
    assert server.ingest(body).json()["accepted"] == 1
    assert server.raw("GET", "/readyz").status == 200
    server.application.close()


def test_a_move_reports_its_steps_and_the_error_that_ends_it(tmp_path):
    class Moving(MemoryStore):
        ended = False

        def move(self, order):
            try:
                if "nowhere" in order.to:
                    raise UnavailableError("it cannot be reached")
                yield MoveLine(step=MoveStep(table="samples", done=0, total=2, rows=0))
                raise UnavailableError("the connection was lost")
            finally:
                self.ended = True

    store = Moving()
    server = serving(tmp_path / "data", store)
    refused = server.call("POST", "/store/move", {"to": "clickhousedb://nowhere"})
    assert (refused.status, refused.json()["error"]["code"]) == (503, "unavailable")
    store.ended = False
    reply = server.call("POST", "/store/move", {"to": "clickhousedb://h"})
    lines = [msgspec.json.decode(line, type=MoveLine) for line in reply.body.splitlines()]
    assert [line.error for line in lines] == ["", "the connection was lost"]
    assert store.ended
    assert server.call("POST", "/store/move", {"to": "x", "more": 1}).status == 400
    server.application.close()


def test_a_bug_is_an_internal_error_in_each_routers_form(server, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(type(server.application.services.executor), "run", broken)
    native = server.call("GET", "/jobs")
    assert (native.status, native.json()["error"]["code"]) == (500, "internal")
    vendor = server.raw(
        "GET",
        "/api/v1/jobs/j1/metrics?MetricType=GpuCoreUsage",
        headers={"Authorization": f"Bearer {server.admin.token}"},
    )
    assert (vendor.status, vendor.json()["Code"]) == (500, "InternalError")
    assert b"hunter2" not in native.body + vendor.body
    assert caplog.text.count("RuntimeError: password=hunter2") == 2


def test_status_reports_sizes_and_work(server):
    server.ingest(samples([(_CPU, [(NOW - 1000, 1.0)])]))
    status = server.call("GET", "/status").json()
    assert status["rows"]["samples"] == 1
    assert status["rolled_until"] is None
    server.application.background[0].round()
    assert server.call("GET", "/status").json()["rolled_until"] == NOW - 900_000


def test_retention_of_a_project(server):
    expected = {"raw_days": 3, "minute_days": 30, "hour_days": 300}
    before = server.call("GET", "/projects/p1/retention").json()
    assert server.call("PUT", "/projects/p1/retention", expected).json() == expected
    assert server.call("GET", "/projects/p1/retention").json() == expected
    assert server.call("GET", "/projects/p2/retention").json() == before
    reply = server.call("PUT", "/projects/p1/retention", {**expected, "raw_days": 0})
    assert (reply.status, reply.json()["error"]["field"]) == (400, "raw_days")
    assert server.call("DELETE", "/projects/p1/retention").status == 200
    assert server.call("GET", "/projects/p1/retention").json() == before


def test_a_backup_holds_everything_and_is_private(server, tmp_path):
    server.ingest(samples([(_CPU, [(NOW - 1000, 1.0)])]))
    target = tmp_path / "backup"
    assert server.call("POST", "/backup", {"directory": str(target)}).json() == {"directory": str(target)}
    assert target.stat().st_mode & 0o777 == 0o700
    assert (target / "secret.key").read_bytes() == (tmp_path / "data" / "secret.key").read_bytes()
    assert (target / "secret.key").stat().st_mode & 0o777 == 0o600
    (copy,) = (target / "registry").iterdir()
    with sqlite3.connect(copy) as database:
        assert database.execute("select count(*) from jobs").fetchone() == (1,)
    database.close()
    again = server.call("POST", "/backup", {"directory": str(target)})
    assert again.status == 409
    for directory, field in (("relative", "directory"), (str(tmp_path / "a" / "b"), "directory")):
        reply = server.call("POST", "/backup", {"directory": directory})
        assert (reply.status, reply.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/backup", b'{"directory": "\xff"}'),
        ("/jobs", b'{"job_id": "\xff"}'),
        ("/jobs", b'[{"job_id": "\xff"}]'),
        ("/keys", b'{"\xff": "n"}'),
    ],
)
def test_a_body_that_is_not_utf_8_is_refused(server, path, body):
    reply = server.call("POST", path, body)
    assert (reply.status, reply.json()["error"]["code"]) == (400, "invalid_request")
