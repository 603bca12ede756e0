"""Tests of series of well-known exporters, written as in their documentation, and of our series for them."""

import re
from collections import Counter

import numpy as np
import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters import RULES
from jobmeter.ingest.exporters.label_resolver import LabelResolver
from jobmeter.ingest.exporters.resolve import find_owner, resolve
from jobmeter.model.catalog import CATALOG, Kind, MetricScope
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import DAY

_TEXT = re.compile(r'(\w+)="([^"]*)"')


def resolved(text):
    """Return the resolved series of a line in the text format."""
    name, _, labels = text.rstrip("}").partition("{")
    return resolve([("__name__", name), *_TEXT.findall(labels)], "lab")


def series(metric, **parts):
    labels = parts.pop("labels", {})
    return Series(metric=metric, project="lab", labels=tuple(sorted(labels.items())), **parts)


POD = 'namespace="lab",pod="train-7-worker-1",container="main",node="gpu-1",instance="10.0.0.7:10250"'
OF_POD = {"node": "gpu-1", "job": "train-7", "replica": "worker-1"}
SPLIT = {"namespace": "lab", "container": "main"}
GPU = 'gpu="3",UUID="GPU-6a",device="nvidia3",modelName="H100",Hostname="gpu-1",instance="10.0.0.7:9400"'

