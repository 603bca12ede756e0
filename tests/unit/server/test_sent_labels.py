"""Tests of exporters' metrics through remote write and PromQL: the answer has the labels that were sent."""

import itertools
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.prometheus import HEADERS_1, request_1, snappy
from tests.support.serving import serving

from jobmeter.ingest.exporters import RULES
from jobmeter.ingest.exporters.resolve import resolve
from jobmeter.model.time import DAY, HOUR

_NUMBERS = itertools.count()
_WORD = st.text("abcXYZ019_-/. é", min_size=1, max_size=12)
_USUAL = {
    "job": st.sampled_from(["dcgm", "node-exporter", "kubernetes-cadvisor"]),
    "instance": st.sampled_from(["gpu-1:9400", "10.0.0.7:9100", "[2001:db8::1]:9100", "https://a.example:443/metrics"]),
    "node": st.sampled_from(["gpu-1", "gpu-2"]),
    "Hostname": st.just("gpu-1"),
    "gpu": st.sampled_from(["0", "3", "12"]),
    "device": st.sampled_from(["nvidia3", "eth0", "nvme0n1", "sda", "lo"]),
    "pod": st.sampled_from(["train-7-worker-1", "web-5d9c-abcde"]),
    "exported_pod": st.just("train-7-master-0"),
    "namespace": st.sampled_from(["lab", "prod"]),
    "container": st.sampled_from(["main", "POD", ""]),
    "exported_container": st.just("main"),
    "resource": st.sampled_from(["cpu", "memory", "pods"]),
    "cpu": st.sampled_from(["total", "0", "17"]),
    "mode": st.sampled_from(["idle", "user"]),
    "mountpoint": st.sampled_from(["/", "/data"]),
    "interface": st.sampled_from(["eth0", "lo"]),
    "job_id": st.just("0a1b"),
    "tm_id": st.just("tm-1"),
    "scrape_job": _WORD,
    "GPU_I_ID": st.sampled_from(["7", "9"]),
}
_LABELS = st.builds(
    lambda usual, other: {**other, **usual},
    st.fixed_dictionaries({}, optional=_USUAL),
    st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), _WORD, max_size=4),
)
_SERIES = st.tuples(st.sampled_from(sorted(RULES)), _LABELS, st.integers(0, 1))


def write(server, series, at=None):
    """Write values of series, each its name and labels."""
    time = server.clock.now_ms() if at is None else at
    rows = [([("__name__", name), *sorted(labels.items())], [(value, time)]) for name, labels, value in series]
    headers = {**HEADERS_1, "Authorization": f"Bearer {server.admin.token}"}
    reply = server.raw("POST", "/api/v1/write", snappy(request_1(rows)), headers)
    assert reply.status == 204, reply.body


def ask(server, query):
    """Return the labels and the value of each series of an instant query."""
    headers = {"Authorization": f"Bearer {server.admin.token}"}
    target = "/prometheus/api/v1/query?" + urlencode({"query": query, "time": server.clock.now_ms() / 1000})
    reply = server.raw("GET", target, headers=headers)
    assert reply.status == 200, reply.body
    return [(one["metric"], float(one["value"][1])) for one in reply.json()["data"]["result"]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("sent") / "data", rate_limits="*=1000000")
    yield made
    made.application.close()


