"""Tests of the owner of a job: an environment cannot move a process into another user's job."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.trees import HOST, end_process, plant, plant_process

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.containers import ContainerRuns
from jobmeter.collect.discover.owners import FORGET_MS, MOST_JOBS, JobOwners, OwnerReporter, ProcessOwner
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.model.time import HOUR
from jobmeter.testing.collector import NOW_MS

ALICE, MALLORY = 610_001, 610_002
UID = "0a1b2c3d-0001-0002-0003-00000000abc{}"


class Node:
    """Planted machine, and the jobs that an agent finds on it."""

    def __init__(self, root, owners=None):
        self.root = plant(root, HOST)
        self.owners = owners or JobOwners()
        self.links = root / "links"
        self.links.mkdir(exist_ok=True)
        runs = ContainerRuns(str(self.links))
        classifier = NodeClassifier("n1", f"{root}/proc", runs, owners=self.owners)
        self.table = ProcessTable(classifier, f"{root}/proc")
        self.reporter = OwnerReporter(NodeIdentity("n1"), self.owners, self.table.list_processes)

    def process(self, pid, *arguments, **more):
        plant_process(self.root, pid, *arguments, start=1000 + pid, **more)

    def end(self, pid):
        end_process(self.root, pid)

    def jobs(self):
        return {process.stat.key.pid: process.member.owner.job for process in self.table.refresh()}

    def messages(self, now_ms=NOW_MS):
        return [event.message for event in self.reporter.take_records(now_ms).events]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_another_users_process_does_not_join_a_job_by_its_name(node):
    node.process(10, uid=ALICE, JOBMETER_JOB_ID="alices")
    node.process(11, uid=ALICE, JOBMETER_JOB_ID="alices", JOBMETER_REPLICA="worker-1")
    node.process(12, uid=MALLORY, JOBMETER_JOB_ID="alices", JOBMETER_REPLICA="worker-2")
    node.process(13, 12, uid=MALLORY)
    assert node.jobs() == dict.fromkeys((10, 11), "alices")
    (message,) = node.messages()
    assert message.startswith(f"A process of user {MALLORY} names the job alices")
    assert f"belongs to user {ALICE}" in message


def test_it_is_no_job_of_a_run_either(node):
    node.process(10, uid=ALICE, JOBMETER_JOB_ID="alices", JOBMETER_MEASURED="run")
    node.process(12, uid=MALLORY, JOBMETER_JOB_ID="alices")
    assert node.jobs() == {10: "alices"}


def test_what_a_process_of_the_job_started_belongs_to_it_as_any_user(node):
    node.process(10, uid=ALICE, JOBMETER_JOB_ID="alices")
    node.process(11, 10, uid=0, JOBMETER_JOB_ID="alices")
    node.process(12, 11, uid=MALLORY, JOBMETER_JOB_ID="alices", JOBMETER_REPLICA="worker-1")
    expected = dict.fromkeys((10, 11, 12), "alices")
    assert node.jobs() == expected
    node.end(11)  # the parent of 12, which is read once more
    assert node.jobs() == dict.fromkeys((10, 12), "alices")
    assert node.jobs() == dict.fromkeys((10, 12), "alices")


@given(
    st.lists(
        st.tuples(st.sampled_from([ALICE, MALLORY, 0]), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=8
    )
)
def test_of_each_job_the_first_process_decides(tmp_path_factory, processes):
    """The order of process numbers and the order of discovery do not matter."""
    node = Node(tmp_path_factory.mktemp("node"))
    first: dict[str, int] = {}
    expected: dict[int, str] = {}
    for number, (uid, job, early) in enumerate(processes):
        pid = 100 - number
        plant_process(node.root, pid, start=1000 + number, uid=uid, JOBMETER_JOB_ID=job)
        if first.setdefault(job, uid) == uid:
            expected[pid] = job
        if early:
            assert node.jobs() == expected
    assert node.jobs() == expected
    assert node.jobs() == expected


def test_a_job_of_slurm_is_its_users_although_another_user_named_it_first(node):
    node.process(9, uid=MALLORY, JOBMETER_JOB_ID="21")
    assert node.jobs() == {9: "21"}
    group = "0::/system.slice/slurmstepd.scope/job_21/step_0/user/task_0\n"
    node.process(10, uid=ALICE, groups=group, SLURM_PROCID="0")
    node.process(11, uid=MALLORY, JOBMETER_JOB_ID="21")
    node.process(12, uid=MALLORY, SLURM_JOB_ID="21", SLURM_PROCID="7")
    node.process(13, uid=ALICE, SLURM_JOB_ID="21", SLURM_PROCID="3")
    found = node.jobs()
    assert found == dict.fromkeys((10, 13), "21")


def test_a_task_whose_group_does_not_say_its_job_cannot_take_another_number(node):
    """Slurm 26.05 does not name the groups of a job by its number."""
    own, other = (f"0::/slurmstepd.scope/{name}/step_0/user/task_0\n" for name in ("sAAAA", "sBBBB"))
    node.process(10, uid=ALICE, groups=own, SLURM_JOB_ID="21", SLURM_PROCID="0")
    node.process(20, uid=MALLORY, groups=other, SLURM_JOB_ID="22", SLURM_PROCID="0")
    node.process(21, 20, uid=MALLORY, groups=other, SLURM_JOB_ID="21", SLURM_PROCID="4")
    node.process(22, uid=MALLORY, groups=other, SLURM_JOB_ID="21", SLURM_PROCID="5")  # its parent has ended
    assert node.jobs() == {10: "21", 20: "22", 21: "22"}


def test_the_id_of_a_run_of_torchrun_proves_nothing(node):
    node.process(10, uid=ALICE, TORCHELASTIC_RUN_ID="r", GROUP_RANK="0")
    node.process(11, uid=MALLORY, TORCHELASTIC_RUN_ID="r", GROUP_RANK="1")
    assert node.jobs() == {10: "torchrun-r"}


def test_pods_of_one_namespace_share_a_job_and_others_do_not(node):
    for number, namespace in enumerate(("team-a", "team-a", "team-b")):
        pod, container = UID.format(number), f"{number}" * 64
        folder = f"/var/log/pods/{namespace}_p{number}_{pod}/main/0.log"
        (node.links / f"p{number}_{namespace}_main-{container}.log").symlink_to(folder)
        node.process(10 + number, groups=f"0::/kubepods/pod{pod}/{container}\n", JOBMETER_JOB_ID="bert")
    assert node.jobs() == {10: "bert", 11: "bert", 12: f"pod-{UID.format(2)}"}
    assert "A process of namespace team-b" in node.messages()[0]


def test_the_host_name_of_a_pod_names_no_job_of_another_namespace(node):
    for number, namespace in enumerate(("team-a", "team-b")):
        pod, container = UID.format(number), f"{number}" * 64
        folder = f"/var/log/pods/{namespace}_p_{pod}/main/0.log"
        (node.links / f"p_{namespace}_main-{container}.log").symlink_to(folder)
        node.process(10 + number, groups=f"0::/kubepods/pod{pod}/{container}\n", HOSTNAME=f"bert-worker-{number}")
    assert [process.member.guess for process in node.table.refresh()] == [Owner("bert", "worker-0"), None]


def test_an_owner_is_remembered_over_a_restart_of_the_agent(tmp_path):
    before = Node(tmp_path, JobOwners(tmp_path))
    before.process(10, uid=ALICE, JOBMETER_JOB_ID="alices")
    before.jobs()
    before.messages()
    before.end(10)
    after = Node(tmp_path, JobOwners(tmp_path))
    after.process(11, uid=MALLORY, JOBMETER_JOB_ID="alices")
    assert after.jobs() == {}
    assert len(after.messages()) == 1


def test_a_refusal_is_reported_once_an_hour_for_each_user(node):
    node.process(10, uid=ALICE, JOBMETER_JOB_ID="alices")
    node.process(11, uid=MALLORY, JOBMETER_JOB_ID="alices")
    node.jobs()
    assert len(node.messages()) == 1
    node.process(12, uid=MALLORY, JOBMETER_JOB_ID="alices")
    node.jobs()
    assert node.messages() == []
    node.process(13, uid=MALLORY, JOBMETER_JOB_ID="alices")
    node.jobs()
    assert len(node.messages(NOW_MS + HOUR)) == 1


USER = (ProcessOwner("user", str(ALICE)),)
OTHER = (ProcessOwner("user", str(MALLORY)),)


def test_a_name_is_free_again_a_day_after_its_last_process():
    owners = JobOwners()
    assert owners.accepts("nightly", USER)
    owners.refresh(["nightly"], NOW_MS)
    assert not owners.accepts("nightly", OTHER)
    owners.refresh([], NOW_MS + FORGET_MS)
    assert not owners.accepts("nightly", OTHER)
    owners.refresh([], NOW_MS + 2 * FORGET_MS + 1)
    assert owners.accepts("nightly", OTHER)


def test_a_user_with_very_many_jobs_displaces_none_of_others():
    owners = JobOwners()
    for number in range(50):
        owners.accepts(f"alices-{number}", USER)
    for number in range(2 * MOST_JOBS):
        assert owners.accepts(f"flood-{number}", OTHER)
    assert not any(owners.accepts(f"alices-{number}", OTHER) for number in range(50))
    assert owners.accepts("flood-0", USER), "its own first ones"


@contextmanager
def started(uid: int, job: str, **more: str) -> Iterator[int]:
    command = ["sh", "-c", "echo; read end"]
    environment = {"PATH": os.environ["PATH"], "JOBMETER_JOB_ID": job, **more}
    with subprocess.Popen(
        command, env=environment, user=uid, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can start processes of other users")
def test_real_processes_of_two_users():
    table = ProcessTable(NodeClassifier("n1"))
    job = f"alices-{os.getpid()}"
    with ExitStack() as stack:
        alice = stack.enter_context(started(65533, job))
        stack.enter_context(started(65534, job, JOBMETER_REPLICA="worker-1"))
        again = stack.enter_context(started(65533, job, JOBMETER_REPLICA="worker-2"))
        found = {process.stat.key.pid for process in table.refresh() if process.member.owner.job == job}
    assert found == {alice, again}