CASES = {
    'node_cpu_seconds_total{cpu="0",mode="idle",instance="a.example:9100",job="node"}': (
        series("node.cpu.time", node="a.example", labels={"cpu": "0", "mode": "idle"}),
        1.0,
    ),
    'node_memory_MemTotal_bytes{instance="10.0.0.7:9100"}': (series("node.memory.total", node="10.0.0.7"), 1.0),
    'node_load1{instance="[2001:db8::1]:9100"}': (series("node.load1", node="2001:db8::1"), 1.0),
    'node_load1{instance="https://a.example:9100/metrics"}': (series("node.load1", node="a.example"), 1.0),
    'node_network_receive_bytes_total{device="eth0",instance="a:9100"}': (
        series("node.network.receive", node="a", labels={"interface": "eth0"}),
        1.0,
    ),
    'node_network_transmit_drop_total{device="ens1f0",instance="a:9100"}': (
        series("node.network.dropped", node="a", labels={"interface": "ens1f0", "direction": "transmit"}),
        1.0,
    ),
    'node_network_receive_bytes_total{device="veth12",instance="a:9100"}': (
        series(
            "external.node_network_receive_bytes_total",
            node="a",
            labels={"device": "veth12", "instance": "a:9100"},
        ),
        1.0,
    ),
    'node_disk_read_bytes_total{device="nvme0n1",instance="a:9100"}': (
        series("node.disk.read", node="a", labels={"disk": "nvme0n1"}),
        1.0,
    ),
    'node_disk_read_bytes_total{device="dm-0",instance="a:9100"}': (
        series("external.node_disk_read_bytes_total", node="a", labels={"device": "dm-0", "instance": "a:9100"}),
        1.0,
    ),
    'node_filesystem_avail_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/data",instance="a:9100"}': (
        series("node.filesystem.available", node="a", labels={"mount": "/data"}),
        1.0,
    ),
    f'container_cpu_usage_seconds_total{{cpu="total",id="/kubepods/x",image="i",name="n",{POD}}}': (
        series("cpu.time", **OF_POD, labels=SPLIT),
        1.0,
    ),
    'slurm_job_core_usage_total{core="3",slurmjobid="4711",user="lin",account="a",instance="n1:9798",job="slurm"}': (
        series("cpu.time", node="n1", job="4711", replica="n1", labels={"core": "3"}),
        1e-9,
    ),
    'slurm_job_power_gpu{gpu="1",gpu_type="H100",slurmjobid="4711",user="lin",instance="n1:9798"}': (
        series("gpu.power", node="n1", job="4711", replica="n1", device="gpu1"),
        1e-3,
    ),
    'slurm_job_power_gpu{gpu="MIG-0a",slurmjobid="4711",instance="n1:9798"}': (
        series(
            "external.slurm_job_power_gpu",
            node="n1",
            labels={"gpu": "MIG-0a", "slurmjobid": "4711", "instance": "n1:9798"},
        ),
        1.0,
    ),
    f"container_memory_working_set_bytes{{{POD}}}": (series("memory.usage", **OF_POD, labels=SPLIT), 1.0),
    'container_network_receive_bytes_total{interface="eth0",namespace="lab",pod="train-7-worker-1",node="gpu-1"}': (
        series("network.receive", **OF_POD, labels={"interface": "eth0", "namespace": "lab"}),
        1.0,
    ),
    'container_memory_working_set_bytes{container="web",namespace="x",pod="web-5d9c-abcde",instance="n:10250"}': (
        series("memory.usage", node="n", labels={"container": "web", "namespace": "x", "pod": "web-5d9c-abcde"}),
        1.0,
    ),
    f"DCGM_FI_DEV_GPU_UTIL{{{GPU}}}": (series("gpu.utilization", node="gpu-1", device="gpu3"), 0.01),
    f'DCGM_FI_DEV_FB_USED{{{GPU},exported_pod="train-7-master-0",pod="dcgm-x2x9k",exported_namespace="lab"}}': (
        series("gpu.memory.usage", node="gpu-1", device="gpu3", job="train-7", replica="master-0"),
        2.0**20,
    ),
    f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{GPU}}}": (series("gpu.energy", node="gpu-1", device="gpu3"), 1e-3),
    f'DCGM_FI_PROF_SM_ACTIVE{{{GPU},GPU_I_ID="7",GPU_I_PROFILE="1g.10gb"}}': (
        series("gpu.sm.active", node="gpu-1", device="gpu3", labels={"instance": "7"}),
        1.0,
    ),
    f'kube_pod_container_resource_limits{{resource="memory",unit="byte",uid="u",{POD}}}': (
        series("memory.limit", **OF_POD, labels=SPLIT),
        1.0,
    ),
    'kube_node_status_capacity{node="gpu-1",resource="cpu",unit="core",instance="10.1.1.1:8080"}': (
        series("node.cpu.count", node="gpu-1"),
        1.0,
    ),
    'flink_jobmanager_job_lastCheckpointDuration{host="jm",job_id="0a1b",job_name="clicks"}': (
        series("flink.lastCheckpointDuration", node="jm", job="0a1b", replica="jobmanager"),
        1.0,
    ),
    # A reporter that is configured to omit the id.
    'flink_jobmanager_job_lastCheckpointSize{host="jm",job_name="clicks"}': (
        series("flink.lastCheckpointSize", node="jm", job="clicks", replica="jobmanager"),
        1.0,
    ),
    'flink_taskmanager_job_task_numRecordsInPerSecond{host="tm",job_id="0a1b",job_name="a / b",subtask_index="2",'
    'task_name="map",tm_id="tm_1:35005_a1"}': (
        series(
            "flink.numRecordsInPerSecond.rate",
            node="tm",
            job="0a1b",
            replica="tm_1:35005_a1",
            labels={"task": "map", "subtask": "2"},
        ),
        1.0,
    ),
    'http_requests_total{code="200",empty="",instance="api.example:8080",job="api"}': (
        series(
            "external.http_requests_total",
            node="api.example",
            labels={"code": "200", "instance": "api.example:8080", "scrape_job": "api"},
        ),
        1.0,
    ),
    "node_load1{}": (series("external.node_load1"), 1.0),
    'pod_m{pod="train-7-worker-3"}': (
        series("external.pod_m", job="train-7", replica="worker-3", labels={"pod": "train-7-worker-3"}),
        1.0,
    ),
    'http_requests_total{exported_pod="train-7-worker-3",instance="10.244.0.9:8000",node="gpu-1",pod="prom-0"}': (
        series(
            "external.http_requests_total",
            node="gpu-1",
            job="train-7",
            replica="worker-3",
            labels={
                "exported_pod": "train-7-worker-3",
                "instance": "10.244.0.9:8000",
                "node": "gpu-1",
                "pod": "prom-0",
            },
        ),
        1.0,
    ),
    'steps_total{instance="10.244.0.9:8000",job_name="sweep",pod="sweep-4-x2x9k"}': (
        series(
            "external.steps_total",
            job="sweep",
            replica="worker-4",
            labels={"instance": "10.244.0.9:8000", "job_name": "sweep", "pod": "sweep-4-x2x9k"},
        ),
        1.0,
    ),
    'pod_m{instance="10.244.0.9:8000",pod="web-5d9c-abcde"}': (
        series("external.pod_m", node="10.244.0.9", labels={"instance": "10.244.0.9:8000", "pod": "web-5d9c-abcde"}),
        1.0,
    ),
    'flink_taskmanager_job_task_isBackPressured{host="tm",job_name="clicks",tm_id="tm_1"}': (
        series(
            "external.flink_taskmanager_job_task_isBackPressured",
            node="tm",
            job="clicks",
            replica="tm_1",
            labels={"host": "tm", "job_name": "clicks", "tm_id": "tm_1"},
        ),
        1.0,
    ),
    'flink_jobmanager_numRegisteredTaskManagers{host="jm",instance="jm:9249"}': (
        series(
            "external.flink_jobmanager_numRegisteredTaskManagers",
            node="jm",
            labels={"host": "jm", "instance": "jm:9249"},
        ),
        1.0,
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_labels_resolve_to_a_series(text):
    expected, factor = CASES[text]
    found = resolved(text)
    assert found.series == expected
    assert found.factor == factor


@pytest.mark.parametrize(
    ("pod", "label", "owner"),
    [
        ("train-7-worker-3", "", ("train-7", "worker-3")),
        ("train-7-master-0", "train-7", ("train-7", "master-0")),
        ("a-worker-1-launcher-0", "", ("a-worker-1", "launcher-0")),
        ("sweep-4-x2x9k", "sweep", ("sweep", "worker-4")),
        ("sweep-x2x9k", "sweep", ("sweep", "x2x9k")),
        ("other-worker-0", "mine", ("mine", "other-worker-0")),
        ("web-5d9c-abcde", "", ("", "")),
        ("worker-0", "", ("", "")),
    ],
)
def test_a_pod_is_a_replica_of_its_job(pod, label, owner):
    assert find_owner(pod, label) == owner


def test_what_was_mapped_is_in_the_catalogue_and_of_the_same_kind():
    for name, rules in RULES.items():
        for rule in rules:
            metric = CATALOG[rule.metric]
            counter = name.endswith(("_total", "ENERGY_CONSUMPTION", "ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL"))
            if counter:
                assert metric.kind is Kind.COUNTER, name
            if name.startswith("node_"):
                assert metric.scope is MetricScope.NODE
            if name.startswith("DCGM_"):
                assert metric.scope is MetricScope.DEVICE


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ([("a", "b")], "metric"),
        ([("__name__", "")], "metric"),
        ([("__name__", "a b")], "metric"),
        ([("__name__", "up"), ("a", "1"), ("a", "2")], "labels"),
        ([("__name__", "up"), ("bad-name", "1")], "labels"),
        ([("__name__", "up"), ("a", "x" * 257)], "labels"),
        ([("__name__", "up"), ("a", "line\nbreak")], "labels"),
        ([("__name__", "up"), *((f"l{at}", "1") for at in range(33))], "labels"),
    ],
)
def test_what_the_model_has_no_form_for_is_refused(labels, field):
    with pytest.raises(InvalidRequestError) as refusal:
        resolve(labels, "lab")
    assert refusal.value.field == field


