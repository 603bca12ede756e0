"""Tests of requests as Grafana's data source for Prometheus sends them, and of the answers that it reads.

The requests have the methods and parameters of ``pkg/promlib`` and ``packages/grafana-prometheus`` in
https://github.com/grafana/grafana. Queries and searches are posted forms, or in the address if the data source is set
to GET. Values of a label, metadata, rules and the version are always in the address.
"""

import math
from urllib.parse import urlencode

import pytest
from tests.support.prometheus import HEADERS_1, request_1, snappy
from tests.support.serving import serving

from jobmeter.model.time import SECOND

AGENT = {"User-Agent": "Grafana/11.5.2", "Accept-Encoding": "gzip"}
FORM = "application/x-www-form-urlencoded"
GPU = {"Hostname": "gpu-1", "UUID": "GPU-6a", "gpu": "3", "instance": "gpu-1:9400", "job": "dcgm"}
TEMPERATURE, UP = {"__name__": "DCGM_FI_DEV_GPU_TEMP", **GPU}, {"__name__": "up", "instance": "a:1", "job": "app"}
STEP = 15
POINTS = 9


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("grafana") / "data", rate_limits="*=1000000")
    now = made.clock.now_ms()
    times = [now - STEP * SECOND * at for at in range(POINTS)]
    rows = [
        (sorted(TEMPERATURE.items()), [(60.5, time) for time in times]),
        (sorted(UP.items()), [(math.nan if time == now else 1.0, time) for time in times]),
    ]
    headers = {**HEADERS_1, "Authorization": f"Bearer {made.admin.token}"}
    assert made.raw("POST", "/api/v1/write", snappy(request_1(rows)), headers).status == 204
    yield made
    made.application.close()


def seconds(server, ago=0):
    """Return a time as Grafana writes it: seconds, without needless decimals."""
    return f"{(server.clock.now_ms() - ago * SECOND) / 1000:.3f}".rstrip("0").rstrip(".")


def send(server, base, method, path, parameters):
    """Send parameters as a posted form, or in the address."""
    encoded = urlencode(parameters, doseq=True)
    headers = {**AGENT, "Authorization": f"Bearer {server.admin.token}"}
    if method == "POST":
        return server.raw("POST", f"{base}/api/v1/{path}", encoded.encode(), {**headers, "Content-Type": FORM})
    return server.raw("GET", f"{base}/api/v1/{path}" + (f"?{encoded}" if encoded else ""), headers=headers)


def span(server, ago=POINTS * STEP):
    return {"start": seconds(server, ago), "end": seconds(server)}


def is_health(server, data):
    assert data == {"resultType": "scalar", "result": [4, "2"]}


def is_instant(server, data):
    assert data["resultType"] == "vector"
    assert data["result"] == [{"metric": TEMPERATURE, "value": [server.clock.now_ms() / 1000, "60.5"]}]


def is_not_a_number(server, data):
    assert data["result"] == [{"metric": UP, "value": [server.clock.now_ms() / 1000, "NaN"]}]


def is_string(server, data):
    assert data == {"resultType": "string", "result": [server.clock.now_ms() / 1000, "a"]}


def is_range(server, data):
    assert data["resultType"] == "matrix"
    (row,) = data["result"]
    assert row["metric"] == {"Hostname": "gpu-1"}
    assert [value for _, value in row["values"]] == ["60.5"] * POINTS
    assert row["values"][-1][0] == pytest.approx(server.clock.now_ms() / 1000, abs=STEP)


def is_empty(server, data):
    assert data == []


def are_series(server, data):
    assert data == [TEMPERATURE]


def are_names(server, data):
    assert data == sorted(TEMPERATURE)


def are_all_names(server, data):
    assert {"__name__", "job", "instance", "gpu"} <= set(data)
    assert data == sorted(data)


def are_values(server, data):
    assert data == ["dcgm"]


def are_metrics(server, data):
    assert {"DCGM_FI_DEV_GPU_TEMP", "up", "jobmeter_gpu_temperature_celsius"} <= set(data)


def is_metadata(server, data):
    assert data["DCGM_FI_DEV_GPU_TEMP"][0].keys() == {"type", "help", "unit"}
    assert {one["type"] for some in data.values() for one in some} == {"gauge", "counter"}


