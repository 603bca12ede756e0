import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.alibaba.pai_studio import PAI_STUDIO
from jobmeter.dialects.alibaba.pai_studio.names import (
    convert_kilobytes,
    format_number,
    list_node_metrics,
    parse_device_model,
    shorten_job_type,
)
from jobmeter.dialects.alibaba.pai_studio.operations.resource_groups import sort_by_field
from jobmeter.dialects.base import Context
from jobmeter.errors import JobmeterError, NotFoundError, QueryTimeoutError
from jobmeter.model.catalog import CATALOG
from jobmeter.query.group import (
    GroupQuestion,
    GroupUsage,
)
from jobmeter.query.reported import Reported, ReportedQuestion
from jobmeter.testing.dialect import ERRORS, REQUEST_ID, DialectTests, decode_result

NOTHING: dict[str, Any] = {"capacity": {}, "users": [], "summary": {}}


class TestPaiStudio(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return PAI_STUDIO

    def decode_result(self, given: Any, question: Any) -> Any:
        match question:
            case GroupQuestion():
                return msgspec.convert(given or NOTHING, GroupUsage)
            case ReportedQuestion():
                return msgspec.convert(given or {"reports": [], "total": 0}, Reported)
            case _:
                return decode_result(given, question)


SEED = {
    "ResourceGroupId": "rg17tmvwiokh****",
    "TotalCPU": 1000,
    "CPUUsageRate": "59",
    "GPUUsageRate": "10",
    "TotalMemory": 10240,
    "TotalGPU": 1,
    "MemoryUsageRate": "20",
    "RequestCPU": 100,
    "RequestGPU": 10,
    "RequestMemory": 102400000,
    "NetworkInputRate": "1",
    "NetworkOutputRate": "1",
    "DiskReadRate": "22",
    "DiskWriteRate": "22",
    "JobType": "PyTorch",
    "UserId": "16111111****",
    "CPUNodeNumber": 2,
    "GPUNodeNumber": 1,
    "CpuJobNames": ["dlcxxxxx"],
    "GpuJobNames": ["dlcyyyyy"],
    "NodeNames": ["lrnxxxxxx"],
    "CpuNodeNames": ["ecixxxxxx"],
    "GpuNodeNames": ["lrnxxxxxxx"],
}
"""Record of the page's sample answer.

No samples can produce two of its facts: its group differs from the answer's, and it counts two nodes but names one.
"""


def test_the_sample_answer_is_the_page_s():
    body = json.loads((TestPaiStudio.cases / "seed_sample.json").read_text())["answer"]["body"]
    assert list(body) == ["ResourceGroupId", "UserMetrics", "Summary", "Total"]
    for record in (*body["UserMetrics"], body["Summary"]):
        assert list(record) == list(SEED)
        assert [type(value) for value in record.values()] == [type(value) for value in SEED.values()]
        others = {name for name in SEED if record[name] != SEED[name]}
        assert others == {"ResourceGroupId", "CPUNodeNumber", "NodeNames"}


URL = "/api/PaiStudio/2022-01-12/GetUserViewMetrics"


def _error(error, path="/"):
    answer = PAI_STUDIO.render_error(Call("GET", path, "", (("host", "h:1"),)), Context(0, REQUEST_ID), error)
    return answer, json.loads(answer.body)


@pytest.mark.parametrize("path", ["/", URL])
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_body_is_what_clients_read(error, path):
    answer, body = _error(error, path)
    assert set(body) == {"RequestId", "HostId", "Code", "Message"}
    assert all(body.values())
    assert dict(answer.headers)["x-acs-request-id"] == REQUEST_ID == body["RequestId"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_url_form_answers_with_the_statuses_of_its_page(error):
    status = _error(error, URL)[0].status
    assert status in {400, 401, 403, 404, 429, 500, 503} | {405, 409, 413}
    if isinstance(error, QueryTimeoutError):
        assert status == 503


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("job", "InvalidTrainingJobId.NotFound"),
        ("instance", "InvalidInstanceId.NotFound"),
        ("resource_group", "InvalidResourceGroupID.NotFound"),
        ("workspace", "InvalidWorkspaceId.NotFound"),
    ],
)
def test_what_is_not_there_is_named(kind, code):
    for path in ("/", URL):
        answer, body = _error(NotFoundError("there is no x1", kind, "x1"), path)
        assert (answer.status, body["Code"]) == (404, code)
        assert "x1" in body["Message"]
    assert "TrainingJobId j9" in _error(NotFoundError("no", "job", "j9"))[1]["Message"]


