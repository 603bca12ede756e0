"""Tests of adding a vendor: it takes the folder ``acme/`` and one line, which ``vendors`` adds to the registry.

Both vendors are on a node with GPUs of the fake NVML. Jobs are processes in a tree of files, the kubelet is a server.
"""

import ast
import os
import tempfile
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.nvml import FakeNvml
from tests.support.waiting import wait_until
from tests.unit.collect.accelerators.acme.vendor import CLASS, VENDOR
from tests.unit.collect.fake_kubelet import Kubelet, response
from tests.unit.collect.trees import plant, plant_process

from jobmeter.collect.accelerators import registry
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.checks import runner
from jobmeter.collect.checks.node import NodeChecks
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.doctor.base import SourceStatus, run_checks
from jobmeter.collect.doctor.devices import list_device_checks
from jobmeter.collect.machine import Machine
from jobmeter.collect.registry import JobCollectors, create_accelerator_collectors
from jobmeter.collect.scheduler.kubernetes.objects import Container, ContainerResources, PodRequests
from jobmeter.collect.worker import Worker
from jobmeter.model.job import AllocationSource
from jobmeter.model.pod import make_pod_job
from jobmeter.model.record import check_event, check_record
from jobmeter.model.task import CheckStatus, TaskCheck
from jobmeter.model.time import SystemClock
from jobmeter.testing.collector import NOW_MS, CollectorContract

UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
MOUNTS = "34 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n"
STEP = "/slurm_n1/uid_65534/job_{job}/step_0/task_0"


class Node:
    """Node with GPUs of NVIDIA and ``acme`` devices of Acme, and the agent's collectors on it."""

    def __init__(self, root: Path, driver: FakeNvml | None, acme: int, patience: float = 90.0, **more):
        self.root, self.acme = root, root / "sys" / CLASS
        plant(root, {"proc/self/mountinfo": MOUNTS, "proc/uptime": "1 1"})
        if driver:
            (root / "proc/driver/nvidia").mkdir(parents=True)
        if acme:
            (root / "proc/driver/acme").mkdir(parents=True)
            plant(root, {f"sys/{CLASS}/count": str(acme)})
        for at in range(acme):
            files = {"uuid": f"ACME-{at}", "minor": str(at), "power": f"{100 + at}", "errors": "0", "processes": ""}
            plant(root, {f"sys/{CLASS}/{at}/{name}": text for name, text in files.items()})
            plant(root, {f"dev/acme/card{at}": ""})
        self.machine = Machine(**{name: str(root / name) for name in ("proc", "sys", "dev", "run", "var")})
        proc = self.machine.proc
        self.table = ProcessTable(NodeClassifier("n1", proc), proc)
        self.accelerators = create_accelerator_collectors(
            NodeIdentity("n1", "c1"),
            self.table,
            SystemClock(),
            Hierarchies(proc, str(root)),
            DeviceNames(registry.VENDORS, self.machine),
            patience=patience,
            **more,
        )
        self.jobs = JobCollectors(self.table, None, self.accelerators)  # type: ignore[arg-type]
        self.now_ms = NOW_MS

    def task(self, pid, job, permitted="", **variables):
        """Add a Slurm task; ``permitted`` is its group's list of devices."""
        path = STEP.format(job=job)
        plant_process(
            self.root,
            pid,
            groups=f"5:devices:{path}\n4:memory:{path}\n",
            SLURM_JOB_ID=job,
            SLURM_PROCID="0",
            **variables,
        )
        plant(self.root, {f"sys/fs/cgroup/devices{path}/devices.list": permitted or "a *:* rwm\n"})

    def look(self):
        """Return the samples of a tick by metric, device and job."""
        self.table.refresh()
        self.now_ms += 10_000
        samples = [sample for one in self.accelerators for sample in one.collect(self.now_ms)]
        found = {(one.series.metric, one.series.device, one.series.job): one.value for one in samples}
        assert len(found) == len(samples), "no device has the name of another one"
        return found

    def powers(self):
        """Return the job of each device."""
        return {device: job for metric, device, job in self.look() if metric == "gpu.power"}

    def allocations(self):
        return {
            (job.job_id, a.device, a.source)
            for source in self.jobs.allocations
            for job in source.take_records(0).jobs
            for a in check_record(job).allocations
        }

    def events(self):
        events = [
            event
            for source in (*self.jobs.sources, *self.jobs.device_events)
            for event in source.take_records(0).events
        ]
        for event in events:
            check_event(event)
        return [(event.reason, event.subject, event.message) for event in events]


