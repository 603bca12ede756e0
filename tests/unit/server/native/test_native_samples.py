import asyncio
import csv
import io
import json
import tracemalloc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.oracle.kernel import ArrowLines
from tests.support.asgi import send
from tests.support.fakes import NOW
from tests.support.frames import records, row, samples
from tests.support.memory_store import MemoryStore
from tests.support.serving import BASE, serving
from tests.support.waiting import never, until, wait_until

from jobmeter.errors import JobmeterError, ThrottledError, UnavailableError
from jobmeter.kernel import rows
from jobmeter.model.batch import SampleColumns
from jobmeter.model.series import Series
from jobmeter.query.readings import Readings
from jobmeter.query.selected_series import SeriesPart, SubjectKey
from jobmeter.server.native import arrow, raw
from jobmeter.settings import Limits

GPU = [(NOW - 600_000 + 10_000 * at, at / 60) for at in range(60)]
OTHER = [(time, 1 - value) for time, value in GPU]
BYTES = [(NOW - 300_000 + 1_000 * at, 2.0**40 + at) for at in range(20)]


@pytest.fixture
def stored(server):
    body = records({"jobs": [{"job_id": "j1", "start": NOW - 600_000}]}) + samples(
        [
            row("gpu.utilization", GPU, job="j1", node="n1", device="gpu0"),
            row("gpu.utilization", OTHER, job="j1", node="n1", device="gpu1"),
            row("network.receive", BYTES, job="j1", node="n1", labels=(("device", 'e"0,'), ("side", "a b"))),
            row("network.receive", BYTES[:5], job="j1", node="n2", attempt=3),
            row("node.load1", [(NOW - 1000, 1.5)], job="", replica="", node="n1"),
        ]
    )
    assert server.ingest(body).json()["rejected"] == {}
    return server


def _get(server, query, method="GET", job="j1"):
    return server.call(method, f"/jobs/{job}/samples?{query}")


def _rows(text):
    return list(csv.DictReader(io.StringIO(text.decode(), newline="")))


def test_csv_holds_every_reading_in_the_columns_of_other_metric_answers(stored):
    reply = _get(stored, "metric=gpu.utilization&format=csv")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"] == 'attachment; filename="j1.csv"'
    assert reply.body.startswith(b"time,replica,device,value\n")
    found = {
        device: [(int(row["time"]), float(row["value"])) for row in _rows(reply.body) if row["device"] == device]
        for device in ("gpu0", "gpu1")
    }
    assert found == {"gpu0": GPU, "gpu1": OTHER}


def test_counters_are_as_they_were_read_and_further_columns_distinguish_series(stored):
    rows = _rows(_get(stored, "metric=network.receive&format=csv").body)
    assert list(rows[0]) == ["time", "replica", "device", "value", "attempt", "labels"]
    first = [row for row in rows if row["attempt"] == "0"]
    assert [(int(row["time"]), float(row["value"])) for row in first] == BYTES
    assert json.loads(first[0]["labels"]) == {"device": 'e"0,', "side": "a b"}
    assert [float(row["value"]) for row in rows if row["attempt"] == "3"] == [value for _, value in BYTES[:5]]
    assert {row["labels"] for row in rows if row["attempt"] == "3"} == {""}


def test_special_values_are_exported_only_by_name_and_deleted_with_their_job(stored):
    codes = [(NOW - 60_000, 2.0), (NOW - 30_000, 1.0)]
    body = samples([row("special.external.up", codes, job="j1"), row("external.up", [(NOW - 90_000, 1.0)], job="j1")])
    assert stored.ingest(body).json()["rejected"] == {}
    names = stored.call("GET", "/jobs/j1/metrics/names").json()["metrics"]
    assert "external.up" in names
    assert not [name for name in names if name.startswith("special.")]
    assert [float(row["value"]) for row in _rows(_get(stored, "metric=external.up&format=csv").body)] == [1.0]
    exported = _rows(_get(stored, "metric=special.external.up&format=csv").body)
    assert [(int(row["time"]), float(row["value"])) for row in exported] == codes
    assert stored.call("DELETE", "/jobs/j1").status == 200
    assert stored.ingest(records({"jobs": [{"job_id": "j1", "start": NOW - 600_000}]})).status == 200
    assert _rows(_get(stored, "metric=special.external.up&format=csv").body) == []