def test_a_bug_reveals_nothing():
    for path in ("/", URL):
        answer, body = _error(JobmeterError("password=hunter2"), path)
        assert (answer.status, body["Code"]) == (500, "InternalError")
        assert b"hunter2" not in answer.body


def test_another_product_of_the_vendor_is_left_alone():
    for version, action in (("2020-12-03", "GetToken"), ("2020-12-03", "GetUserViewMetrics")):
        call = Call("GET", "/api/v1/tokens", "", (("x-acs-version", version), ("x-acs-action", action)))
        assert PAI_STUDIO.find_operation(call) is None
    for path in ("/api/pai-dlc/2022-01-12/GetUserViewMetrics", "/api/PaiStudio/2020-12-03/GetUserViewMetrics"):
        assert PAI_STUDIO.find_operation(Call("GET", path, "", ())) is None


def test_every_operation_is_reached_by_header_by_path_and_by_url():
    for operation in PAI_STUDIO.operations:
        path = operation.path.replace("{", "").replace("}", "")
        named = (("x-acs-version", "2022-01-12"), ("x-acs-action", operation.name))
        by_url = Call(operation.method, f"/api/PaiStudio/2022-01-12/{operation.name}", "", ())
        for call in (Call(operation.method, path, "", named), Call(operation.method, path, "", ()), by_url):
            match = PAI_STUDIO.find_operation(call)
            assert match is not None
            assert match.operation is operation


def test_users_are_requested_a_hundred_times_a_second():
    rates = {operation.name: operation.rate for operation in PAI_STUDIO.operations if operation.rate}
    assert rates == {"GetUserViewMetrics": Rate(100, 100, Per.KEY)}


def test_only_a_bearer_token_opens_the_url_form():
    match = PAI_STUDIO.find_operation(Call("GET", URL, "", ()))
    assert match is not None
    assert match.schemes is not None
    assert [scheme.name for scheme in match.schemes] == ["bearer"]


def test_every_metric_of_a_node_has_a_stand_in_of_the_same_unit():
    for name in ("cpuUSAGErate", "GPUUsageRate", "GpuMemoryUsageRate", "MemoryUsageRate", "DiskReadRate"):
        first, second = list_node_metrics(name)
        assert CATALOG[first].answer_unit == CATALOG[second].answer_unit
    assert list_node_metrics("Load") == ()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA A10", "A10"),
        ("Tesla T4", "T4"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("", ""),
    ],
)
def test_a_device_s_model(name, model):
    assert parse_device_model(name) == model


def test_types_and_kilobytes():
    assert [shorten_job_type(kind) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "Custom", "")] == [
        "PyTorch",
        "TensorFlow",
        "XGBoost",
        "Custom",
        "",
    ]
    assert [convert_kilobytes(size) for size in (0, 1, 1024, 1025, 10 * 2**20)] == [0, 1, 1, 2, 10240]


@given(st.floats(min_value=-1e12, max_value=1e12))
def test_a_number_s_text_is_plain_and_true(value):
    text = format_number(value)
    assert set(text) <= set("-0123456789.")
    assert float(text) == pytest.approx(value, rel=1e-11, abs=0)
    assert not text.endswith(".0")


_RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "UserId": st.text("ab1", max_size=3),
            "CPUUsageRate": st.sampled_from(["", "0", "9", "10", "59.5"]),
            "RequestCPU": st.integers(0, 20),
            "NodeNames": st.lists(st.sampled_from(["n2", "n10"]), max_size=2),
        }
    ),
    max_size=8,
)


@given(_RECORDS, st.sampled_from(["CPUUsageRate", "requestcpu", "UserId", "NodeNames"]), st.booleans())
def test_sorting_keeps_every_record_and_puts_the_unknown_last(records, field, descending):
    found = sort_by_field(records, field, descending=descending)
    assert sorted(map(id, found)) == sorted(map(id, records))
    if field == "requestcpu":
        values = [record["RequestCPU"] for record in found]
        assert values == sorted(values, reverse=descending)
        for value in values:  # the order of equal ones is stable
            same = [id(record) for record in records if record["RequestCPU"] == value]
            assert [id(record) for record in found if record["RequestCPU"] == value] == same
    if field == "CPUUsageRate":
        rates = [record["CPUUsageRate"] for record in found]
        positive = [float(rate) for rate in rates if rate]
        assert rates[len(positive) :] == [""] * (len(rates) - len(positive))
        assert positive == sorted(positive, reverse=descending)


@given(_RECORDS, st.sampled_from(["GmtModified", "", "users"]), st.booleans())
def test_a_field_that_there_is_not_leaves_the_order(records, field, descending):
    assert sort_by_field(records, field, descending=descending) == records
