"""Tests of the job of a process: found from groups and environments set by Slurm, Kubernetes and launchers."""

import pytest
from tests.unit.collect.trees import HOST, V1_STEP, plant, plant_process

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.clusters import SlurmClusters, read_own_cluster
from jobmeter.collect.discover.containers import ContainerRuns
from jobmeter.collect.discover.environ import NAMES, read_environment
from jobmeter.collect.discover.environ import find_local_rank as local_rank_of
from jobmeter.collect.discover.environ import find_rank as rank_of
from jobmeter.collect.discover.member import MembershipSource
from jobmeter.collect.discover.rules import read_rules
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.model.cluster import JobIds

V1_BATCH = V1_STEP.replace("step_0", "step_batch").replace("task_2", "task_0").replace("slurm_n1", "slurm")
V2_TASK = "0::/system.slice/n1_slurmstepd.scope/job_1/step_0/user/task_0\n"
UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
CGROUPFS = f"0::/kubepods/burstable/pod{UID}/0123456789abcdef\n"
SYSTEMD = (
    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_0002_0003_00000000abcd.slice/"
    "cri-containerd-0123456789abcdef.scope\n"
)
ID = "dbd988cbf2f53da1be309e368028f59ad28577a3eb0a93623ada44092a93175e"


def test_a_container_that_was_started_again_is_the_next_attempt_of_its_replica(tmp_path):
    """A kubelet 1.20 made these links, recorded beside the group of the path above."""
    plant(tmp_path, HOST)
    links = tmp_path / "containers"
    links.mkdir()
    classifier = NodeClassifier("n1", f"{tmp_path}/proc", ContainerRuns(str(links)))
    table = ProcessTable(classifier, f"{tmp_path}/proc")
    target = f"/var/log/pods/default_again-9nx2t_{UID}/main/2.log"
    (links / f"again-9nx2t_default_main-{ID}.log").symlink_to(target)
    plant_process(tmp_path, 100, groups=f"0::/kubepods/pod{UID}/{ID}\n", HOSTNAME="again-9nx2t")
    plant_process(tmp_path, 101, groups=f"0::/kubepods/pod{UID}/{ID[::-1]}\n")  # the sandbox has no link
    assert owners(table) == {100: Owner(f"pod-{UID}", "worker-0", 2)}
    again = ID.replace("d", "e")
    (links / f"again-9nx2t_default_main-{again}.log").symlink_to(target.replace("2.log", "3.log"))
    plant_process(tmp_path, 102, groups=f"0::/kubepods/pod{UID}/{again}\n", HOSTNAME="again-9nx2t")
    assert owners(table)[102] == Owner(f"pod-{UID}", "worker-0", 3)


def test_links_that_lead_nowhere_are_passed_over(tmp_path):
    (tmp_path / "x.log").write_text("")
    (tmp_path / f"y-{ID}.log").symlink_to("/var/log/pods/p/main/current.log")
    assert ContainerRuns(str(tmp_path)).find_number(UID, ID) == 0
    assert ContainerRuns(str(tmp_path / "absent")).find_number(UID, ID) == 0


def owners(table):
    return {process.stat.key.pid: process.member.owner for process in table.refresh()}


def test_a_slurm_task_by_its_path_and_its_environment(table, tmp_path):
    plant_process(
        tmp_path,
        100,
        groups=V1_STEP,
        SLURM_JOB_ID="21",
        SLURM_PROCID="2",
        SLURM_JOB_NAME="train",
        SLURM_JOB_USER="ann",
        SLURM_RESTART_COUNT="1",
        SLURM_STEP_GPUS="1,3",
        CUDA_VISIBLE_DEVICES="0,1",
    )
    (process,) = table.refresh()
    member = process.member
    assert member.owner == Owner("21", "worker-2", 1)
    assert (member.source, member.rank, member.name, member.user) == (MembershipSource.SLURM, 2, "train", "ann")
    assert member.devices == (("SLURM_STEP_GPUS", "1,3"), ("CUDA_VISIBLE_DEVICES", "0,1"))
    assert member.groups == {
        "cpuacct": "/slurm_n1/uid_65534/job_21/step_0/task_2",
        "memory": "/slurm_n1/uid_65534/job_21/step_0/task_0",
        "devices": "/slurm_n1/uid_65534/job_21/step_0/task_0",
    }


