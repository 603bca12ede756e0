import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stored_series import stored_result

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Dialect, drive
from jobmeter.dialects.base.request import ParameterSlot
from jobmeter.dialects.prometheus import PROMETHEUS
from jobmeter.dialects.prometheus.names import Exposed, expose, find_stored_names, list_names, make_own_name
from jobmeter.dialects.prometheus.requests import TIME, Duration, PrometheusReader
from jobmeter.dialects.prometheus.select import SelectedRows, read_samples
from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters import RULES
from jobmeter.ingest.exporters.resolve import resolve
from jobmeter.model.batch import SampleColumns
from jobmeter.model.catalog import CATALOG
from jobmeter.model.series import Series
from jobmeter.model.special import STALE_CODE
from jobmeter.promql.nodes import NAME
from jobmeter.promql.numbers import format_number, format_plain
from jobmeter.promql.parse import LONGEST, parse
from jobmeter.promql.windows import is_stale
from jobmeter.query.series import Samples
from jobmeter.testing.dialect import DialectTests

NOW = 1_800_000_000_000


class TestPrometheus(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self) -> Dialect:
        return PROMETHEUS

    def decode_result(self, given, question):
        found = stored_result(given, question)
        return super().decode_result(given, question) if found is None else found

    def test_a_message_is_read_even_if_its_type_is_that_of_a_form(self):
        case = json.loads((self.cases / "read.json").read_text())
        case["request"]["headers"]["content-type"] = "application/x-www-form-urlencoded"
        self.test_case(case)


def parameter(kind, name, query):
    slot = ParameterSlot(
        attribute=name, name=name, where="query", kind=kind, meta=msgspec.Meta(), required=False, default=NOW
    )
    reader = PrometheusReader()
    call = Call("GET", "/prometheus/api/v1/query", query, ())
    return kind.read(reader, slot, reader.list_values(call, Context(NOW, "")))


def test_special_values_keep_their_bits_in_other_units():
    plain, special = Series("gpu.power"), Series("special.gpu.power")
    rows = SelectedRows([Exposed(((NAME, "power_mw"),), plain, 0.001, special), Exposed(((NAME, "p"),), plain)])
    columns = SampleColumns(
        np.array([0, 0, 1, 1, 1], np.uint32),
        np.array([10, 30, 20, 30, 40]),
        np.array([1.5, 2.5, STALE_CODE, STALE_CODE, 3.0]),
    )
    found = drive(read_samples(rows, 0, 50), lambda _: Samples(columns))
    assert found.starts.tolist() == [0, 4, 8]
    assert found.times.tolist() == [10, 20, 30, 40] * 2
    assert is_stale(found.values).tolist() == [False, True, False, False] * 2
    assert [found.values[at] for at in (0, 2, 3, 4)] == [1500, 2500, np.inf, 1.5]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1700000000", 1_700_000_000_000),
        ("1700000000.123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20%2B01:00", 1_700_000_000_000),
        ("", NOW),
    ],
)
def test_times(text, wanted):
    assert parameter(TIME, "time", f"time={text}") == wanted


@pytest.mark.parametrize("text", ["x", "NaN", "-1", "1e300", "Inf", "2023-13-01T00:00:00Z"])
def test_times_that_are_none(text):
    with pytest.raises(InvalidRequestError) as refused:
        parameter(TIME, "time", f"time={text}")
    assert refused.value.field == "time"


@pytest.mark.parametrize(("text", "wanted"), [("15", 15_000), ("0.5", 500), ("1h30m", 5_400_000), ("250ms", 250)])
def test_durations(text, wanted):
    assert parameter(Duration(), "step", f"step={text}") == wanted


def test_the_names_of_metrics_are_each_of_one_metric():
    names = [make_own_name(name) for name in CATALOG]
    assert len(set(names)) == len(names)
    assert make_own_name("gpu.sm.active") == "jobmeter_gpu_sm_active_ratio"
    assert make_own_name("cpu.time") == "jobmeter_cpu_time_seconds_total"
    assert make_own_name("app.loss") == "jobmeter_app_loss"


@pytest.mark.parametrize("metric", sorted(CATALOG))
def test_each_name_leads_back_to_its_metric(metric):
    for name in list_names(metric):
        assert metric in find_stored_names(name)


LABELS = st.dictionaries(
    st.sampled_from(["instance", "job", "le", "code", "pod", "namespace", "node"]),
    st.text("abc-1.:", min_size=1, max_size=8),
    max_size=4,
)