def test_json_has_an_object_a_line(stored):
    reply = _get(stored, "metric=network.receive&replica=worker-0")
    assert reply.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in reply.body.splitlines()]
    expected = [
        {
            "time": at,
            "metric": "network.receive",
            "replica": "worker-0",
            "node": node,
            "device": "",
            "attempt": attempt,
            "labels": labels,
            "value": value,
        }
        for node, attempt, labels, points in (
            ("n1", 0, {"device": 'e"0,', "side": "a b"}, BYTES),
            ("n2", 3, {}, BYTES[:5]),
        )
        for at, value in points
    ]
    assert sorted(lines, key=lambda line: (line["node"], line["time"])) == expected


def test_parquet_has_every_column(stored):
    table = pq.read_table(io.BytesIO(_get(stored, "metric=network.receive,gpu.utilization&format=parquet").body))
    assert table.column_names == ["time", "metric", "replica", "node", "device", "attempt", "labels", "value"]
    assert table.num_rows == 145
    rows = [row for row in table.to_pylist() if row["device"] == "gpu1"]
    assert [(row["time"], row["value"]) for row in rows] == OTHER


def test_several_metrics_and_those_behind_a_metric_are_named(stored):
    rows = _rows(_get(stored, "metric=gpu.utilization,network.receive&format=csv").body)
    assert next(iter(rows[0])) == "metric"
    assert {row["metric"] for row in rows} == {"gpu.utilization", "network.receive"}
    body = samples([row("cpu.time", [(NOW - 5_000, 3.0), (NOW - 4_000, 4.5)], job="j1", node="n1")])
    assert stored.ingest(body).status == 200
    rows = _rows(_get(stored, "metric=cpu.usage&format=csv").body)
    assert [(row["metric"], row["value"]) for row in rows] == [("cpu.time", "3"), ("cpu.time", "4.5")]


def test_range_replicas_and_devices_narrow(stored):
    query = f"metric=gpu.utilization&format=csv&start={GPU[10][0]}&end={GPU[20][0]}"
    rows = _rows(_get(stored, f"{query}&device=gpu0").body)
    assert [(int(row["time"]), float(row["value"])) for row in rows] == GPU[10:20]
    assert _rows(_get(stored, f"{query}&replica=worker-7").body) == []


def test_a_device_measured_for_nobody_counts_while_the_job_had_it(server):
    allocation = {"replica": "worker-1", "node": "n1", "device": "gpu0", "start": GPU[5][0], "end": GPU[9][0]}
    again = {**allocation, "start": GPU[20][0], "end": GPU[22][0]}
    job = {"job_id": "j1", "start": GPU[0][0], "replicas": [{"name": "worker-1"}], "allocations": [allocation, again]}
    body = records({"jobs": [job], "nodes": [{"name": "n1"}]}) + samples(
        [row("gpu.utilization", GPU, job="", replica="", node="n1", device="gpu0")]
    )
    assert server.ingest(body).json()["rejected"] == {}
    rows = _rows(_get(server, "metric=gpu.utilization&format=csv").body)
    assert [(int(row["time"]), float(row["value"])) for row in rows] == GPU[5:9] + GPU[20:22]
    assert {(row["replica"], row["device"]) for row in rows} == {("worker-1", "gpu0")}


def test_nothing_is_an_answer_too(stored):
    query = f"metric=gpu.utilization&start={NOW - 10_000}&end={NOW - 9_999}&device=gpu7"
    assert _get(stored, f"{query}&format=csv").body == b"time,replica,device,value\n"
    assert _get(stored, query).body == b""
    assert pq.read_table(io.BytesIO(_get(stored, f"{query}&format=parquet").body)).num_rows == 0
    head = _get(stored, "metric=gpu.utilization&format=csv", "HEAD")
    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", "text/csv; charset=utf-8")


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "metric"),
        ("metric=gpu.nothing", 400, "metric"),
        ("metric=gpu.power&format=xml", 400, "format"),
        ("metric=gpu.power&start=1&since=1h", 400, "since"),
        ("metric=gpu.power&step=5m", 400, "step"),
    ],
)
def test_what_is_wrong_is_named(stored, query, status, field):
    reply = _get(stored, query)
    assert (reply.status, reply.json()["error"]["field"]) == (status, field)


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_more_rows_than_allowed_are_refused(tmp_path, form):
    made = serving(tmp_path / "data", limits=replace(Limits(), export_rows=100))
    made.ingest(
        samples([row("gpu.utilization", GPU, job="j1"), row("gpu.utilization", OTHER, device="gpu1", job="j1")])
    )
    reply = _get(made, f"metric=gpu.utilization&format={form}")
    assert (reply.status, reply.json()["error"]["code"]) == (400, "limit_exceeded")
    made.application.close()