@pytest.mark.parametrize(("tasks", "named"), [("1", True), ("1(x4)", True), ("2,1", False), ("11", False), ("", False)])
def test_the_group_of_a_whole_job_is_named_where_a_node_has_one_task_of_it(table, tmp_path, tasks, named):
    plant_process(tmp_path, 100, groups=V1_STEP, SLURM_JOB_ID="21", SLURM_PROCID="2", SLURM_TASKS_PER_NODE=tasks)
    (process,) = table.refresh()
    assert process.member.job_groups == ({"cpuacct": "/slurm_n1/uid_65534/job_21"} if named else {})


def test_batch_and_steps_of_one_rank_are_one_replica_and_its_children_too(table, tmp_path):
    plant_process(tmp_path, 100, groups=V1_BATCH, SLURM_JOB_ID="21", SLURM_PROCID="0")
    plant_process(tmp_path, 101, 100, groups=V1_BATCH)
    plant_process(tmp_path, 102, groups=V2_TASK.replace("job_1", "job_21"), SLURM_JOB_ID="21", SLURM_PROCID="0")
    assert set(owners(table).values()) == {Owner("21", "worker-0")}


def test_a_task_whose_environment_may_not_be_read_goes_by_its_path(table, tmp_path):
    plant_process(tmp_path, 100, groups=V1_STEP)
    (tmp_path / "proc/100/environ").unlink()
    assert owners(table) == {100: Owner("21", "n1-task-2")}


def test_slurms_own_processes_are_nobodys(table, tmp_path):
    plant_process(tmp_path, 100, groups="0::/system.slice/slurmstepd.scope/job_1/step_0/slurm\n")
    plant_process(tmp_path, 101, groups="0::/system.slice/slurmstepd.scope/job_1/step_extern/user/task_special\n")
    assert owners(table) == {}


def test_a_task_whose_program_begins_while_it_is_classified_has_its_rank(table, tmp_path, monkeypatch):
    plant_process(tmp_path, 100, groups=V2_TASK, SLURM_JOB_ID="1")
    read = files.read

    def read_and_begin(path, *most):
        if path.endswith("/comm"):
            plant_process(tmp_path, 100, groups=V2_TASK, SLURM_JOB_ID="1", SLURM_PROCID="3")
        return read(path, *most)

    monkeypatch.setattr(files, "read", read_and_begin)
    assert owners(table) == {100: Owner("1", "worker-3")}


def test_slurm_2605_names_the_job_in_the_environment_only(table, tmp_path):
    groups = "0::/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_0/user/task_0\n"
    plant_process(tmp_path, 100, groups=groups, SLURM_JOB_ID="77", SLURM_PROCID="5")
    assert owners(table) == {100: Owner("77", "worker-5")}


def test_a_child_without_an_environment_is_in_the_job_of_its_task(table, tmp_path):
    groups = "0::/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_0/user/task_0\n"
    plant_process(tmp_path, 100, groups=groups, SLURM_JOB_ID="77", SLURM_PROCID="5")
    plant_process(tmp_path, 101, 100, groups=groups)
    plant_process(tmp_path, 102, 100, groups=groups.replace("s8FX", "s9AA"))
    plant_process(tmp_path, 103, groups=groups)  # its parent has ended
    assert owners(table) == dict.fromkeys((100, 101), Owner("77", "worker-5"))


def test_slurm_without_groups(table, tmp_path):
    plant_process(tmp_path, 100, SLURM_JOB_ID="77", SLURM_PROCID="5")
    plant_process(tmp_path, 101, SLURM_JOB_ID="77")  # a shell of salloc: no task
    assert owners(table) == {100: Owner("77", "worker-5")}


