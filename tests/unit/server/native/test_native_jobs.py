import io
import json

import pyarrow.parquet as pq
import pytest
from tests.support.fakes import NOW
from tests.support.frames import records, samples

from jobmeter.model.catalog import METRICS
from jobmeter.model.job import Allocation, Job, Node, Replica
from jobmeter.model.job_answers import AllocationBody, JobBody, ReplicaBody
from jobmeter.server.native.bodies import NodeBody

JOB = {
    "job_id": "j1",
    "name": "resnet",
    "type": "PyTorchJob",
    "user": "lin",
    "created": NOW - 900_000,
    "start": NOW - 600_000,
    "limits": {"cpu": 4},
    "replicas": [{"name": "worker-0", "node": "n1", "rank": 0, "devices": ["gpu0", "gpu1"]}, "worker-1"],
}


@pytest.fixture
def stored(server):
    gpu = [
        (
            {"metric": "gpu.utilization", "job": "j1", "replica": "worker-0", "node": "n1", "device": device},
            [(NOW - 600_000 + 10_000 * n, value) for n in range(60)],
        )
        for device, value in (("gpu0", 0.25), ("gpu1", 0.75))
    ]
    cpu = ({"metric": "cpu.usage", "job": "j1", "replica": "worker-0", "node": "n1"}, [(NOW - 30_000, 2.0)])
    node = ({"metric": "node.load1", "node": "n1"}, [(NOW - 60_000, 1.5), (NOW - 30_000, 2.5)])
    receipt = server.ingest(records({"jobs": [JOB], "nodes": [{"name": "n1"}]}) + samples([*gpu, cpu, node]))
    counts = receipt.json()
    assert counts.pop("time") > 0
    assert counts == {"accepted": 123, "records": 2, "rejected": {}}
    return server


@pytest.mark.parametrize(
    ("body", "model"), [(JobBody, Job), (ReplicaBody, Replica), (AllocationBody, Allocation), (NodeBody, Node)]
)
def test_bodies_have_every_field_of_the_model(body, model):
    assert body.__struct_fields__ == model.__struct_fields__


def test_a_job_is_listed_with_every_field(stored):
    (job,) = stored.call("GET", "/jobs").json()["jobs"]
    assert set(job) == set(Job.__struct_fields__)
    assert (job["id"], job["state"], job["user"], job["exit_code"]) == ("j1", "Running", "lin", None)


def test_findings_are_listed_where_they_are_wanted(stored):
    event = {"job": "j1", "time": NOW, "reason": "Finding", "level": "warning"}
    assert stored.call("POST", "/jobs", {"events": [{**event, "message": "gpu_idle (job j1): so"}]}).status == 200
    assert "findings" not in stored.call("GET", "/jobs").json()
    (one,) = stored.call("GET", "/jobs?findings=true").json()["findings"]
    said = {"sentence": "so", "start": NOW, "open": 0, "idle_devices": 0}
    assert one == {"id": "j1", "project": "default", "severity": "warning", "count": 1, "rules": ["gpu_idle"], **said}
    assert stored.call("GET", "/jobs?findings=true&name=nothing").json()["findings"] == []
    assert stored.call("GET", "/jobs?findings=yes").status == 400


def test_jobs_with_open_findings_are_those_that_run(stored):
    """Each job has its worst open finding, until an event reports its end."""
    message = "xid (device n1/gpu2): w-0 (n1, gpu2): XID 79: the GPU has fallen off the bus"
    event = {"job": "j1", "time": NOW, "reason": "Finding", "level": "error", "subject": "device n1/gpu2"}
    stored.call(
        "POST", "/jobs", {"events": [{**event, "message": message}, {**event, "job": "j2", "message": message}]}
    )
    for query in ("open=true", "open=true&severity=critical", "open=true&finding=xid", "open=true&state=Running"):
        page = stored.call("GET", f"/jobs?findings=true&{query}").json()
        assert [job["id"] for job in page["jobs"]] == ["j1"], query
        assert [(one["open"], one["sentence"]) for one in page["findings"]] == [(1, message.partition("): ")[2])]
    for query in ("open=true&severity=warning", "open=true&finding=thermal", "open=true&state=Failed&finding=thermal"):
        assert stored.call("GET", f"/jobs?{query}").json()["total"] == 0, query
    over = {**event, "time": NOW + 1, "reason": "FindingEnded", "level": "info"}
    stored.call("POST", "/jobs", {"events": [{**over, "message": "xid (device n1/gpu2): it is found no longer"}]})
    assert stored.call("GET", "/jobs?open=true").json()["total"] == 0
    assert stored.call("GET", "/jobs?finding=xid&state=Running").json()["total"] == 1


