"""Tests of series in the names of the semantic conventions, and of our series for them."""

import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.otel import RULES
from jobmeter.ingest.otel.resolve import resolve
from jobmeter.ingest.rule import RuleTarget
from jobmeter.model.catalog import CATALOG, MetricScope
from jobmeter.model.series import Series
from jobmeter.wire.otlp.written import Described, WrittenKind

HOST = {"host.name": "gpu-1", "os.type": "linux", "host.arch": "amd64"}
POD = {
    "k8s.pod.name": "train-7-worker-1",
    "k8s.namespace.name": "lab",
    "k8s.container.name": "main",
    "k8s.node.name": "gpu-1",
    "host.name": "pod-host",
}
OF_POD = {"node": "gpu-1", "job": "train-7", "replica": "worker-1"}
SPLIT = {"namespace": "lab", "container": "main"}
SDK = {
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "opentelemetry",
    "process.runtime.name": "cpython",
    "process.command_line": "python train.py",
    "service.name": "trainer",
    "jobmeter.job.id": "train-7",
    "jobmeter.replica": "worker-1",
}


def resolved(name, resource, kind=WrittenKind.GAUGE, unit="", scope=("", "", {}), **attributes):
    described = Described(
        name, unit, kind, resource, scope, {key.replace("__", "."): value for key, value in attributes.items()}
    )
    return resolve(described, "lab")


def series(metric, labels=(), **parts):
    return Series(metric=metric, project="lab", labels=tuple(sorted(dict(labels).items())), **parts)