def test_jobs_of_two_clusters_with_one_number_never_meet(tmp_path):
    """Two slurmd of two clusters on one machine made these groups: each path contains the node's name."""
    plant(tmp_path, HOST)
    proc = f"{tmp_path}/proc"
    table = ProcessTable(NodeClassifier("n1", proc, clusters=SlurmClusters("alpha")), proc)
    second = V1_STEP.replace("slurm_n1", "slurm_m1")

    def plant_task(pid, groups="0::/\n", **variables):
        plant_process(tmp_path, pid, groups=groups, SLURM_JOB_ID="21", SLURM_PROCID="2", **variables)

    plant_task(100, V1_STEP, SLURM_CLUSTER_NAME="alpha")
    plant_task(200, second, SLURM_CLUSTER_NAME="Beta")
    plant_process(tmp_path, 201, 200, groups=second)  # a child with an empty environment
    plant_task(202, second, parent=200, SLURM_CLUSTER_NAME="alpha")  # a child that contradicts its parent
    plant_task(203, second)  # a task without the variables of its job
    plant_task(300, SLURM_CLUSTER_NAME="beta")  # no groups, as with proctrack/linuxproc
    plant_process(tmp_path, 400, groups=f"0::/kubepods/burstable/pod{UID}/{ID}\n", HOSTNAME="21")
    other = Owner("21@beta", "worker-2")
    assert owners(table) == {
        100: Owner("21", "worker-2"),
        **dict.fromkeys((200, 201, 202, 203, 300), other),
        400: Owner(f"pod-{UID}", "worker-0"),
    }


@pytest.mark.parametrize(
    ("own", "ids", "found"),
    [
        ("", "plain", "21"),
        ("a", "plain", "21"),
        ("b", "plain", "21@a"),
        ("", "cluster", "21@a"),
        ("a", "cluster", "21@a"),
    ],
)
def test_the_number_is_the_id_in_the_nodes_own_cluster(tmp_path, own, ids, found):
    plant(tmp_path, HOST)
    clusters = SlurmClusters(own, JobIds(ids))
    table = ProcessTable(NodeClassifier("n1", f"{tmp_path}/proc", clusters=clusters), f"{tmp_path}/proc")
    plant_process(tmp_path, 100, groups=V1_STEP, SLURM_CLUSTER_NAME="a", SLURM_PROCID="0")
    plant_process(tmp_path, 101, 100, groups=V1_STEP)
    assert owners(table) == dict.fromkeys((100, 101), Owner(found, "worker-0"))


