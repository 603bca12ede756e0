"""Tests of the records for the server: jobs, replicas, and the node with its devices."""

from tests.unit.collect.gpus import Gpu
from tests.unit.collect.trees import HOST, V1_STEP, end_process, plant, plant_process

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.report import JobReporter, NodeReporter
from jobmeter.collect.discover.rules import read_rules
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.model.device import DeviceState
from jobmeter.model.job import JobState
from jobmeter.model.record import check_record, list_replicas


def test_records_have_the_start_and_the_end_of_a_replica_once(table, tmp_path):
    plant_process(
        tmp_path,
        100,
        start=500,
        groups=V1_STEP,
        SLURM_JOB_ID="21",
        SLURM_PROCID="2",
        SLURM_JOB_NAME="t",
        SLURM_JOB_USER="a",
        SLURM_JOB_ACCOUNT="vision",
        SLURM_JOB_PARTITION="main",
    )
    reporter = JobReporter(NodeIdentity("n1", "c1"), table.list_processes, lambda ms: 1795222148_000 + ms)
    now = 1795222148_000 + 10_000
    table.refresh()
    (job,) = reporter.take_records(now).jobs
    check_record(job)
    assert (job.job_id, job.name, job.user, job.type, job.state) == ("21", "t", "a", "Slurm", None)
    assert (job.workspace, job.resource_group) == (None, None), "a user can change his environment"
    (replica,) = list_replicas(job)
    assert (replica.name, replica.rank, replica.node, replica.cluster) == ("worker-2", 2, "n1", "c1")
    assert (replica.start, replica.end, replica.state) == (1795222148_000 + 5_000, None, None)
    assert reporter.take_records(now + 1000).jobs == []
    end_process(tmp_path, 100)
    table.refresh()
    assert reporter.take_records(now + 30_000).jobs == []
    (job,) = reporter.take_records(now + 70_000).jobs
    assert (job.state, list_replicas(job)[0].end, list_replicas(job)[0].state) == (None, now + 1000, JobState.UNKNOWN)
    assert reporter.take_records(now + 90_000).jobs == []


def test_a_replica_has_the_rank_of_its_task_where_its_launcher_came_first(tmp_path):
    """``mpirun python train.py`` matches a rule for ``python train.py`` and has no rank; its first task is worker-0."""
    plant(tmp_path, HOST)
    proc = f"{tmp_path}/proc"
    rules = tmp_path / "rules.toml"
    rules.write_text('[[job]]\ncommand = "*train.py"\njob = "train"\n')
    table = ProcessTable(NodeClassifier("n1", proc, rules=read_rules(rules)), proc)
    reporter = JobReporter(NodeIdentity("n1"), table.list_processes, lambda milliseconds: milliseconds)

    def ranks(now_ms):
        table.refresh()
        return [(one.name, one.rank) for job in reporter.take_records(now_ms).jobs for one in list_replicas(job)]

    plant_process(tmp_path, 100)
    plant(tmp_path, {"proc/100/cmdline": "mpirun\0python\0train.py\0"})
    assert ranks(60_000) == [("worker-0", None)]
    for number in (0, 1):
        plant_process(tmp_path, 101 + number, 100, start=1001, PMI_RANK=str(number))
        plant(tmp_path, {f"proc/{101 + number}/cmdline": "python\0train.py\0"})
    assert sorted(ranks(61_000)) == [("worker-0", 0), ("worker-1", 1)]
    assert ranks(62_000) == []


def test_a_node_describes_itself_when_something_changed(tmp_path):
    plant(tmp_path, HOST)
    devices: dict[str, Gpu] = {}
    place = NodeIdentity("n1", resource_group="rg")
    reporter = NodeReporter(place, lambda: devices, f"{tmp_path}/proc")
    (node,) = reporter.take_records(0).nodes
    assert node.resource_group == "rg"
    assert node.info["memory"] == 24684096 * 1024
    assert node.info["cores"] >= 1
    assert "devices" not in node.info
    assert reporter.take_records(10_000).nodes == []
    plant(tmp_path, {"proc/meminfo": "MemTotal:       100 kB\n"})
    (node,) = reporter.take_records(60_000).nodes
    assert node.info["memory"] == 100 * 1024
    devices["gpu0"] = Gpu(0, "GPU-1", "H200")
    (node,) = reporter.take_records(70_000).nodes
    assert node.info["devices"] == [{"device": "gpu0", "name": "H200", "uuid": "GPU-1", "since": 70_000}]
    assert reporter.take_records(4_000_000).nodes != []
    devices["gpu0"] = Gpu(0, "GPU-1", "H200", pci="0000:9b:00", state=DeviceState.LOST)
    (node,) = reporter.take_records(4_010_000).nodes
    named = {"device": "gpu0", "name": "H200", "uuid": "GPU-1", "pci": "0000:9b:00"}
    assert node.info["devices"] == [{**named, "state": "lost", "since": 70_000}]


def test_a_card_that_was_replaced_is_another_device_with_its_own_times(tmp_path):
    plant(tmp_path, HOST)
    old = Gpu(0, "GPU-1", "H200", pci="0000:9b:00", details={"serial": "165", "vendor": "nvidia"})
    devices = {"gpu0": old, "gpu1": Gpu(1, "GPU-2", "H200")}

    def record(now_ms):
        reporter = NodeReporter(NodeIdentity("n1"), lambda: devices, f"{tmp_path}/proc", state=tmp_path)
        (node,) = reporter.take_records(now_ms).nodes
        return node.info

    info = record(1_000)
    assert info["devices"][0]["serial"] == "165"
    assert "former_devices" not in info
    devices["gpu0"] = Gpu(0, "GPU-3", "H200")
    info = record(60_000)
    assert [(one["uuid"], one["since"]) for one in info["devices"]] == [("GPU-3", 60_000), ("GPU-2", 1_000)]
    former = {"device": "gpu0", "name": "H200", "uuid": "GPU-1", "pci": "0000:9b:00", "serial": "165"}
    assert info["former_devices"] == [{**former, "since": 1_000, "until": 1_000}]
    # The card cannot be opened, and has no UUID for a while.
    devices["gpu0"] = Gpu(0, "", "H200", state=DeviceState.LOST)
    assert [one["uuid"] for one in record(70_000)["former_devices"]] == ["GPU-1"]
    # The old card comes back in the same slot.
    devices["gpu0"] = old
    info = record(80_000)
    assert info["devices"][0]["since"] == 80_000
    assert [(one["uuid"], one["until"]) for one in info["former_devices"]] == [("GPU-3", 60_000), ("GPU-1", 1_000)]