def doctor(node):
    """Return the doctor's rows about devices."""
    return run_checks(list_device_checks(node.machine), 60.0)


@pytest.fixture
def opened():
    """List the NVML libraries that the test has opened."""
    return []


@pytest.fixture
def vendors(monkeypatch, opened):
    """Register the additional vendor, and record when NVIDIA's driver is opened."""
    nvidia = registry.VENDORS[0]

    def open_nvidia(*arguments):
        opened.append(nvidia.open(*arguments))
        return opened[-1]

    monkeypatch.setattr(registry, "VENDORS", (replace(nvidia, open=open_nvidia), VENDOR))


@pytest.fixture
def root():
    """Yield a folder with a short path, because a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def two_gpus(make_driver, opened):
    """Yield the NVML of two GPUs, and close its library before the fake's files are removed."""
    driver = make_driver(2)
    driver.install()
    driver.readers.append(lambda: [library.close() for library in opened])
    return driver


@pytest.fixture
def node(vendors, root, two_gpus):
    return Node(root, two_gpus, 2)


@pytest.fixture
def hang(root):
    """Return a function that turns a driver file into a FIFO: reading it blocks until the test ends."""
    pipes = []

    def make(name: str, answer: str) -> None:
        path = root / "sys" / CLASS / name
        path.unlink()
        os.mkfifo(path)
        pipes.append((path, answer))

    yield make
    for path, answer in pipes:
        regular = path.with_name("answer")
        regular.write_text(answer)
        waiting = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        os.write(waiting, answer.encode())
        regular.replace(path)
        os.close(waiting)


@pytest.fixture
def no_wait(monkeypatch):
    """Expire the time of a hanging check as soon as the check of the previous vendor has returned."""
    seconds = chain([0.0, 0.0], repeat(60.0))  # at the start, and before the wait for each vendor
    monkeypatch.setattr(runner, "SystemClock", lambda: SimpleNamespace(monotonic=lambda: next(seconds)))


class TestAcme(CollectorContract):
    @pytest.fixture
    def collector(self, node):
        node.task(7, "21", ACME_VISIBLE="ACME-1")
        node.table.refresh()
        return node.accelerators[1]


def test_every_device_has_one_name_and_its_own_values(node):
    look = node.look()
    assert {device for _, device, _ in look} == {"gpu0", "gpu1", "acme0", "acme1"}
    assert look["gpu.power", "acme1", ""] == 101
    assert look["gpu.power", "gpu1", ""] != 101
    assert look["gpu.state", "acme0", ""] == look["gpu.state", "gpu0", ""] == 0
    assert ("gpu.ecc.uncorrected", "acme0", "") in look
    assert [(name, device.name) for name, device in node.jobs.find_devices().items()][2:] == [
        ("acme0", "Acme One"),
        ("acme1", "Acme One"),
    ]
    assert {planned.collector.name for planned in node.jobs.planned[1:]} == {"nvidia", "acme"}


def test_alone_on_a_node_its_devices_have_the_plain_names(vendors, root, make_driver):
    make_driver(0)
    assert set(Node(root, None, 2).powers()) == {"gpu0", "gpu1"}


@pytest.mark.parametrize(
    ("variables", "owned", "source"),
    [
        ({"ACME_VISIBLE": "ACME-1"}, {"acme1"}, AllocationSource.ENVIRONMENT),
        ({"ACME_VISIBLE": "0,1"}, {"acme0", "acme1"}, AllocationSource.ENVIRONMENT),
        ({"ACME_VISIBLE": "1", "CUDA_VISIBLE_DEVICES": "0"}, {"acme1", "gpu0"}, AllocationSource.ENVIRONMENT),
        ({"SLURM_JOB_GPUS": "1"}, {"gpu1"}, AllocationSource.ENVIRONMENT),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"gpu1"}, AllocationSource.ENVIRONMENT),
        ({"permitted": "c 240:1 rwm\n"}, {"acme1"}, AllocationSource.CGROUP),
        ({"permitted": "c 195:1 rwm\n"}, {"gpu1"}, AllocationSource.CGROUP),
    ],
)
def test_a_job_has_the_devices_that_its_environment_or_its_group_names(node, two_gpus, variables, owned, source):
    for number, device in enumerate(two_gpus.devices):
        device.set(minor=number)
    node.task(100, "21", **variables)
    assert {device for device, job in node.powers().items() if job == "21"} == owned
    assert node.allocations() == {("21", device, str(source)) for device in owned}