COUNTER = WrittenKind.COUNTER
CASES = [
    (
        ("system.cpu.time", HOST, COUNTER, {"cpu": "cpu0", "state": "idle"}),
        series("node.cpu.time", {"cpu": "0", "mode": "idle"}, node="gpu-1"),
    ),
    (
        ("system.cpu.time", HOST, COUNTER, {"cpu__logical_number": "12", "cpu__mode": "interrupt"}),
        series("node.cpu.time", {"cpu": "12", "mode": "irq"}, node="gpu-1"),
    ),
    (("system.cpu.logical.count", HOST, WrittenKind.GAUGE, {}), series("node.cpu.count", node="gpu-1")),
    (("system.cpu.load_average.1m", HOST, WrittenKind.GAUGE, {}), series("node.load1", node="gpu-1")),
    (("system.memory.limit", HOST, WrittenKind.GAUGE, {}), series("node.memory.total", node="gpu-1")),
    (
        ("system.memory.usage", HOST, WrittenKind.GAUGE, {"system__memory__state": "cached"}),
        series("node.memory.cached", node="gpu-1"),
    ),
    (
        ("system.memory.usage", HOST, WrittenKind.GAUGE, {"state": "slab_reclaimable"}),
        series("node.memory.slab", {"state": "slab_reclaimable"}, node="gpu-1"),
    ),
    (
        ("system.memory.usage", HOST, WrittenKind.GAUGE, {"state": "used"}),
        series("external.system.memory.usage", {"state": "used"}, node="gpu-1"),
    ),
    (
        ("system.disk.io", HOST, COUNTER, {"device": "nvme0n1", "direction": "write"}),
        series("node.disk.write", {"disk": "nvme0n1"}, node="gpu-1"),
    ),
    (
        ("system.disk.io", HOST, COUNTER, {"system__device": "nvme0n1p1", "disk__io__direction": "read"}),
        series("external.system.disk.io", {"system.device": "nvme0n1p1", "disk.io.direction": "read"}, node="gpu-1"),
    ),
    (
        ("system.network.io", HOST, COUNTER, {"network__interface__name": "eth0", "network__io__direction": "receive"}),
        series("node.network.receive", {"interface": "eth0"}, node="gpu-1"),
    ),
    (
        ("system.network.dropped", HOST, COUNTER, {"device": "eth0", "direction": "transmit"}),
        series("node.network.dropped", {"interface": "eth0", "direction": "transmit"}, node="gpu-1"),
    ),
    (
        (
            "system.filesystem.usage",
            HOST,
            WrittenKind.GAUGE,
            {"mountpoint": "/data", "state": "free", "device": "/dev/sda1"},
        ),
        series("node.filesystem.available", {"mount": "/data"}, node="gpu-1"),
    ),
    (
        ("system.paging.faults", HOST, COUNTER, {"type": "major"}),
        series("node.memory.major.faults", node="gpu-1"),
    ),
    (
        ("system.processes.count", HOST, WrittenKind.GAUGE, {"status": "blocked"}),
        series("node.processes.blocked", node="gpu-1"),
    ),
    # A gauge in place of a counter, and a series without a machine: both stay external.
    (
        ("system.cpu.time", HOST, WrittenKind.GAUGE, {"state": "idle"}),
        series("external.system.cpu.time", {"state": "idle"}, node="gpu-1"),
    ),
    (
        ("system.cpu.time", {}, COUNTER, {"state": "idle"}),
        series("external.system.cpu.time", {"state": "idle"}),
    ),
    (("container.cpu.time", POD, COUNTER, {}), series("cpu.time", SPLIT, **OF_POD)),
    (("container.memory.working_set", POD, WrittenKind.GAUGE, {}), series("memory.usage", SPLIT, **OF_POD)),
    (("k8s.container.memory_limit", POD, WrittenKind.GAUGE, {}), series("memory.limit", SPLIT, **OF_POD)),
    (
        ("k8s.pod.network.io", POD, COUNTER, {"interface": "eth0", "direction": "receive"}),
        series("network.receive", {"namespace": "lab", "interface": "eth0"}, **OF_POD),
    ),
    (
        ("container.memory.working_set", {**POD, "k8s.pod.name": "api-6c9f"}, WrittenKind.GAUGE, {}),
        series("memory.usage", {**SPLIT, "pod": "api-6c9f"}, node="gpu-1"),
    ),
    (
        (
            "container.memory.working_set",
            {**POD, "k8s.pod.name": "api-6c9f", "k8s.job.name": "api"},
            WrittenKind.GAUGE,
            {},
        ),
        series("memory.usage", SPLIT, node="gpu-1", job="api", replica="6c9f"),
    ),
    (
        ("container.cpu.time", {"host.name": "n", "container.id": "abc"}, COUNTER, {"cpu__mode": "user"}),
        series("cpu.time", {"container": "abc", "mode": "user"}, node="n"),
    ),
    (
        ("hw.gpu.utilization", HOST, WrittenKind.GAUGE, {"hw__id": "3"}),
        series("gpu.utilization", node="gpu-1", device="gpu3"),
    ),
    (
        ("hw.gpu.utilization", HOST, WrittenKind.GAUGE, {"hw__id": "nvidia_3", "hw__gpu__task": "decoder"}),
        series("gpu.decoder.utilization", node="gpu-1", device="gpu3"),
    ),
    (
        ("hw.gpu.memory.usage", {**HOST, **SDK}, WrittenKind.GAUGE, {"hw__id": "GPU-6a"}),
        series("gpu.memory.usage", node="gpu-1", device="GPU-6a", job="train-7", replica="worker-1"),
    ),
    (
        ("hw.power", HOST, WrittenKind.GAUGE, {"hw__id": "0", "hw__type": "gpu"}),
        series("gpu.power", node="gpu-1", device="gpu0"),
    ),
    (
        ("hw.power", HOST, WrittenKind.GAUGE, {"hw__id": "0", "hw__type": "fan"}),
        series("external.hw.power", {"hw.id": "0", "hw.type": "fan"}, node="gpu-1"),
    ),
    (
        ("hw.energy", HOST, COUNTER, {"hw__id": "0", "hw__type": "gpu"}),
        series("gpu.energy", node="gpu-1", device="gpu0"),
    ),
    (
        ("hw.temperature", HOST, WrittenKind.GAUGE, {"hw__id": "0", "hw__type": "gpu", "hw__sensor_location": "HBM"}),
        series("gpu.temperature.memory", {"sensor": "HBM"}, node="gpu-1", device="gpu0"),
    ),
    (
        ("hw.gpu.io", HOST, COUNTER, {"hw__id": "0", "network__io__direction": "receive"}),
        series("external.hw.gpu.io", {"hw.id": "0", "network.io.direction": "receive"}, node="gpu-1", device="gpu0"),
    ),
    (
        ("app.loss", SDK, WrittenKind.GAUGE, {"phase": "train"}),
        series("app.loss", {"phase": "train", "service.name": "trainer"}, job="train-7", replica="worker-1"),
    ),
    (
        (
            "http.server/active requests",
            SDK,
            WrittenKind.GAUGE,
            {"job": "x", "a/b": "1", "a b": "2", "1st": "y", ".z": "z"},
        ),
        series(
            "external.http.server_active_requests",
            {"attribute_job": "x", "a_b": "2;1", "key_1st": "y", "_z": "z", "service.name": "trainer"},
            job="train-7",
            replica="worker-1",
        ),
    ),
]