class _Endless(MemoryStore):
    """Store whose reads are endless unless they are closed; it counts the blocks that it gave."""

    blocks = 0
    opened = 0
    closed = 0
    failing = False

    def read(self, keys, span, budget):
        self.opened += 1
        try:
            while True:
                self.blocks += 1
                if self.failing and self.blocks > 3:
                    raise UnavailableError("the disk is gone")
                at = np.arange(self.blocks * 100_000, (self.blocks + 1) * 100_000, dtype=np.int64)
                yield SampleColumns(np.zeros(100_000, np.uint32), at, at.astype(np.float64))
        finally:
            self.closed += 1


@pytest.fixture
def endless(tmp_path):
    store = _Endless()
    made = serving(tmp_path / "data", store, query_budgets="exports=1,concurrent=2")
    made.ingest(samples([row("gpu.utilization", GPU[:1], job="j1")]))
    yield made, store
    made.application.close()


def _ask(made, **options):
    headers = {"Authorization": f"Bearer {made.admin.token}"}
    return send(made.application, "GET", f"{BASE}/jobs/j1/samples?metric=gpu.utilization", b"", headers, **options)


def _free_soon(made, store, reads=1):
    lanes = made.application.services.lanes
    wait_until(lambda: store.closed == store.opened and _is_seat_free(made))
    assert reads <= store.opened <= 1
    assert lanes.read.busy <= 1  # the count is decremented by a loop that is closed by now


def _is_seat_free(made):
    """Return True if the key's only seat for exports, and its turns, are free."""
    try:
        give_back = made.application.services.exports.take(made.admin.id)
    except ThrottledError:
        return False
    give_back()
    return True


@pytest.mark.parametrize("gone_after", [0.06, 0.3, 1.0])
def test_a_client_that_hangs_up_stops_the_engine(endless, gone_after):
    made, store = endless
    reply = asyncio.run(_ask(made, gone_after=gone_after))
    assert reply.status in {0, 200}
    _free_soon(made, store, reads=0)  # on a busy machine the client is gone before the engine gets the query


def test_a_failure_in_the_middle_cuts_the_answer_off(endless):
    made, store = endless
    store.failing = True
    with pytest.raises(UnavailableError):
        asyncio.run(_ask(made))
    _free_soon(made, store)


def test_a_client_that_does_not_read_holds_the_engine_back(endless, monkeypatch):
    made, store = endless
    monkeypatch.setattr("jobmeter.server.native.samples.PATIENCE_SECONDS", 0.5)

    async def main():
        application = made.application

        async def stuck(scope, receive, take):
            async def slow(message):
                await take(message)
                if message.get("body"):
                    await never()

            await application(scope, receive, slow)

        headers = {"Authorization": f"Bearer {made.admin.token}"}
        task = asyncio.ensure_future(send(stuck, "GET", f"{BASE}/jobs/j1/samples?metric=gpu.utilization", b"", headers))
        with pytest.raises(JobmeterError, match="read nothing"):
            await task

    asyncio.run(main())
    assert store.blocks <= 3
    _free_soon(made, store)


def test_a_further_export_of_a_key_is_refused_while_one_is_under_way(endless):
    made, store = endless

    async def main():
        first = asyncio.ensure_future(_ask(made, gone_after=60.0))
        await until(lambda: store.blocks)
        second = await _ask(made)
        assert (second.status, second.json()["error"]["code"]) == (429, "throttled")
        assert second.headers["retry-after"] == "2"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())
    _free_soon(made, store)
    assert 'jobmeter_access_refused_total{reason="budget"} 1.0' in made.raw("GET", "/metrics").body.decode()