def test_the_nodes_own_cluster_is_that_of_its_slurm_conf(tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text("# ClusterName=old\n  clustername = Alpha # the first\nSlurmctldHost=h\n")
    assert read_own_cluster({"SLURM_CONF": str(conf)}, ()) == "alpha"
    assert read_own_cluster({}, (str(tmp_path / "absent"), str(conf))) == "alpha"
    assert read_own_cluster({"SLURM_CONF": str(tmp_path / "absent")}, (str(conf),)) == ""


@pytest.mark.parametrize("groups", [CGROUPFS, SYSTEMD])
def test_a_pod_of_a_training_job_by_its_host_name(table, tmp_path, groups):
    plant_process(tmp_path, 100, groups=groups, HOSTNAME="bert-worker-3", RANK="4")
    plant_process(tmp_path, 101, 100, groups=groups)
    (process, child) = table.refresh()
    assert process.member.owner == child.member.owner == Owner(f"pod-{UID}", "worker-0")
    assert process.member.guess == child.member.guess == Owner("bert", "worker-3")
    assert process.member.pod_id == UID
    assert process.member.process_rank == 4


def test_every_pod_is_a_job_of_one_replica_by_default(table, tmp_path):
    plant_process(tmp_path, 100, groups=CGROUPFS, HOSTNAME="web-7f9c")
    plant_process(tmp_path, 200, groups=CGROUPFS.replace("0a1b", "1111"), HOSTNAME="sum-2", JOB_COMPLETION_INDEX="2")
    web, sum_2 = (process.member for process in table.refresh())
    assert (web.owner, web.guess) == (Owner(f"pod-{UID}", "worker-0"), None)
    other = UID.replace("0a1b", "1111")
    assert (sum_2.owner, sum_2.guess) == (Owner(f"pod-{other}", "worker-0"), Owner("sum", "worker-2"))


def test_torchrun_by_its_run_id(table, tmp_path):
    plant_process(
        tmp_path,
        100,
        RANK="9",
        LOCAL_RANK="1",
        TORCHELASTIC_RUN_ID="exp7",
        GROUP_RANK="1",
        TORCHELASTIC_RESTART_COUNT="2",
    )
    plant_process(tmp_path, 101, TORCHELASTIC_RUN_ID="none")
    (process,) = table.refresh()
    assert process.member.owner == Owner("torchrun-exp7", "worker-1", 2)
    assert (process.member.process_rank, process.member.local_rank) == (9, 1)


LAUNCHED = {
    # torch/distributed/elastic: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    "torchrun": ({"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "1", "RANK": "5", "LOCAL_RANK": "1"}, 5, 1),
    # accelerate starts its processes with torchrun's own code, and also sets its own variable.
    "accelerate": ({"ACCELERATE_MIXED_PRECISION": "no", "RANK": "5", "LOCAL_RANK": "1"}, 5, 1),
    # deepspeed/launcher/launch.py
    "DeepSpeed": ({"CROSS_RANK": "1", "LOCAL_SIZE": "4", "RANK": "5", "LOCAL_RANK": "1"}, 5, 1),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "5"}, 5, 1),
    "MPICH": ({"PMI_RANK": "5", "MPI_LOCALRANKID": "1"}, 5, 1),
    "Intel MPI": ({"PMI_RANK": "5", "MPI_LOCALRANKID": "1", "I_MPI_HYDRA_BOOTSTRAP": "ssh"}, 5, 1),
    "MVAPICH": ({"MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_LOCAL_RANK": "1"}, 5, 1),
    "Horovod": ({"HOROVOD_RANK": "5", "HOROVOD_LOCAL_RANK": "1"}, 5, 1),
    "a launcher of PMIx": ({"PMIX_RANK": "5"}, 5, None),
    # https://www.mindspore.cn/docs/en/r2.2/note/env_var_list.html
    "MindSpore": ({"RANK_ID": "5", "RANK_SIZE": "8", "DEVICE_ID": "1"}, 5, None),
    "srun": ({"SLURM_JOB_ID": "21", "SLURM_PROCID": "5", "SLURM_LOCALID": "1"}, 5, 1),
    # Ray and Dask give a process its rank at run time, invisible to others.
    "Ray": ({"RAY_JOB_ID": "01000000", "RAY_NODE_ID": "1"}, None, None),
    "Dask": ({"DASK_PARENT_PID": "7"}, None, None),
}
"""By launcher, a process's variables from its documentation or source, its rank, and its rank on its node."""


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_the_rank_that_each_launcher_gives(tmp_path, launcher):
    variables, rank, local_rank = LAUNCHED[launcher]
    plant_process(tmp_path, 100)
    (tmp_path / "proc/100/environ").write_text("".join(f"{name}={value}\0" for name, value in variables.items()))
    found = read_environment(f"{tmp_path}/proc", 100)
    assert (rank_of(found), local_rank_of(found)) == (rank, local_rank)


def test_tags_come_first_and_reach_children_that_lost_them(table, tmp_path):
    plant_process(
        tmp_path,
        100,
        groups=V1_STEP,
        SLURM_JOB_ID="21",
        SLURM_PROCID="0",
        JOBMETER_JOB_ID="mine",
        JOBMETER_REPLICA="w-1",
    )
    plant_process(tmp_path, 101, 100, groups=V1_STEP)
    assert set(owners(table).values()) == {Owner("mine", "w-1")}


def test_a_job_that_jobmeter_run_measures_is_recorded_as_such(table, tmp_path):
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="mine", JOBMETER_MEASURED="run")
    (process,) = table.refresh()
    assert process.member.measured