T = 1_795_237_605_000


def batch(resolver, sent, project="lab"):
    """Return the batch and the refusals of (labels, value, time) rows, one series each, and the reads of labels."""
    read: Counter[int] = Counter()
    keys = [repr(labels).encode() for labels, _, _ in sent]

    def labels(at):
        read[at] += 1
        return sent[at][0]

    columns = (
        np.arange(len(sent), dtype=np.uint32),
        np.array([time for _, _, time in sent], np.int64),
        np.array([value for _, value, _ in sent], np.float64),
    )
    found = resolver.resolve_batch((project, "1"), keys, labels, columns)
    return found.batch, found.refused, read


GPU_LABELS = [("__name__", "DCGM_FI_DEV_GPU_UTIL"), ("gpu", "0"), ("Hostname", "n")]
UP = [("__name__", "up"), ("instance", "n:1")]


def test_percent_are_ratios_without_noise_and_labels_are_read_once():
    resolver = LabelResolver()
    found, refused, read = batch(resolver, [(GPU_LABELS, 57.0, T), (UP, 1 / 3, T)])
    assert found.value.tolist() == [0.57, 1 / 3]
    assert [one.metric for one in found.series] == ["gpu.utilization", "external.up"]
    assert (refused, read.total()) == ({}, 2)
    again, _, read = batch(resolver, [(UP, 0.5, T), (GPU_LABELS, 29.0, T)])
    assert [one.metric for one in again.series] == ["external.up", "gpu.utilization"]
    assert (again.value.tolist(), read.total()) == ([0.5, 0.29], 0)