@pytest.mark.parametrize(
    ("sent", "expected"), CASES, ids=[f"{case[0][0]}-{number}" for number, case in enumerate(CASES)]
)
def test_a_series_of_the_conventions_is_what_the_catalogue_says(sent, expected):
    name, resource, kind, attributes = sent
    assert resolved(name, resource, kind, **attributes).series == expected


def test_every_rule_names_a_metric_of_the_same_subject():
    scopes = {
        RuleTarget.NODE: MetricScope.NODE,
        RuleTarget.POD: MetricScope.REPLICA,
        RuleTarget.GPU: MetricScope.DEVICE,
    }
    for rules in RULES.values():
        for rule in rules:
            assert CATALOG[rule.metric].scope is scopes[rule.subject]


def test_jobmeters_own_words_come_first_and_a_data_points_before_its_resources():
    found = resolved("app.x", {**POD, **SDK, "jobmeter.attempt": "2"}, jobmeter__replica="worker-9").series
    assert (found.job, found.replica, found.attempt, found.node) == ("train-7", "worker-9", 2, "gpu-1")
    assert not [name for name, _ in found.labels if name.startswith("jobmeter.")]


def test_a_replica_without_a_job_is_nobodys():
    found = resolved("app.x", {"jobmeter.replica": "worker-0", "jobmeter.attempt": "1"}).series
    assert (found.job, found.replica, found.attempt) == ("", "", 0)


@pytest.mark.parametrize(("unit", "name"), [("", "node.load1"), ("1", "node.load1"), ("s", "external.node.load1")])
def test_a_plain_number_may_have_the_unit_1(unit, name):
    assert resolved("node.load1", {"host.name": "n1"}, unit=unit).series.metric == name


@pytest.mark.parametrize(
    ("unit", "kind", "resource", "name"),
    [
        ("1", WrittenKind.GAUGE, {**HOST, "jobmeter.device": "gpu0"}, "gpu.utilization"),
        ("%", WrittenKind.GAUGE, {**HOST, "jobmeter.device": "gpu0"}, "external.gpu.utilization"),
        ("1", WrittenKind.COUNTER, {**HOST, "jobmeter.device": "gpu0"}, "external.gpu.utilization"),
        ("1", WrittenKind.GAUGE, HOST, "external.gpu.utilization"),
        ("1", WrittenKind.GAUGE, {**SDK, "jobmeter.device": "gpu0"}, "external.gpu.utilization"),
    ],
)
def test_the_catalogues_own_name_is_taken_with_its_unit_kind_and_owner(unit, kind, resource, name):
    found = resolved("gpu.utilization", resource, kind, unit)
    assert found.series.metric == name
    assert (found.lowest, found.highest) == ((0.0, 1.5) if name == "gpu.utilization" else (-float("inf"), float("inf")))


def test_the_scope_is_in_the_labels():
    found = resolved("x", {}, scope=("meter", "1.2", {"team": "a"})).series
    assert dict(found.labels) == {
        "otel_scope_name": "meter",
        "otel_scope_version": "1.2",
        "otel_scope_team": "a",
    }


def test_a_resource_says_which_one_it_is_and_a_name_that_both_have_is_distinguished():
    found = resolved("x", {"region": "a", "zone": "z"}, region="b", zone="z").series
    assert dict(found.labels) == {"region": "b", "resource_region": "a", "zone": "z"}


@pytest.mark.parametrize(
    ("name", "resource", "field"),
    [
        ("", {}, "metric"),
        ("x" * 250, {}, "metric"),
        ("x", {"long": "y" * 300}, "labels"),
        ("x", {f"a{at}": "b" for at in range(40)}, "labels"),
        ("x", {"jobmeter.job.id": "a/b"}, "job_id"),
        ("x", {"jobmeter.job.id": "a", "jobmeter.replica": "b c"}, "replica"),
        ("x", {"jobmeter.job.id": "a", "jobmeter.attempt": "-1"}, "labels"),
        ("x", {"jobmeter.device": "a b"}, "device"),
    ],
)
def test_what_has_no_form_here_is_refused(name, resource, field):
    with pytest.raises(InvalidRequestError) as error:
        resolved(name, resource)
    assert error.value.field == field


@pytest.mark.parametrize("name", ["a b", "", "x" * 200])
def test_a_machine_or_a_cluster_without_a_name_is_a_label(name):
    found = resolved("x", {"host.name": name, "k8s.cluster.name": name}).series
    assert (found.node, found.cluster) == ("", "")
    assert dict(found.labels).get("host.name", "") == name
