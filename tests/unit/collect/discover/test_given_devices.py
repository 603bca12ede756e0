"""Tests of allocated devices: from a prolog's files, from control groups of devices, and from both in conflict.

``CONTAINER`` was recorded from a container of podman 4.3.1 and runc, on Linux 6.18 with version 1, that was given
``/dev/nvidia2``. ``DENIED`` was recorded there from a group to which a device was denied, as Slurm's task/cgroup does
it.
"""

import pytest
from tests.unit.collect.gpus import nvidia_collector
from tests.unit.collect.trees import plant, plant_process

from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.disagree import HOLD
from jobmeter.collect.discover.permitted import DeviceGroups, parse_minors
from jobmeter.collect.discover.prolog import PrologAllocations
from jobmeter.collect.discover.rules import read_rules
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.model.job import AllocationSource
from jobmeter.model.record import check_event, check_record

GROUP = "/libpod_parent/libpod-8662537b770b90806633172f776b321b2943840c024b730b9622649846555c17"
CONTAINER = """\
b *:* m
c *:* m
c 1:3 rwm
c 1:5 rwm
c 1:7 rwm
c 1:8 rwm
c 1:9 rwm
c 5:0 rwm
c 5:2 rwm
c 10:200 rwm
c 136:* rwm
c 195:2 rwm
c 195:255 rwm
"""
DENIED = "a *:* rwm\n"
SLURM = "/slurm_n1/uid_65534/job_{job}/step_0/task_0"
MOUNTS = "34 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices\n"
RULES = '[[job]]\ncontainer = "*"\n'
NOW = 1_767_225_600_000


def allowing(*minors):
    return "c *:* m\nc 1:3 rwm\nc 195:255 rwm\n" + "".join(f"c 195:{minor} rwm\n" for minor in minors)


class Node:
    """Node of four GPUs over a tree of files: the agent's own classifier, table and GPU collector."""

    def __init__(self, root, driver):
        self.root = root
        self.files = root / "mapping"
        plant(root, {"proc/self/mountinfo": MOUNTS})
        proc = str(root / "proc")
        self.table = ProcessTable(NodeClassifier("n1", proc), proc)
        self.devices = driver.devices
        for i, device in enumerate(self.devices):
            device.set(uuid=f"GPU-{i}aaa-bbbb", minor=3 - i)
        self.nvml = PynvmlLibrary(proc_root=proc)
        driver.readers.append(self.nvml.close)
        self.now_ms = NOW
        self.allocated = [PrologAllocations(self.files, self.list_members)]
        self.collector = nvidia_collector(
            self.nvml,
            self,
            allocated=self.allocated,
            groups=DeviceGroups(Hierarchies(proc, str(root)), lambda: VENDOR.device_numbers),
        )

    def list_members(self):
        return self.table.list_members()

    def list_ended(self):
        return self.table.list_ended()

    def find_member(self, pid):
        return self.table.find_member(pid)

    def task(self, pid, job, permitted="", **variables):
        """Add a Slurm task; ``permitted`` is its group's list of devices."""
        path = SLURM.format(job=job)
        groups = f"5:devices:{path}\n4:memory:{path}\n"
        plant_process(self.root, pid, groups=groups, **({"SLURM_JOB_ID": job, "SLURM_PROCID": "0"} | variables))
        if permitted:
            plant(self.root, {f"sys/fs/cgroup/devices{path}/devices.list": permitted})

    def give(self, **files):
        self.files.mkdir(exist_ok=True)
        for name, text in files.items():
            (self.files / name.removeprefix("_").replace("__", ".")).write_text(text)

    def look(self):
        """Collect. Return (job, device, source) of the allocations that are open now."""
        self.table.refresh()
        self.now_ms += 10_000
        self.collector.collect(self.now_ms)
        return {
            (job.job_id, a.device, a.source)
            for job in self.collector.allocations.take_records(0).jobs
            for a in check_record(job).allocations
            if a.end is None
        }

    def messages(self):
        for _ in range(HOLD):
            self.look()
        events = self.collector.disagreements.take_records(0).events
        for event in events:
            check_event(event)
        return sorted((event.job, event.subject, event.message) for event in events)


@pytest.fixture
def driver(make_driver):
    made = make_driver(4)
    made.install()
    return made


@pytest.fixture
def node(tmp_path, driver):
    return Node(tmp_path, driver)


@pytest.mark.parametrize(
    ("text", "minors"),
    [
        (CONTAINER, {2}),
        (DENIED, None),
        ("c 195:0 rw\nc 195:1 r\nc 195:4 w\n", {0}),
        ("c 195:* rwm\n", set(range(254))),
        ("c *:* rwm\n", None),
        ("b 195:3 rwm\n", set()),
        ("", set()),
        ("c 195:x rwm\n", set()),
    ],
)
def test_devices_allowed_by_a_list(text, minors):
    assert parse_minors(text, VENDOR.device_numbers) == minors


def test_an_idle_device_that_a_control_group_permits_is_its_jobs(node):
    node.task(100, "21", allowing(2, 255))  # the file /dev/nvidia2 is NVML's device 1 here
    node.task(200, "22", DENIED)
    node.task(300, "23")
    assert node.look() == {("21", "gpu1", "cgroup")}
    assert node.messages() == []


def test_a_container_has_the_device_that_it_was_started_with(node, tmp_path):
    proc = str(tmp_path / "proc")
    (tmp_path / "rules.toml").write_text(RULES)
    rules = read_rules(tmp_path / "rules.toml")
    node.table = ProcessTable(NodeClassifier("n1", proc, rules=rules), proc)
    plant_process(tmp_path, 100, groups=f"5:devices:{GROUP}\n4:memory:{GROUP}\n", CUDA_VISIBLE_DEVICES="0")
    plant(tmp_path, {f"sys/fs/cgroup/devices{GROUP}/devices.list": CONTAINER})
    assert {(device, source) for _, device, source in node.look()} == {("gpu1", "cgroup")}