def test_a_rule_that_is_none_is_answered_with_those_that_are_near(stored):
    refused = stored.call("GET", "/jobs?finding=any&finding=gpu_idle")
    assert refused.status == 400
    message = refused.json()["error"]["message"]
    assert message.startswith("unknown rule 'gpu_idle'; did you mean gpu_idle_allocated")
    assert "; valid rules: " in stored.call("GET", "/jobs?finding=zzz").json()["error"]["message"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["j1", "j2", "j3"]),
        ("state=Running", ["j1"]),
        ("state=Running,Failed", ["j1", "j2"]),
        ("state=Failed&state=Succeeded", ["j2", "j3"]),
        ("user=lin,ana", ["j1", "j2"]),
        ("name=RES", ["j1"]),
        ("type=PyTorchJob", ["j1"]),
        ("project=other", ["j3"]),
        ("id=j3,j1", ["j1", "j3"]),
        ("created_from=2025-12-31T23:50:00Z", ["j2"]),
        (f"created_to={NOW - 900_000}", ["j3"]),
        ("sort=id&order=asc&limit=1&offset=1", ["j2"]),
    ],
)
def test_jobs_are_found(stored, query, found):
    stored.call("POST", "/jobs", [{"job_id": "j2", "state": "Failed", "user": "ana", "created": NOW - 60_000}])
    other = {"job_id": "j3", "state": "Succeeded", "project": "other", "created": NOW - 9_000_000}
    stored.call("POST", "/jobs", {"jobs": [other]})
    reply = stored.call("GET", f"/jobs?{query}").json()
    assert sorted(job["id"] for job in reply["jobs"]) == found
    assert reply["total"] == (3 if "limit" in query else len(found))


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=Sleeping", "state"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=%C2%B2", "limit"),
        ("offset=-1", "offset"),
        ("order=up", "order"),
        ("sort=colour", "sort"),
        ("created_from=yesterday", "created_from"),
        ("created_to=-1", "created_to"),
        ("project=no/way", "project"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_a_wrong_filter_is_named(server, query, field):
    reply = server.call("GET", f"/jobs?{query}")
    assert reply.status == 400
    assert reply.json()["error"]["field"] == field


def test_a_job_is_shown_with_what_belongs_to_it(stored):
    shown = stored.call("GET", "/jobs/j1").json()
    assert shown["job"]["limits"] == {"cpu.limit": 4.0}
    assert {replica["name"] for replica in shown["replicas"]} == {"worker-0", "worker-1"}
    assert [(one["device"], one["replica"], one["node"]) for one in shown["devices"]] == [
        ("gpu0", "worker-0", "n1"),
        ("gpu1", "worker-0", "n1"),
    ]
    assert shown["nodes"] == ["n1"]
    means = {one["metric"]: one["mean"] for one in shown["summary"]["metrics"]}
    assert means["gpu.utilization"] == pytest.approx(0.5)
    assert means["cpu.utilization"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"7", "body"),
        (b"{bad", "body"),
        (b'{"jobs": {}}', "jobs"),
        (b'{"job_id": 5}', "job_id"),
        (b'{"job_id": "a/b"}', "job_id"),
        (b'{"job_id": "a", "colour": 1}', ""),
        (b'{"job_id": "a", "start": "soon"}', "start"),
        (b'{"job_id": "a", "state": "Sleeping"}', "state"),
        (b'{"job_id": "a", "limits": {"cpu": -1}}', "limits.cpu"),
        (b'[{"job_id": "a"}, {"job_id": "b", "end": true}]', "[1].end"),
        (b'{"job_id": "a", "project": "b c"}', "project"),
        (b'{"a":' * 100_000, "body"),
        (b'{"jobs": [' + b'{"a":' * 100_000, "body"),
        (b'[{"job_id": "a", "extra":' + b'{"a":' * 100_000, "body"),
    ],
)
def test_a_wrong_record_is_refused_whole(server, body, field):
    reply = server.call("POST", "/jobs", body)
    assert reply.status == 400
    assert reply.json()["error"].get("field", "") == field
    assert server.call("GET", "/jobs").json()["total"] == 0


