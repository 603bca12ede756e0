"""Tests of CloudMonitor's points against a plain computation from the stored samples."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.cloudmonitor.dimensions import name_card, read
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, MonitoredPart
from jobmeter.dialects.alibaba.common.cloudmonitor.read import read_newest_page, read_points
from jobmeter.dialects.alibaba.common.cloudmonitor.request import PointsRequest, read_request
from jobmeter.dialects.alibaba.common.operation import operation
from jobmeter.dialects.base import Answer, Context, drive
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, JobView, Replica
from jobmeter.query.request import By, JobQuestion, Line, MetricResult

NOW = 1_795_188_836_000
START = 1_795_186_800_000
MINUTE = 60_000


@dataclass
class Stored:
    """Stored values by (job, replica, device, minute), which answer questions like the executor."""

    values: dict[tuple[str, str, str, int], float]

    def __call__(self, question):
        if isinstance(question, JobQuestion):
            names = sorted({key[1] for key in self.values if key[0] == question.ref.id})
            return JobView(job=Job(id=question.ref.id), replicas=[Replica(name=name) for name in names], allocations=[])
        span = question.range
        lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for (job, replica, device, minute), value in sorted(self.values.items()):
            time = START + minute * MINUTE
            if job == question.subject.id and span.start_ms <= time < span.end_ms:
                lines.setdefault((replica, device), []).append((time, value))
        return MetricResult(
            question,
            [
                Line("m", "", replica, "", device, np.array([t for t, _ in points]), np.array([v for _, v in points]))
                for (replica, device), points in lines.items()
            ],
        )


def answered(read_page, stored, **parameters):
    from urllib.parse import urlencode

    call = Call("POST", "/", urlencode({"MetricName": "CARD_GPU_DUTY_CYCLE", **parameters}), ())

    @operation("POST /", "metrics:read")
    class ReadPage(PointsRequest, frozen=True, kw_only=True):
        length: Annotated[int, Meta(ge=1, le=1440)] = 1000

        def _steps(self):
            points, token = yield from read_page(read_request(self, "Op"))
            return Answer(200, json.dumps([points, token]).encode())

    return json.loads(drive(ReadPage.operations[0].answer(call, Context(NOW, "id")), stored).body)


keys = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from(["worker-0", "worker-1", "worker-10"]),
    st.sampled_from(["gpu0", "gpu1"]),
    st.integers(0, 29),
)
stores = st.dictionaries(keys, st.floats(0, 1), max_size=60).map(Stored)
BOTH = json.dumps([{"jobId": "a"}, {"jobId": "b"}])
RANGE = {"Dimensions": BOTH, "StartTime": str(START), "EndTime": str(START + 30 * MINUTE)}


@given(stored=stores, length=st.integers(1, 40))
def test_pages_together_are_the_whole_and_each_is_full(stored, length):
    found, token, pages = [], "", 0
    while True:
        more = {"NextToken": token} if token else {}
        points, token = answered(
            lambda request: read_points(request, strict=False), stored, Length=str(length), **RANGE, **more
        )
        found += points
        pages += 1
        if not token:
            break
        assert len(points) == length
    expected = {
        (START + minute * MINUTE, job, f"{job}-{replica}", device[3:]): value * 100
        for (job, replica, device, minute), value in stored.values.items()
    }
    values_by_point = {
        (point["timestamp"], point["jobId"], point["pod"], point["gpu"]): point["Value"] for point in found
    }
    assert values_by_point == pytest.approx(expected, rel=1e-11)
    assert len(values_by_point) == len(found)
    assert pages == max(1, -(-len(expected) // length))
    assert [point["timestamp"] for point in found] == sorted(point["timestamp"] for point in found)


@given(stored=stores, length=st.integers(1, 5))
def test_the_newest_point_of_each_line(stored, length):
    found, token = [], ""
    while True:
        more = {"NextToken": token} if token else {}
        points, token = answered(read_newest_page, stored, Length=str(length), **RANGE, **more)
        found += points
        if not token:
            break
    last = {}
    for job, replica, device, minute in sorted(stored.values, key=lambda key: key[3]):
        last[job, f"{job}-{replica}", device[3:]] = START + minute * MINUTE
    assert {(point["jobId"], point["pod"], point["gpu"]): point["timestamp"] for point in found} == last


@given(text=st.text(max_size=40) | st.binary(max_size=60).map(lambda data: data.hex()))
def test_no_text_but_a_token_is_one(text):
    if text:
        with pytest.raises(InvalidRequestError) as refused:
            answered(read_newest_page, Stored({}), NextToken=text)
        assert refused.value.field == "NextToken"


@pytest.mark.parametrize(
    "other", [{"Dimensions": '{"jobId":"a"}'}, {"MetricName": "CARD_GPU_SM_UTIL"}, {"Period": "15"}]
)
def test_a_token_is_of_its_own_question_only(other):
    stored = Stored({("a", "worker-0", "gpu0", 0): 0.5, ("a", "worker-0", "gpu0", 1): 0.5})
    _, token = answered(
        read_newest_page, Stored({**stored.values, ("b", "worker-0", "gpu0", 1): 0.5}), Length="1", **RANGE
    )
    assert token
    with pytest.raises(InvalidRequestError):
        answered(read_newest_page, stored, Length="1", **{**RANGE, **other, "NextToken": token})


def test_the_end_of_the_first_page_stays_the_end():
    stored = Stored({("a", "worker-0", "gpu0", minute): 0.5 for minute in range(34)})
    span = {"Dimensions": '{"jobId":"a"}'}
    first, token = answered(lambda request: read_points(request, strict=True), stored, Length="30", **span)
    second, end = answered(
        lambda request: read_points(request, strict=True), stored, Length="30", NextToken=token, **span
    )
    assert [len(first), len(second), end] == [30, 4, ""]


def test_names():
    assert {measure.by for measure in MEASURES.values()} == {By.JOB, By.REPLICA, By.DEVICE}
    assert all(measure.unit and measure.text for measure in MEASURES.values())
    assert MEASURES["JOB_MEMORY_FREE"].part is MonitoredPart.FREE
    assert MEASURES["JOB_GPU_ACCELERATOR_DUTTY_UTIL"].metric.name == "gpu.utilization"
    assert "CARD_CPU_UTIL" not in MEASURES


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_dimensions_are_read_or_refused(value):
    try:
        expected = len(read(json.dumps(value)))
    except InvalidRequestError:
        expected = 1
    assert 1 <= expected <= 50


@pytest.mark.parametrize(("device", "name"), [("gpu0", "0"), ("npu12", "12"), ("0", "0"), ("gpu", "gpu"), ("", "")])
def test_a_card_is_named_by_its_number(device, name):
    assert name_card(device) == name