def test_a_process_on_a_device_makes_its_job_the_owner(node):
    node.task(100, "21")
    (node.acme / "0/processes").write_text("100 4096\n999 1\n")
    look = node.look()
    assert look["gpu.process.memory.usage", "acme0", "21"] == 4096
    assert look["gpu.processes", "acme0", ""] == 2
    assert look["gpu.processes.foreign", "acme0", ""] == 1
    assert node.allocations() == {("21", "acme0", "process")}


def test_a_prologs_file_with_a_number_means_the_device_of_the_plain_name(vendors, root, two_gpus):
    (root / "mapping").mkdir()
    node = Node(root, two_gpus, 2, job_mapping=root / "mapping")
    node.task(100, "21")
    node.task(200, "22")
    (root / "mapping/1").write_text("21")
    (root / "mapping/ACME-0").write_text("22")
    assert node.powers() == {"gpu0": "", "gpu1": "21", "acme0": "22", "acme1": ""}


def test_the_kubelet_gives_it_the_devices_of_its_resource(vendors, root, two_gpus):
    folder = root / "var/lib/kubelet/pod-resources"
    folder.mkdir(parents=True)
    (root / f"var/log/pods/ml_train-0_{UID}").mkdir(parents=True)
    kubelet = Kubelet(folder)
    try:
        two_gpus.devices[1].set(uuid="ACME-1")  # the UUID of another vendor's device
        kubelet.answer = response("ACME-1_3", resource="acme.example/gpu").SerializeToString()
        node = Node(root, two_gpus, 2)
        assert {device: job for device, job in node.powers().items() if job} == {"acme1": make_pod_job(UID)}
        assert node.allocations() == {(make_pod_job(UID), "acme1", "kubelet")}
    finally:
        kubelet.server.stop(0).wait()


@pytest.mark.parametrize(("resource", "count"), [("acme.example/gpu", 2), ("acme.example/half-gpu", 2), ("a/b", None)])
def test_its_resources_are_counted_in_the_requests_of_pods(vendors, resource, count):
    container = Container(resources=ContainerResources(requests={resource: "2"}))
    assert (PodRequests([container]).instance_type or {}).get("gpu_count") == count


def test_the_doctor_has_a_row_of_each_vendor(node):
    rows = {row.name: (row.status, row.text) for row in doctor(node)}
    assert list(rows) == ["nvidia", "acme"]
    assert rows["acme"] == (SourceStatus.OK, "2 GPUs (Acme One)")
    (node.root / "dev/acme/card2").touch()
    assert {row.name: row for row in doctor(node)}["acme"].text == "2 of 3 GPUs answer (Acme One)"


def test_the_doctor_on_a_machine_without_it(vendors, root, make_driver):
    make_driver(0)
    node = Node(root, None, 0)
    rows = {row.name: (row.status, row.text) for row in doctor(node)}
    assert rows["acme"] == (SourceStatus.ABSENT, "the machine has no Acme GPU")
    assert {status for status, _ in rows.values()} == {SourceStatus.ABSENT}


def test_checks_on_request(node):
    checks = NodeChecks(node.accelerators, lambda: 0.0)
    node.look()
    (node.acme / "1/errors").write_text("3")
    found = checks.make(["gpus"])
    assert [check.status for check in found] == [CheckStatus.OK] * 3 + [CheckStatus.CRITICAL]
    assert found[2:] == [
        TaskCheck("gpus", CheckStatus.OK, "acme0 (Acme One): answers, without errors", {"errors": 0.0}),
        TaskCheck("gpus", CheckStatus.CRITICAL, "acme1 (Acme One): 3 errors", {"errors": 3.0}),
    ]