def test_a_deleted_job_is_gone_and_may_come_back(stored):
    assert stored.call("DELETE", "/jobs/j1").json() == {"deleted": True}
    assert stored.call("GET", "/jobs/j1").status == 404
    assert stored.call("DELETE", "/jobs/j1").status == 404
    body = samples([({"metric": "cpu.usage", "job": "j1", "replica": "worker-0"}, [(NOW - 1000, 3.0)])])
    assert stored.ingest(body).status == 200
    lines = stored.call("GET", "/jobs/j1/metrics?metric=cpu.usage,gpu.utilization").json()["lines"]
    assert [line["points"] for line in lines] == [[[NOW - 30_000, 3.0]]]


def test_metrics_are_lines_of_points(stored):
    reply = stored.call("GET", "/jobs/j1/metrics?metric=gpu.utilization&step=5m").json()
    start = NOW - 3_600_000 + 1
    assert (reply["job"], reply["project"], reply["step"], reply["by"]) == ("j1", "default", 300_000, "replica")
    assert (reply["start"], reply["end"], reply["statistic"]) == (start, NOW + 1, "mean")
    (line,) = reply["lines"]
    assert line["points"] == [[NOW - 600_000, 0.5], [NOW - 300_000, 0.5]]
    assert (line["metric"], line["unit"], line["replica"]) == ("gpu.utilization", "1", "worker-0")
    assert reply["samples"] == 120


@pytest.mark.parametrize("since", ["1h", "5d"])
@pytest.mark.parametrize("path", ["/jobs/j1/metrics", "/nodes/n1/metrics"])
def test_columns_are_the_values_of_the_same_lines_and_their_times_once(stored, path, since):
    query = f"{path}?metric=gpu.utilization,cpu.usage&step=5m&by=device&since={since}"
    for _ in range(2):  # the second answers may come from the cache
        pairs, columns = (stored.call("GET", f"{query}&format={form}").json() for form in ("json", "columns"))
        timelines = columns.pop("timelines")
        assert len({str(one) for one in timelines}) == len(timelines)
        for line in columns["lines"]:
            times = timelines[line.pop("timeline")]
            line["points"] = [list(point) for point in zip(times, line.pop("values"), strict=True)]
        assert columns == pairs
        assert columns["lines"]


def test_metrics_may_be_narrowed_and_joined(stored):
    path = "/jobs/j1/metrics?metric=gpu.utilization&since=5m&step=5m&end=2026-01-01"
    by_device = stored.call("GET", f"{path}&by=device").json()["lines"]
    assert [(line["device"], line["points"][0][1]) for line in by_device] == [("gpu0", 0.25), ("gpu1", 0.75)]
    one = stored.call("GET", f"{path}&by=device&device=gpu1").json()["lines"]
    assert [line["device"] for line in one] == ["gpu1"]
    for aggregate, value in (("sum", 1.0), ("max", 0.75), ("min", 0.25), ("mean", 0.5)):
        (line,) = stored.call("GET", f"{path}&by=job&aggregate={aggregate}").json()["lines"]
        assert line["points"][0][1] == value
    (counted,) = stored.call("GET", f"{path}&by=device&device=gpu0&statistic=count").json()["lines"]
    assert counted["points"][0][1] == 30
    assert stored.call("GET", f"{path}&replica=worker-1").json()["lines"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "metric"),
        ("metric=", "metric"),
        ("metric=cpu.nothing", "metric"),
        ("metric=" + ",".join(f"app.m{n}" for n in range(101)), "metric"),
        ("metric=cpu.usage&step=0", "step"),
        ("metric=cpu.usage&step=5", "step"),
        ("metric=cpu.usage&step=1ms&since=7d", "step"),
        ("metric=cpu.usage&by=galaxy", "by"),
        ("metric=cpu.usage&by=node", "by"),
        ("metric=cpu.usage&aggregate=ratio", "aggregate"),
        ("metric=cpu.usage&statistic=median", "statistic"),
        ("metric=cpu.usage&statistic=increase", "statistic"),
        ("metric=cpu.usage&format=xml", "format"),
        ("metric=cpu.usage&start=-5", "start"),
        ("metric=cpu.usage&end=99999999999999999", "end"),
        ("metric=cpu.usage&start=2026-01-01&end=2025-01-01", "end"),
        ("metric=cpu.usage&start=2025-01-01&since=1h", "since"),
        ("metric=cpu.usage&since=-1h", "since"),
    ],
)
def test_a_wrong_question_is_named(stored, query, field):
    reply = stored.call("GET", f"/jobs/j1/metrics?{query}")
    assert reply.status == 400
    assert reply.json()["error"]["field"] == field