def test_what_cannot_be_stored_is_counted_and_the_rest_is_stored():
    rows = [
        (UP, 1.0, T),
        ([("a", "b")], 1.0, T),
        ([("__name__", "up"), ("bad-name", "x")], 1.0, T),
        (UP, 1.0, -1),
        (UP, 1.0, 2**62),
        (GPU_LABELS, -1.0, T),
        (GPU_LABELS, 5000.0, T),
    ]
    found, refused, _ = batch(LabelResolver(), rows)
    assert (len(found), len(found.series)) == (1, 1)
    assert refused == {"name": 1, "labels": 1, "time": 2, "value": 2}


@pytest.mark.parametrize(
    ("name", "labels", "values", "stored", "refused"),
    [
        (
            "node_network_speed_bytes",
            {"device": "eth0", "instance": "n:9100"},
            (-125000.0, -0.125, 0.0, 1.25e9),
            [0.0, 1.25e9],
            {"absent": 2},
        ),
        # A bridge has a separate name and no bounds.
        ("node_network_speed_bytes", {"device": "docker0", "instance": "n:9100"}, (-125000.0,), [-125000.0], {}),
        ("DCGM_FI_DEV_POWER_USAGE", {"gpu": "0", "Hostname": "n"}, (2.0**47, 700.0), [700.0], {"absent": 1}),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            {"gpu": "0", "Hostname": "n"},
            (2.0**63 - 16, -1.0, 100.0, 5000.0),
            [1.0],
            {"absent": 1, "value": 2},
        ),
        (
            "slurm_job_memory_limit",
            {"slurmjobid": "7", "instance": "n:1"},
            (2.0**63, 2.0**40),
            [2.0**40],
            {"absent": 1},
        ),
        ("flink_jobmanager_job_lastCheckpointSize", {"job_name": "j"}, (-1.0, 7.0), [7.0], {"absent": 1}),
        ("flink_taskmanager_job_task_operator_watermarkLatency", {"job_name": "j"}, (-1.0,), [-1.0], {}),
        ("node_memory_MemFree_bytes", {"instance": "n:9100"}, (-1.0, 1.0), [1.0], {"value": 1}),
    ],
)
def test_values_for_no_measurement_are_absent_and_others_out_of_bounds_are_errors(
    name, labels, values, stored, refused
):
    rows = [([("__name__", name), *labels.items()], value, T + at) for at, value in enumerate(values)]
    found, counted, _ = batch(LabelResolver(), rows)
    assert (found.value.tolist(), counted) == (stored, refused)


def test_projects_do_not_meet():
    resolver = LabelResolver()
    one, _, _ = batch(resolver, [(UP, 1.0, T)], "one")
    two, _, _ = batch(resolver, [(UP, 1.0, T)], "two")
    assert [series.project for series in (*one.series, *two.series)] == ["one", "two"]


def test_series_that_are_the_same_here_are_listed_once():
    other = [*GPU_LABELS, ("UUID", "GPU-1")]
    found, _, _ = batch(LabelResolver(), [(GPU_LABELS, 1.0, T), (other, 2.0, T)])
    assert (len(found.series), found.index.tolist()) == (1, [0, 0])


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.exporters.label_resolver._MOST", 2)
    resolver = LabelResolver()
    batch(resolver, [([("__name__", "m00")], 1.0, T)])
    size_of_one = resolver.size
    for at in range(20):
        found, _, _ = batch(resolver, [([("__name__", f"m{at:02}")], 1.0, T)])
        assert found.series[0].metric == f"external.m{at:02}"
    assert 0 < resolver.size <= 3 * size_of_one


