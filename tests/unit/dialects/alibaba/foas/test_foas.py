import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.foas import FOAS
from jobmeter.dialects.alibaba.foas.instances import compute_instance_id
from jobmeter.dialects.alibaba.foas.names import METRICS
from jobmeter.dialects.base import Context, Dialect, drive
from jobmeter.errors import UnauthenticatedError
from jobmeter.model.batch import BucketColumns
from jobmeter.model.catalog import CATALOG
from jobmeter.model.job import Job
from jobmeter.model.question import Question
from jobmeter.model.series import Series
from jobmeter.query.series import Buckets, BucketsQuestion, FoundSeries, SeriesQuestion
from jobmeter.testing.dialect import DialectTests
from jobmeter.testing.dialect import decode_result as plain_result_of

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
"""Metrics of the vendor's page, with their units."""


class TestFoas(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self) -> Dialect:
        return FOAS

    def decode_result(self, given: Any, question: Question[Any]) -> Any:
        return decode_result(given, question)


def decode_result(given, question):
    """Decode ``{"series": [...]}``, ``{"points": [[index, time, value], ...]}``, or a list of values of a bucket."""
    match question:
        case SeriesQuestion():
            members = (given or {"series": []})["series"]
            return FoundSeries(
                [Series(**{**one, "labels": tuple(map(tuple, one.get("labels", ())))}) for one in members]
            )
        case BucketsQuestion():
            return Buckets(_columns((given or {"points": []})["points"]))
        case _:
            return plain_result_of(given, question)


def _columns(points):
    members = [point[2] if isinstance(point[2], list) else [point[2]] for point in points]
    time = np.array([point[1] for point in points], np.int64)
    return BucketColumns(
        index=np.array([point[0] for point in points], np.uint32),
        time=time,
        count=np.array([len(own) for own in members], np.uint64),
        sum=np.array([sum(own) for own in members], np.float64),
        minimum=np.array([min(own) for own in members], np.float64),
        maximum=np.array([max(own) for own in members], np.float64),
        first=np.array([own[0] for own in members], np.float64),
        first_time=time,
        last=np.array([own[-1] for own in members], np.float64),
        last_time=time,
        increase=np.zeros(len(points)),
        elapsed=np.zeros(len(points), np.int64),
    )


def _ask(metric, headers=(), query=""):
    body = urlencode({"metricJson": json.dumps({"start": 1574247000000, "queries": [{"metric": metric}]})})
    head = (("content-type", "application/x-www-form-urlencoded"), *headers)
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", query, head, body.encode())
    match = FOAS.find_operation(call)
    assert match is not None
    asked = []

    def page_of(question):
        asked.append(question)
        if len(asked) == 1:
            return decode_result({"jobs": [{"id": "j", "project": "p", "state": "Running"}], "total": 1}, question)
        if isinstance(question, SeriesQuestion):
            assert question.metrics is not None
            (name,) = question.metrics
            return FoundSeries([Series(name, "p", job="j", replica="tm-0")])
        return decode_result({"points": [[0, 1574247000000, 1.5]]}, question)

    context = Context(1574250000000, "ID", match.path)
    return drive(match.operation.answer(call, context), page_of), asked[1]


def test_the_whole_table_is_answered_in_its_own_units():
    assert len(TABLE) == 40
    assert {name: CATALOG[metric].unit for name, metric in METRICS.items()} == TABLE


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("prefix", ["", "blink.p.j."], ids=["bare", "whole"])
def test_every_name_is_requested_and_given_back_as_it_was_written(name, prefix):
    answer, question = _ask(prefix + name)
    assert question.metrics == {f"flink.{name}"}
    (metric,) = json.loads(answer.body)["metrics"]
    assert metric == {"metricName": prefix + name, "dps": {"1574247000": "1.5"}, "summary": 1.5, "tags": {}}


def _flat(value, key):
    """Flatten an answer like the JSON readers of the SDKs for Java and .NET, which omit the name of an array."""
    if isinstance(value, dict):
        return {path: found for name, part in value.items() for path, found in _flat(part, f"{key}.{name}").items()}
    if isinstance(value, list):
        outer = key.rpartition(".")[0]
        parts = [_flat(part, f"{outer}[{at}]") for at, part in enumerate(value)]
        return {f"{outer}.Length": len(value), **{path: found for part in parts for path, found in part.items()}}
    return {key: value}


@pytest.mark.parametrize("client", ["Java/2.0.0", "java/1", "golang/1.0.0", "Net/2.0.0"])
def test_typed_sdks_read_pascal_case(client):
    answer, _ = _ask("delay", [("x-sdk-client", client)])
    assert _flat(json.loads(answer.body), "GetInstanceMetricResponse") == {
        "GetInstanceMetricResponse.RequestId": "ID",
        "GetInstanceMetricResponse.Metrics.Length": 1,
        "GetInstanceMetricResponse.Metrics[0].MetricName": "delay",
        "GetInstanceMetricResponse.Metrics[0].Dps.1574247000": "1.5",
        "GetInstanceMetricResponse.Metrics[0].Summary": 1.5,
    }


@pytest.mark.parametrize(
    ("case", "paths"),
    [
        ("list_instance", {"TotalCount": 2, "Instances.Length": 2, "Instances[0].ActualState": "RUNNING"}),
        ("list_job", {"TotalCount": 3, "Jobs.Length": 3, "Jobs[1].JobType": "FLINK_BATCH"}),
        ("batch_get_instance_run_summary", {"RunSummarys.Length": 1, "RunSummarys[0].JobName": "test"}),
        ("get_instance", {"Instance.JobName": "test", "Instance.InputDelay": 300}),
        ("start_job_created", {"instanceId": 1509615429641080}),
    ],
)
def test_typed_sdks_find_what_they_read_in_every_answer(case, paths):
    body = json.loads((Path(__file__).parent / "cases" / f"{case}.json").read_text())["answer"]["body"]
    found = _flat(json.loads(body) if isinstance(body, str) else body, "R")
    assert {path: found.get(f"R.{path}") for path in paths} == paths
    assert found["R.RequestId"]


@pytest.mark.parametrize("client", ["python/2.0.0", "php/1.8", ""])
def test_everybody_else_reads_the_documents_lower_camel(client):
    answer, _ = _ask("delay", [("x-sdk-client", client)] if client else [])
    assert list(json.loads(answer.body)) == ["requestId", "metrics"]


def test_a_wrong_signature_keeps_the_sdk_alive():
    """``aliyun-python-sdk-core`` splits this message at a colon, and fails without one."""
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", "", (("x-acs-version", "2018-11-11"),))
    answer = FOAS.render_error(call, Context(0, "ID"), UnauthenticatedError("no", "bad-signature"))
    body = json.loads(answer.body)
    assert body["Code"] == "SignatureDoesNotMatch"
    assert ":" in body["Message"]
    assert {"Code", "Message", "RequestId"} <= body.keys()


def test_instance_ids_are_exact_in_json_readers_and_differ_by_job_and_project():
    numbers = {compute_instance_id(Job(id=f"j{at}", project=project)) for at in range(500) for project in ("a", "b")}
    assert len(numbers) == 1000
    assert all(0 < number < 2**53 for number in numbers)
    assert compute_instance_id(Job(id="j1", project="a")) == compute_instance_id(
        Job(id="j1", project="a", name="other", start=5)
    )


def test_another_version_is_left_alone():
    call = Call("POST", "/api/v2/projects/p/jobs/j/metric", "", (("x-acs-version", "2021-07-01"),))
    assert FOAS.find_operation(call) is None