def test_csv_and_parquet_hold_the_points_of_json(stored):
    path = "/jobs/j1/metrics?metric=gpu.utilization,cpu.usage&by=device&step=1m"
    lines = stored.call("GET", path).json()["lines"]
    expected = [
        (line["metric"], time, line["replica"], line["device"], value)
        for line in lines
        for time, value in line["points"]
    ]
    csv = stored.call("GET", f"{path}&format=csv")
    assert csv.headers["content-disposition"] == 'attachment; filename="j1.csv"'
    assert csv.headers["content-type"].startswith("text/csv")
    header, *rows = csv.body.decode().splitlines()
    assert header == "metric,time,replica,device,value"
    parts = [row.split(",") for row in rows]
    assert [(one[0], int(one[1]), one[2], one[3], float(one[4])) for one in parts] == expected
    parquet = stored.call("GET", f"{path}&format=parquet")
    table = pq.read_table(io.BytesIO(parquet.body))
    assert table.column_names == ["time", "metric", "replica", "node", "device", "value"]
    found = [(row["metric"], row["time"], row["replica"], row["device"], row["value"]) for row in table.to_pylist()]
    assert found == expected


def test_csv_of_one_metric_has_the_plain_columns(stored):
    body = stored.call("GET", "/jobs/j1/metrics?metric=cpu.usage&format=csv&step=1m").body.decode()
    assert body == f"time,replica,device,value\n{NOW - 60_000},worker-0,,2.0\n"


def test_an_empty_answer_is_a_whole_one(stored):
    path = "/jobs/j1/metrics?metric=npu.utilization"
    assert stored.call("GET", path).json()["lines"] == []
    assert stored.call("GET", f"{path}&format=csv").body == b"time,replica,device,value\n"
    assert pq.read_table(io.BytesIO(stored.call("GET", f"{path}&format=parquet").body)).num_rows == 0


def test_latest_values(stored):
    values = stored.call("GET", "/jobs/j1/latest?metric=cpu.usage&metric=gpu.utilization&by=device").json()["values"]
    assert [(one["metric"], one["device"], one["value"], one["time"]) for one in values] == [
        ("cpu.usage", "", 2.0, NOW - 30_000),
        ("gpu.utilization", "gpu0", 0.25, NOW - 10_000),
        ("gpu.utilization", "gpu1", 0.75, NOW - 10_000),
    ]
    core = {one["metric"] for one in stored.call("GET", "/jobs/j1/latest").json()["values"]}
    assert {"cpu.usage", "cpu.utilization", "gpu.utilization"} <= core


def test_nodes_and_their_metrics(stored):
    (node,) = stored.call("GET", "/nodes").json()["nodes"]
    assert node["name"] == "n1"
    reply = stored.call("GET", "/nodes/n1/metrics?metric=node.load1&step=5m").json()
    (line,) = reply["lines"]
    assert (reply["node"], line["node"], line["points"]) == ("n1", "n1", [[NOW - 300_000, 2.0]])
    assert stored.call("GET", "/nodes/n2/metrics?metric=node.load1").status == 404


def test_the_catalogue_is_whole(server):
    listed = server.call("GET", "/catalog").json()["metrics"]
    assert [one["name"] for one in listed] == [metric.name for metric in METRICS]
    assert {one["name"]: one["read_unit"] for one in listed}["network.receive"] == "By/s"


def test_a_share_token_opens_one_job(stored):
    made = stored.call("POST", "/jobs/j1/share", {"expires_in": 60}).json()
    assert made["expires"] == NOW + 60_000
    assert stored.call("POST", "/jobs/j1/share").json()["expires"] == NOW + 7 * 86_400_000
    path = "/api/v1/jobs/{}/metrics?MetricType=GpuCoreUsage&Token=" + made["token"]
    assert stored.raw("GET", path.format("j1")).status == 200
    assert json.loads(stored.raw("GET", path.format("j2")).body)["Code"] == "InvalidJobId.NotFound"
    stored.clock.time_ms += 61_000
    assert json.loads(stored.raw("GET", path.format("j1")).body)["Code"] == "InvalidSecurityToken.Expired"


@pytest.mark.parametrize("seconds", [0, -1, 31_536_001, "1h", 1.5])
def test_a_share_token_lives_a_year_at_most(stored, seconds):
    reply = stored.call("POST", "/jobs/j1/share", {"expires_in": seconds})
    assert (reply.status, reply.json()["error"]["field"]) == (400, "expires_in")