_VALUES = st.floats(allow_nan=False, allow_infinity=False)
_POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**44), _VALUES), max_size=60)


def _readings(points, cuts):
    series = [
        Series("gpu.power", node="n", device="gpu0"),
        Series("gpu.power", job="j", replica="worker-1", attempt=2),
        Series("gpu.power", labels=(("a", 'x"y,\\'), ("b", "é"))),
    ]
    entries = [SeriesPart(one, SubjectKey("", one.replica, "", one.node, one.device), one.replica) for one in series]

    def blocks():
        for first, end in zip([0, *cuts], [*cuts, len(points)], strict=True):
            index, at, value = zip(*points[first:end], strict=True) if end > first else ((), (), ())
            yield SampleColumns(np.array(index, np.uint32), np.array(at, np.int64), np.array(value, np.float64))

    return Readings(frozenset({"gpu.power"}), entries, blocks())


@given(_POINTS, st.data())
def test_every_form_reports_times_and_values_exactly(points, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(points)), max_size=4)))
    text = b"".join(raw.write_csv(_readings(points, cuts), "j").chunks)
    found = [(_which(row), int(row["time"]), float(row["value"])) for row in _rows(text)]
    assert found == points
    lines = b"".join(raw.write_json(_readings(points, cuts), "j").chunks).splitlines()
    decoded_lines = [json.loads(line) for line in lines]
    assert [(_which(one), one["time"], one["value"]) for one in decoded_lines] == points
    table = pq.read_table(io.BytesIO(b"".join(raw.write_parquet(_readings(points, cuts), "j").chunks)))
    assert [(_which(row), row["time"], row["value"]) for row in table.to_pylist()] == points


def _which(row):
    if row["node"]:
        return 0
    if str(row["attempt"]) == "2":
        return 1
    labels = row["labels"] if isinstance(row["labels"], dict) else json.loads(row["labels"])
    assert labels == {"a": 'x"y,\\', "b": "é"}
    return 2


def test_slow_readers_of_parquet_hold_a_group_each():
    """Between two pieces a reader holds neither the samples of the whole export nor the bytes that were sent."""
    entries = [SeriesPart(Series("gpu.power", job="j"), SubjectKey("", "", "", "", ""), "")]
    draw, rows_of_group = np.random.default_rng(1), arrow.GROUP

    def reader(groups):
        def blocks():
            for first in range(0, groups * rows_of_group, raw.ROWS):
                times = np.arange(first, first + raw.ROWS)
                yield SampleColumns(np.zeros(raw.ROWS, np.uint32), times, draw.random(raw.ROWS))

        return raw.write_parquet(Readings(frozenset({"gpu.power"}), entries, blocks()), "j").chunks

    list(reader(1))  # Arrow imports modules for its first table.
    held, sent = list[int](), 0
    tracemalloc.start()
    try:
        arrows = pa.total_allocated_bytes()
        for together in zip(reader(8), reader(8), strict=True):
            sent += sum(map(len, together))
            held.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrows)
    finally:
        tracemalloc.stop()
    assert sent > 2 * 8 * rows_of_group * 6, "random values cannot be compressed much"
    # Less than four of the eight groups of each export.
    assert max(held) < 2 * 4 * rows_of_group * 20


@given(_POINTS, st.data())
def test_the_text_is_byte_for_byte_arrows(points, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(points)), max_size=4)))
    for form in (raw.write_csv, raw.write_json):
        compiled = b"".join(form(_readings(points, cuts), "j").chunks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "Lines", ArrowLines)
            assert b"".join(form(_readings(points, cuts), "j").chunks) == compiled


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 10))
def test_batches_are_of_bounded_size_and_lose_nothing(sizes, rows):
    edges = np.cumsum([0, *sizes]).tolist()
    blocks = [
        SampleColumns(np.arange(first, end, dtype=np.uint32), np.arange(first, end), np.arange(first, end) / 2)
        for first, end in pairwise(edges)
    ]
    found = list(arrow.regroup_samples(iter(blocks), rows))
    assert [at for block in found for at in block.index.tolist()] == list(range(edges[-1]))
    assert all(rows <= len(block) < 2 * rows for block in found[:-1])
    assert all(0 < len(block) < 2 * rows for block in found)