@settings(max_examples=40)
@given(drawn=st.lists(_SERIES, min_size=1, max_size=6))
def test_any_labels_are_answered_as_they_were_sent(shared, drawn):
    run = str(next(_NUMBERS))
    # No machine of this example occurs in an earlier example.
    machines = {"Hostname": f"gpu-{run}", "instance": f"gpu-{run}:9400", "node": f"gpu-{run}"}
    named = [(name, {**labels, **machines, "run": run}, float(value)) for name, labels, value in drawn]
    by_series: dict[tuple[Any, str], list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in named:
        sent = {"__name__": name, **{label: text for label, text in labels.items() if text}}
        by_series.setdefault((resolve(list(sent.items()), "default").series, name), []).append((sent, value))
    write(shared, named)
    for name in {name for name, _, _ in named}:
        wanted = [some for (_, own), some in by_series.items() if own == name]
        found = ask(shared, f'{name}{{run="{run}"}}')
        assert len(found) == len(wanted)
        for some in wanted:
            # Several sent series that are one series here have the labels of one of them.
            assert sum(labels in [sent for sent, _ in some] for labels, _ in found) == 1
            if len(some) == 1 and len({one for one, _ in by_series}) == len(by_series):
                ((sent, value),) = some
                assert (sent, pytest.approx(value, rel=1e-9)) in found
    of_a_pattern = ask(shared, f'{{run="{run}"}}')
    assert sorted(labels["__name__"] for labels, _ in of_a_pattern) == sorted(name for _, name in by_series)


GPU = {"gpu": "3", "Hostname": "gpu-1", "UUID": "GPU-6a", "job": "dcgm", "instance": "gpu-1:9400"}


def test_labels_that_were_sent_last_are_answered(server):
    write(server, [("DCGM_FI_DEV_GPU_TEMP", GPU, 61.0)])
    assert ask(server, 'DCGM_FI_DEV_GPU_TEMP{job="dcgm",instance="gpu-1:9400"}') == [
        ({"__name__": "DCGM_FI_DEV_GPU_TEMP", **GPU}, 61.0)
    ]
    server.clock.time_ms += 60_000
    other = {**GPU, "job": "a-gpu"}
    write(server, [("DCGM_FI_DEV_GPU_TEMP", other, 62.0)])
    assert ask(server, 'DCGM_FI_DEV_GPU_TEMP{job="dcgm"}') == []
    assert ask(server, "DCGM_FI_DEV_GPU_TEMP") == [({"__name__": "DCGM_FI_DEV_GPU_TEMP", **other}, 62.0)]


def test_labels_are_answered_on_each_day(server):
    for _ in range(4):
        server.clock.time_ms += 17 * HOUR
        write(server, [("node_load1", {"instance": "a:9100", "job": "node"}, 1.5)])
        assert ask(server, 'node_load1{job="node",instance="a:9100"}')[0][1] == 1.5


def test_labels_of_a_metric_are_found_by_names_and_values(server):
    write(server, [("node_load1", {"instance": "a:9100", "job": "node"}, 1.5)])
    headers = {"Authorization": f"Bearer {server.admin.token}"}

    def get(path, **query):
        reply = server.raw("GET", f"/prometheus/api/v1/{path}?{urlencode(query)}", headers=headers)
        assert reply.status == 200, reply.body
        return reply.json()["data"]

    assert get("label/job/values") == ["node"]
    assert get("label/instance/values", **{"match[]": "node_load1"}) == ["a:9100"]
    assert {"instance", "job"} <= set(get("labels"))
    assert get("series", **{"match[]": '{job="node"}'}) == [
        {"__name__": "node_load1", "instance": "a:9100", "job": "node"}
    ]


def test_metrics_that_are_mapped_join_metrics_that_are_not(server):
    machine = {"instance": "a:9100", "job": "node"}
    write(server, [("node_memory_MemTotal_bytes", machine, 8e9), ("node_memory_Buffers_bytes", machine, 1e9)])
    assert ask(server, "node_memory_MemTotal_bytes - node_memory_Buffers_bytes") == [(machine, 7e9)]


def test_the_metrics_of_the_server_do_not_count_labels(server):
    write(server, [("node_load1", {"instance": "a:9100"}, 1.5)])
    metrics = server.raw("GET", "/metrics", headers={"Authorization": f"Bearer {server.admin.token}"}).body.decode()
    assert "jobmeter_ingest_samples_accepted_total 1.0" in metrics
    names = json.dumps(server.call("GET", "/names?part=metric").json())
    assert "special" not in names


def test_an_old_sample_has_its_labels(server):
    write(server, [("node_load1", {"instance": "a:9100", "job": "node"}, 1.5)], server.clock.now_ms() - 2 * DAY)
    server.clock.time_ms -= 2 * DAY
    assert ask(server, "node_load1")[0][0]["job"] == "node"