def test_long_keys_are_bounded_by_their_bytes_whether_they_are_stored_or_not(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.exporters.label_resolver._MOST_BYTES", 10_000)
    resolver = LabelResolver()
    for at in range(40):
        _, refused, _ = batch(resolver, [([("__name__", f"m{at}"), ("a", "x" * 1_000)], 1.0, T)], f"p{at % 3}")
        assert refused == {"labels": 1}
        assert resolver.size <= 10_000 + 2_000


def test_lists_of_keys_are_recognised_again_as_a_whole_and_bounded(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.exporters.label_resolver._MOST_LISTED", 10)
    resolver = LabelResolver()
    rows = [(UP, 1.0, T), (GPU_LABELS, 50.0, T), ([("a", "b")], 1.0, T)]
    first, refused, _ = batch(resolver, rows[:2])
    again, _, _ = batch(resolver, rows[:2])
    assert again.series is first.series
    with_one_refused, refused, _ = batch(resolver, rows)
    assert (list(with_one_refused.series), refused) == (list(first.series), {"name": 1})
    turned, _, _ = batch(resolver, rows[1::-1])
    assert [one.metric for one in turned.series] == ["gpu.utilization", "external.up"]
    for at in range(20):
        batch(resolver, [([("__name__", f"m{at}")], 1.0, T)])
    after, _, _ = batch(resolver, rows[:2])
    assert after.series is not first.series, "the list was forgotten"
    assert (list(after.series), after.value.tolist()) == (list(first.series), first.value.tolist())


def test_a_series_without_a_sample_is_left_out():
    resolver = LabelResolver()
    batch(resolver, [(UP, 1.0, T), (GPU_LABELS, 50.0, T)])
    found, refused, _ = batch(resolver, [(UP, 1.0, T), (GPU_LABELS, -50.0, T)])
    assert ([one.metric for one in found.series], found.index.tolist(), refused) == (["external.up"], [0], {"value": 1})


def test_the_unit_is_that_of_the_labels_even_where_two_mean_the_same_series():
    percent = [("__name__", "DCGM_FI_DEV_GPU_UTIL"), ("gpu", "0"), ("Hostname", "n")]
    found, _, _ = batch(LabelResolver(), [(percent, 50.0, T), ([*percent, ("UUID", "x")], 25.0, T + 1)])
    assert (len(found.series), found.value.tolist()) == (1, [0.5, 0.25])


def test_labels_are_resolved_again_after_a_new_generation_of_the_table():
    resolver = LabelResolver(SeriesTable(4))
    first, _, _ = batch(resolver, [(UP, 1.0, T), (GPU_LABELS, 50.0, T)])
    batch(resolver, [([("__name__", f"m{at}")], 1.0, T) for at in range(3)])
    again, _, _ = batch(resolver, [(UP, 1.0, T), (GPU_LABELS, 50.0, T)])
    assert again.series is not first.series
    assert list(again.series) == list(first.series)


def test_many_series_stay_apart():
    rows = [([("__name__", f"m{at}")], float(at), T) for at in range(5000)]
    found, _, _ = batch(LabelResolver(), rows)
    assert [found.series[index].metric for index in found.index.tolist()] == [f"external.m{at}" for at in range(5000)]
    assert found.value.tolist() == [float(at) for at in range(5000)]


def test_sent_labels_are_given_until_they_are_confirmed_and_again_on_the_next_day():
    resolver, now = LabelResolver(), 20_000 * DAY + 5

    def given(now_ms):
        keys, rows = [b"gpu", b"up"], [GPU_LABELS, UP]
        columns = np.arange(2, dtype=np.uint32), np.array([T, T], np.int64), np.array([57.0, 1.0])
        return resolver.resolve_batch(("lab", "1"), keys, rows.__getitem__, columns, now_ms).sent

    assert given(now) is not None  # the write of its series failed
    sent = given(now)
    if sent is not None:
        assert [one.metric for one in sent.batch.series] == ["special.external.DCGM_FI_DEV_GPU_UTIL"]
        assert sent.batch.time.tolist() == [now]
        sent.confirm()
    assert given(now + DAY - 6) is None
    assert given(now + DAY) is not None
    assert given(None) is None