def test_the_numbers_of_cuda_count_from_the_first_device_that_a_group_permits(node):
    node.task(100, "21", allowing(0, 1), CUDA_VISIBLE_DEVICES="1", SLURM_PROCID="0")
    assert ("21", "gpu3", "cgroup") in node.look()


def test_devices_that_a_job_was_permitted_and_never_names_stay_its_own(node):
    node.task(100, "21", allowing(0, 1, 2), CUDA_VISIBLE_DEVICES="0")
    assert node.look() == {("21", f"gpu{i}", "cgroup") for i in (1, 2, 3)}


def test_a_group_that_permits_every_device_leaves_the_word_to_the_environment(node):
    node.task(100, "21", allowing(0, 1, 2, 3), CUDA_VISIBLE_DEVICES="2")
    node.task(200, "22", allowing(0, 1, 2, 3), CUDA_VISIBLE_DEVICES="0")
    assert node.look() == {("21", "gpu2", "cgroup"), ("22", "gpu0", "cgroup")}


def test_users_of_a_device_come_before_permitted_groups(node):
    node.task(100, "21", allowing(2))
    node.task(200, "22")
    node.devices[1].run((200, 1))
    assert node.look() == {("22", "gpu1", "process")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("1", "21\n"),
        ("1", "21 65534\n"),  # as jobstats writes it
        ("1.2", "21"),
        ("GPU-1aaa-bbbb", "\n21 7\n\n"),
    ],
)
def test_a_prologs_file_says_whose_a_device_is(node, name, text):
    node.task(100, "21", SLURM_JOB_GPUS="1,2")
    node.give(**{name: text, "7": "21", "notes.txt": "21", "GPU-9": "21", "0": "", "3": "99\n"})
    (node.files / "2").mkdir()
    assert node.look() == {("21", "gpu1", "prolog"), ("21", "gpu2", "environment")}


@pytest.mark.parametrize(("name", "job"), [("21", "21"), ("21@alpha", "21"), ("21@beta", "21@beta")])
def test_a_prologs_file_may_name_the_cluster_of_a_job(node, name, job):
    node.task(100, "21", SLURM_CLUSTER_NAME="alpha")
    node.task(200, "21", SLURM_CLUSTER_NAME="beta")
    node.give(_0=name)
    assert node.look() == {(job, "gpu0", "prolog")}


def test_the_file_of_a_job_without_a_process_here_says_nothing(node):
    node.give(_0="21\n")
    assert node.look() == set()
    node.task(100, "21")
    assert node.look() == {("21", "gpu0", "prolog")}


def test_an_interval_by_the_prolog_ends_with_its_file(node):
    node.task(100, "21")
    node.give(_0="21")
    node.look()
    (node.files / "0").unlink()
    node.table.refresh()
    node.collector.collect(node.now_ms + 5)
    ((job),) = node.collector.allocations.take_records(0).jobs
    ((allocation),) = job.allocations
    assert (allocation.end, allocation.source) == (node.now_ms + 5, "prolog")


def test_several_jobs_of_a_file_share_the_device(node):
    node.task(100, "21")
    node.task(200, "22")
    node.give(_0="21\n22\n")
    assert node.look() == {("21", "gpu0", "prolog"), ("22", "gpu0", "prolog")}
    assert node.messages() == []


def test_a_folder_that_is_not_there_is_written_once(node, caplog):
    node.task(100, "21", SLURM_JOB_GPUS="1")
    for _ in range(3):
        node.look()
    assert len([one for one in caplog.messages if "cannot be read" in one]) == 1


def test_the_sources_in_the_order_of_trust():
    words = [str(source) for source in AllocationSource]
    assert words.index("process") < words.index("prolog") < words.index("cgroup") < words.index("environment")


def test_a_process_on_a_device_that_the_prolog_gave_to_another(node):
    node.task(100, "21")
    node.task(200, "22")
    node.give(_0="21")
    node.devices[0].run((200, 1))
    message = "It computes on gpu0, which the prolog gave to worker-0 of 21."
    assert node.messages() == [("22", "device gpu0", message)]


def test_a_process_on_a_device_that_its_group_does_not_permit(node):
    node.task(100, "21", allowing(3))
    node.devices[2].run((100, 1))
    message = "It computes on gpu2, but its control group lets it open gpu0."
    assert node.messages() == [("21", "device gpu2", message)]


def test_an_idle_device_on_which_two_sources_disagree(node):
    node.task(100, "21", allowing(3), SLURM_JOB_GPUS="0,1")
    node.task(200, "22", SLURM_STEP_GPUS="2")
    node.task(300, "23")
    node.give(_2="23")
    assert node.messages() == [
        ("21", "device gpu1", "SLURM_JOB_GPUS gives it gpu1, but its control group lets it open gpu0."),
        ("22", "device gpu2", "SLURM_STEP_GPUS gives it gpu2, which the prolog gave to worker-0 of 23."),
    ]


class Kubelet:
    source = AllocationSource.KUBELET

    def find_owners(self, devices, now_ms):
        return {0: [Owner("pod-1", "worker-0")]}


def test_two_that_give_devices_and_name_different_jobs(node):
    node.task(100, "21")
    node.give(_0="21")
    node.allocated.insert(0, Kubelet())
    message = "The prolog gave it gpu0, which the kubelet gave to worker-0 of pod-1."
    assert node.messages() == [("21", "device gpu0", message)]