def is_version(server, data):
    # Without features the data source identifies the server as Prometheus, not as Mimir.
    assert data["version"].split(".")[0] == "3"
    assert "features" not in data


def are_rules(server, data):
    assert {"name", "file", "rules", "interval"} <= data["groups"][0].keys()
    assert {"name", "query", "health", "type", "state", "alerts"} <= data["groups"][0]["rules"][0].keys()


def are_alerts(server, data):
    assert data == {"alerts": []}


SELECTOR = 'DCGM_FI_DEV_GPU_TEMP{job="dcgm",instance=~"gpu-1:9400"}'
BOTH, GET = ("POST", "GET"), ("GET",)
REQUESTS = {
    "the check of the data source": (BOTH, "query", {"query": "1+1", "time": "4"}, is_health),
    "an instant query": (BOTH, "query", {"query": SELECTOR, "time": "end", "timeout": "60s"}, is_instant),
    "a value that is no number": (BOTH, "query", {"query": 'up{job="app"}', "time": "end"}, is_not_a_number),
    "a text": (BOTH, "query", {"query": '"a"', "time": "end"}, is_string),
    "a panel": (
        BOTH,
        "query_range",
        {"query": f"max({SELECTOR}) by (Hostname)", "start": "", "end": "", "step": str(STEP), "timeout": "60s"},
        is_range,
    ),
    "exemplars": (BOTH, "query_exemplars", {"query": SELECTOR, "start": "", "end": ""}, is_empty),
    "series": (BOTH, "series", {"match[]": SELECTOR, "start": "", "end": "", "limit": "40000"}, are_series),
    "labels of a metric": (BOTH, "labels", {"match[]": SELECTOR, "start": "", "end": "", "limit": "40000"}, are_names),
    "labels": (BOTH, "labels", {"start": "", "end": "", "limit": "40000"}, are_all_names),
    "values of a variable": (GET, "label/job/values", {"match[]": SELECTOR, "start": "", "end": ""}, are_values),
    "values without a selector": (
        GET,
        "label/job/values",
        {"match[]": '{__name__="DCGM_FI_DEV_GPU_TEMP"}', "start": "", "end": "", "limit": "40000"},
        are_values,
    ),
    "names of metrics": (GET, "label/__name__/values", {"start": "", "end": "", "limit": "40000"}, are_metrics),
    "metadata": (GET, "metadata", {"limit": "40000"}, is_metadata),
    "the version": (GET, "status/buildinfo", {}, is_version),
    "rules": (GET, "rules", {}, are_rules),
    "rules of alerts": (GET, "rules", {"type": "alert"}, are_rules),
    "alerts": (GET, "alerts", {}, are_alerts),
}


@pytest.mark.parametrize("base", ["/prometheus", ""])
@pytest.mark.parametrize(
    ("what", "method"), [(what, method) for what, (methods, *_) in REQUESTS.items() for method in methods]
)
def test_the_answer_has_the_form_that_grafana_reads(shared, base, what, method):
    _, path, parameters, check = REQUESTS[what]
    times = {"end" if name == "time" else name: text for name, text in span(shared).items()}
    filled = {name: text or times.get(name, text) for name, text in parameters.items()}
    filled |= {"time": seconds(shared)} if parameters.get("time") == "end" else {}
    reply = send(shared, base, method, path, filled)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("application/json")
    body = reply.json()
    assert body["status"] == "success"
    check(shared, body["data"])


@pytest.mark.parametrize("base", ["/prometheus", ""])
def test_a_query_with_an_error_says_so_as_grafana_reads_it(shared, base):
    for method in BOTH:
        reply = send(shared, base, method, "query_range", {"query": "sum(", **span(shared), "step": "15"})
        assert reply.status == 400
        body = reply.json()
        assert (body["status"], body["errorType"]) == ("error", "bad_data")
        assert body["error"]


@pytest.mark.parametrize("base", ["/prometheus", ""])
def test_a_posted_search_for_values_is_refused_with_405(shared, base):
    """Grafana repeats a posted request with GET after the status 405."""
    assert send(shared, base, "POST", "label/job/values", {}).status == 405