def test_checks_of_a_node_without_devices_name_each_source(vendors, root, make_driver):
    make_driver(0)
    found = NodeChecks(Node(root, None, 0).accelerators, lambda: 0.0).make(["gpus"])
    assert [check.text for check in found] == ["NVML shows no GPU", "Acme's driver shows no GPU"]


def test_a_device_that_is_lost_is_an_event_with_the_vendors_words(node):
    node.look()
    (node.acme / "1").rename(node.acme / "gone")
    look = node.look()
    assert ("gpu.power", "acme1", "") not in look
    assert look["gpu.state", "acme1", ""] == 7
    text = "acme1, Acme One, cannot be read (it is gone). Turn it off and on again."
    assert node.events() == [("GpuLost", "device acme1", text)]


def test_a_device_that_hangs_holds_up_itself_alone(vendors, root, two_gpus, hang):
    node = Node(root, two_gpus, 2, patience=0.3)
    wait_until(lambda: node.powers().keys() == {"gpu0", "gpu1", "acme0", "acme1"}, "all answer")
    hang("1/power", "5")
    wait_until(lambda: node.powers().keys() == {"gpu0", "gpu1", "acme0"}, "the others go on")


def test_a_driver_that_hangs_holds_up_its_vendor_alone(node, hang, no_wait):
    node.look()
    hang("count", "2")
    nvidia, acme = (Worker(one, 0, SystemClock(), 0.5) for one in node.accelerators)
    assert acme.begin(NOW_MS)
    assert nvidia.begin(NOW_MS)
    clock = SystemClock()
    assert nvidia.finish(clock.monotonic() + 60).success
    assert not acme.finish(clock.monotonic()).success
    rows = {row.name: (row.status, row.text) for row in run_checks(list_device_checks(node.machine), 3.0)}
    assert rows["nvidia"] == (SourceStatus.OK, "2 GPUs (NVIDIA H200)")
    assert rows["acme"] == (SourceStatus.PROBLEM, "the check did not end within 3 s")


def test_a_check_that_hangs_holds_up_its_vendor_alone(node, hang, no_wait):
    node.look()
    hang("0/errors", "0")
    checks = NodeChecks(node.accelerators, lambda: 0.0, patience=3.0)
    found = checks.make(["gpus"])
    assert [(check.status, check.text[:24]) for check in found] == [
        (CheckStatus.OK, "gpu0 (NVIDIA H200): answ"),
        (CheckStatus.OK, "gpu1 (NVIDIA H200): answ"),
        (CheckStatus.WARNING, "the check did not end wi"),
    ]
    assert "still hangs" in checks.make(["gpus"])[-1].text


def test_a_driver_that_fails_is_a_row_and_takes_no_other_along(node):
    (node.acme / "count").write_text("many")
    rows = {row.name: row for row in doctor(node)}
    assert rows["nvidia"].status is SourceStatus.OK
    assert (rows["acme"].status, rows["acme"].text[:14]) == (SourceStatus.PROBLEM, "a check failed")


def test_the_unit_gives_access_to_the_devices_of_every_vendor():
    unit = (Path(__file__).parents[4] / "deploy/systemd/jobmeter-agent.service").read_text()
    allowed = {line.partition("=")[2].split()[0] for line in unit.splitlines() if line.startswith("DeviceAllow=")}
    assert allowed - {"/dev/kmsg"} == {name for vendor in registry.VENDORS for name in vendor.unit_devices}


VENDOR_WORDS = ("nvidia", "nvml", "cuda", "gpu-", "amdgpu", "rocr", "kfd")


def words_of(module):
    """Return the names and strings of a module's code, without its docstrings."""
    tree = ast.parse(module.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation and not text.startswith("https://"):
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass


def test_the_registry_alone_names_a_vendor():
    source = Path(registry.__file__).parents[2]
    folder = Path(registry.__file__).parent
    modules = [module for part in ("collect", "cli") for module in (source / part).rglob("*.py")]
    named = {
        module
        for module in modules
        if not {folder / "nvidia", folder / "amd"} & {*module.parents}
        and any(name in word.lower() for word in words_of(module) for name in VENDOR_WORDS)
    }
    assert named == {folder / "registry.py"}
