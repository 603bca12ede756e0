import json
from pathlib import Path
from urllib.parse import urlencode

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Dialect, drive
from jobmeter.dialects.foas import FOAS
from jobmeter.dialects.foas.instances import instance_id
from jobmeter.dialects.foas.names import METRICS
from jobmeter.errors import UnauthenticatedError
from jobmeter.model.catalog import CATALOG
from jobmeter.model.job import Job
from jobmeter.testing.dialect import DialectTests, result_of

TABLE = {
    **dict.fromkeys(
        (
            "delay",
            "fetched_delay",
            "no_data_delay",
            "lastCheckpointDuration",
            "watermarkLatency",
            "input.tt.readLatency",
            "Status.JVM.GarbageCollector.ConcurrentMarkSweep.Time",
        ),
        "ms",
    ),
    **dict.fromkeys(
        (
            "inBps.rate",
            "lastCheckpointSize",
            "state.state_size",
            "state.state_newsize",
            "Status.JVM.Memory.Heap.Used",
            "Status.JVM.Memory.NonHeap.Used",
        ),
        "By",
    ),
    **dict.fromkeys(
        (
            "checkpointAlignmentTime",
            "rocksdb_get.mean",
            "rocksdb_put.mean",
            "niagara_seek.meam",
            "rocksdb_seek.mean",
            "taskLatency.sum",
            "waitOutput.sum",
            "taskLatency.histogram.mean",
            "waitOutput.histogram.mean",
            "waitInput.histogram.mean",
            "partitionLatency.mean",
        ),
        "ns",
    ),
    **dict.fromkeys(
        (
            "task_failover.rate",
            "tps.rate",
            "sink.outTps.rate",
            "parserTps.rate",
            "parserSkipCount",
            "checkpoints",
            "Status.JVM.GarbageCollector.ConcurrentMarkSweep.Count",
            "lateRecordsDroppedRate",
            "numLateRecordsDropped",
            "numRecordsInPerSecond.rate",
            "numRecordsOutPerSecond.rate",
            "buffers.inPoolUsage",
            "buffers.outPoolUsage",
            "Status.JVM.CPU.Usage",
            "Status.JVM.Threads.Count",
        ),
        "",
    ),
    "Status.JVM.Memory.Process.rss": "kBy",
}
"""The metric table of the vendor's page, with the units that it names."""


class TestFoas(DialectTests):
    cases = Path(__file__).parent / "cases"

    def dialect(self) -> Dialect:
        return FOAS


def _ask(metric, headers=(), query="", lines=None):
    body = urlencode({"metricJson": json.dumps({"start": 1574247000000, "queries": [{"metric": metric}]})})
    head = (("content-type", "application/x-www-form-urlencoded"), *headers)
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", query, head, body.encode())
    match = FOAS.match(call)
    assert match is not None
    asked = []

    def told(question):
        asked.append(question)
        if len(asked) == 1:
            return result_of({"jobs": [{"id": "j", "project": "p", "state": "Running"}], "total": 1}, question)
        return result_of({"lines": lines or [{"points": [[1574247000000, 1.5]]}]}, question)

    context = Context(1574250000000, "ID", match.path)
    return drive(match.operation.answer(call, context), told), asked[1]


def test_the_whole_table_is_known_in_its_own_units():
    assert len(TABLE) == 40
    assert {name: CATALOG[metric].unit for name, metric in METRICS.items()} == TABLE


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("prefix", ["", "blink.p.j."], ids=["bare", "whole"])
def test_every_name_is_asked_for_and_given_back_as_it_was_written(name, prefix):
    answer, question = _ask(prefix + name)
    assert question.metrics == (f"flink.{name}",)
    (metric,) = json.loads(answer.body)["metrics"]
    assert metric == {"metricName": prefix + name, "dps": {"1574247000": "1.5"}, "summary": 1.5, "tags": {}}


@pytest.mark.parametrize("client", ["Java/2.0.0", "java/1", "golang/1.0.0", "Net/2.0.0"])
def test_typed_sdks_read_pascal_case(client):
    answer, _ = _ask("delay", [("x-sdk-client", client)])
    read = json.loads(answer.body)
    assert (read["RequestId"], list(read)) == ("ID", ["RequestId", "Metrics"])
    (metric,) = read["Metrics"]["Metric"]
    assert metric == {"MetricName": "delay", "Dps": {"1574247000": "1.5"}, "Summary": 1.5, "Tags": {}}


@pytest.mark.parametrize("client", ["python/2.0.0", "php/1.8", ""])
def test_everybody_else_reads_the_documents_lower_camel(client):
    answer, _ = _ask("delay", [("x-sdk-client", client)] if client else [])
    assert list(json.loads(answer.body)) == ["requestId", "metrics"]


def test_a_wrong_signature_keeps_the_sdk_alive():
    """``aliyun-python-sdk-core`` takes what follows the colon of this message, and fails without one."""
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", "", (("x-acs-version", "2018-11-11"),))
    answer = FOAS.render_error(call, Context(0, "ID"), UnauthenticatedError("no", "bad-signature"))
    body = json.loads(answer.body)
    assert body["Code"] == "SignatureDoesNotMatch"
    assert ":" in body["Message"]
    assert {"Code", "Message", "RequestId"} <= body.keys()


def test_instance_ids_are_exact_in_json_readers_and_differ_by_job_and_project():
    numbers = {instance_id(Job(id=f"j{at}", project=project)) for at in range(500) for project in ("a", "b")}
    assert len(numbers) == 1000
    assert all(0 < number < 2**53 for number in numbers)
    assert instance_id(Job(id="j1", project="a")) == instance_id(Job(id="j1", project="a", name="other", start=5))


def test_another_version_is_left_alone():
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", "", (("x-acs-version", "2021-07-01"),))
    assert FOAS.match(call) is None