@pytest.mark.parametrize("value", ["../x", "a/b", "", "x" * 200, "a\tb"])
def test_an_environment_cannot_name_what_no_job_may_be_called(table, tmp_path, value):
    plant_process(tmp_path, 100, JOBMETER_JOB_ID=value)
    assert owners(table) == {}


def test_only_names_of_the_list_are_read(tmp_path):
    plant_process(tmp_path, 100, RANK="1", AWS_SECRET_ACCESS_KEY="no", JOBMETER_KEY="no")
    assert read_environment(f"{tmp_path}/proc", 100) == {"RANK": "1"}
    assert not [name for name in NAMES if "KEY" in name or "TOKEN" in name or "SECRET" in name]


def test_a_process_is_looked_at_again_once_since_it_begins_as_a_copy_of_its_parent(table, tmp_path):
    plant_process(tmp_path, 100)
    assert owners(table) == {}
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="late")
    assert owners(table) == {100: Owner("late", "worker-0")}
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="later")
    assert owners(table) == {100: Owner("late", "worker-0")}  # read twice, and no more often


def test_a_number_that_comes_round_again_is_another_process(table, tmp_path):
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="old", start=5)
    owners(table)
    owners(table)
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="new", start=6)
    assert owners(table) == {100: Owner("new", "worker-0")}


def test_an_unknown_process_is_looked_up_when_requested(table, tmp_path):
    plant_process(tmp_path, 100, JOBMETER_JOB_ID="mine")
    assert table.find_member(100).owner == Owner("mine", "worker-0")
    assert table.find_member(101) is None


TAGGED, BY_SLURM = {"JOBMETER_JOB_ID": "tagged"}, {"SLURM_JOB_ID": "21", "SLURM_PROCID": "2"}
BY_TORCHRUN = {"TORCHELASTIC_RUN_ID": "t"}


@pytest.mark.parametrize(
    ("groups", "variables", "command", "source"),
    [
        (V1_STEP, TAGGED | BY_SLURM | BY_TORCHRUN, "train", MembershipSource.TAGS),
        (CGROUPFS, TAGGED | BY_SLURM | BY_TORCHRUN, "train", MembershipSource.TAGS),
        (V1_STEP, BY_SLURM | BY_TORCHRUN, "train", MembershipSource.SLURM),
        (CGROUPFS, BY_SLURM | BY_TORCHRUN, "train", MembershipSource.KUBERNETES),
        ("0::/\n", BY_SLURM | BY_TORCHRUN, "train", MembershipSource.SLURM),
        ("0::/\n", BY_TORCHRUN, "train", MembershipSource.RULE),
        ("0::/\n", BY_TORCHRUN, "other", MembershipSource.TORCHRUN),
        ("0::/\n", {}, "other", None),
    ],
)
def test_the_most_trusted_source_decides_alone(tmp_path, groups, variables, command, source):
    plant(tmp_path, HOST)
    (tmp_path / "rules.toml").write_text('[[job]]\ncommand = "train"\njob = "by-rule"\n')
    rules = read_rules(tmp_path / "rules.toml")
    classifier = NodeClassifier("n1", f"{tmp_path}/proc", ContainerRuns(f"{tmp_path}/containers"), rules)
    plant_process(tmp_path, 100, groups=groups, **variables)
    plant(tmp_path, {"proc/100/cmdline": f"{command}\0"})
    found = [process.member.source for process in ProcessTable(classifier, f"{tmp_path}/proc").refresh()]
    assert found == ([] if source is None else [source])


def test_processes_without_a_job_are_classified_again_a_few_at_each_scan(tmp_path):
    pids = range(100, 164)
    for pid in pids:
        plant_process(tmp_path, pid)
    seen: list[int] = []

    class NoJobs:
        def find_member(self, stat, parent):
            seen.append(stat.key.pid)

        def take_displaced(self):
            return set()

    table = ProcessTable(NoJobs(), f"{tmp_path}/proc")
    for _ in range(2):
        table.refresh()
    counts = []
    again: set[int] = set()
    for _ in range(34):
        seen.clear()
        table.refresh()
        counts.append(len(seen))
        again.update(seen)
    assert again == set(pids)
    assert max(counts) <= 8