@given(LABELS)
def test_a_series_of_remote_write_has_the_labels_that_were_sent(labels):
    sent = [("__name__", "requests_total"), *labels.items()]
    series = resolve(sent, "lab").series
    (found,) = expose(series)
    assert dict(found.labels) == dict(sent)


@pytest.mark.parametrize("name", sorted(name for name, rules in RULES.items() if rules[0].metric.startswith("gpu.")))
def test_a_device_has_the_exporters_name_and_unit(name):
    sent = [("__name__", name), ("gpu", "3"), ("Hostname", "node-1")]
    placed = resolve(sent, "lab")
    (found,) = expose(placed.series, name)
    assert dict(found.labels).items() >= dict(sent).items()
    assert found.divisor == placed.factor


@pytest.mark.parametrize(
    ("job", "name", "metric", "device", "wanted"),
    [
        ("4711", "slurm_job_memory_usage", "memory.usage", "", {"slurmjobid": "4711", "instance": "n1"}),
        ("4711", "slurm_job_power_gpu", "gpu.power", "gpu2", {"slurmjobid": "4711", "gpu": "2", "instance": "n1"}),
        # Jobs of other schedulers have no number.
        ("train-7", "slurm_job_memory_usage", "memory.usage", "", None),
    ],
)
def test_only_jobs_with_a_number_of_slurm_have_the_names_of_its_exporter(job, name, metric, device, wanted):
    series = Series(metric, "lab", node="n1", device=device, job=job, replica="worker-0")
    found = [dict(one.labels) for one in expose(series, name)]
    assert [set(wanted.items()) <= set(labels.items()) for labels in found] == ([] if wanted is None else [True])


def test_series_of_other_senders_show_their_node_and_job():
    series = Series(metric="external.sys.cpu", project="lab", node="n1", job="train", labels=(("cpu", "0"),))
    (found,) = expose(series)
    assert dict(found.labels) == {
        "__name__": "sys.cpu",
        "cpu": "0",
        "job_id": "train",
        "node": "n1",
        "project": "lab",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo(",
        "x{a=~'('}",
        "rate(x)",
        "+".join("1" * 3000),
        "-" * 3000 + "1",
        "(" * 200 + "1" + ")" * 200,
        "x" * (LONGEST + 1),
    ],
)
def test_queries_that_are_refused_name_the_parameter(text):
    with pytest.raises(InvalidRequestError) as refused:
        parse(text)
    assert refused.value.field == "query"


def test_strings_in_backquotes_have_no_escapes():
    assert parse('x{a="\\\\d\\""}') == parse('x{a=`\\d"`}')


def test_a_path_that_opentsdb_has_too_belongs_to_who_it_is_meant_for():
    path = "/api/v1/query"
    assert PROMETHEUS.find_operation(Call("GET", path, "m=sum:a&start=1h-ago", ())) is None
    assert PROMETHEUS.find_operation(Call("POST", path, "", (("content-type", "application/json"),), b"{}")) is None
    found = PROMETHEUS.find_operation(Call("GET", path, "query=up", ()))
    assert found is not None
    assert found.operation.name == "query"


def test_numbers_are_written_as_prometheus_writes_them():
    wanted = {
        1.0: "1",
        0.1: "0.1",
        1e20: "100000000000000000000",
        1e21: "1e+21",
        1.5e-7: "1.5e-07",
        float("inf"): "+Inf",
        float("-inf"): "-Inf",
        123456789.125: "123456789.125",
        1e-5: "0.00001",
    }
    assert {value: format_number(value) for value in wanted} == wanted
    assert format_number(float("nan")) == "NaN"
    assert format_plain(1e21) == "1" + "0" * 21
    many = np.geomspace(1e-300, 1e300, 500).tolist()
    assert [float(format_number(value)) for value in many] == many


def test_the_cases_say_where_they_come_from():
    for file in TestPrometheus.cases.glob("*.json"):
        assert json.loads(file.read_text())["source"].startswith("https://")


@given(
    st.dictionaries(
        st.sampled_from(["job", "scrape_job", "scrape_scrape_job", "instance", "pod", "node", "job_id", "le", "_x"]),
        st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=12),
    )
)
def test_a_series_of_remote_write_keeps_its_name_and_all_its_labels(labels):
    sent = {"__name__": "app_requests_total", **labels}
    (found,) = expose(resolve(list(sent.items()), "lab").series)
    assert dict(found.labels) == sent
