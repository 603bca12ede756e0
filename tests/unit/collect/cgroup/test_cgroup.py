"""Tests of control groups of both versions: recorded trees, with figures and limits worked out by hand."""

import pytest
from tests.unit.collect.trees import V1, V2, plant

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupCounters
from jobmeter.collect.cgroup.paths import Hierarchies, parse_groups
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage, Quota, climb, count_cpus

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0001_0002_0003_00000000abcd.slice"
STEP = "/slurm_n1/uid_65534/job_21/step_0"


@pytest.fixture
def v1(tmp_path):
    plant(tmp_path, V1)
    return GroupReader(Hierarchies(f"{tmp_path}/proc", str(tmp_path)), f"{tmp_path}/sys")


@pytest.fixture
def v2(tmp_path):
    plant(tmp_path, V2)
    return GroupReader(Hierarchies(f"{tmp_path}/proc", str(tmp_path)), f"{tmp_path}/sys")


def test_groups_of_version_1():
    text = "9:name=systemd:/\n4:memory:/a\n3:cpu,cpuacct:/b\n0::/\n"
    assert parse_groups(text) == {"memory": "/a", "cpu": "/b", "cpuacct": "/b", "": "/"}


def test_groups_of_version_2():
    assert parse_groups("0::/system.slice/x.scope\n") == {"": "/system.slice/x.scope"}


def test_a_slurm_task_of_version_1(v1):
    usage = v1.read({"cpuacct": f"{STEP}/task_2", "memory": f"{STEP}/task_0", "cpuset": STEP})
    assert usage.cpu_seconds == 12.5
    assert usage.memory == 104857600 - 20971520
    assert usage.memory_limit == 314572800  # on the step and the job; the task has no limit
    assert usage.oom_kills == 1
    assert usage.counts == {"memory.limit.reached": 6}
    assert usage.kinds == {"memory.anonymous": 60000000, "memory.file": 40960000}
    assert usage.cpu_limit == 3
    assert usage.throttled_seconds is None
    assert usage.read_bytes is None


def test_quota_and_storage_of_version_1(v1):
    usage = v1.read({"cpu": "/batch/inner", "blkio": "/batch/inner"})
    assert usage.cpu_limit == 1.5  # the parent's limit
    assert usage.throttled_seconds == 3.5
    assert (usage.read_bytes, usage.write_bytes) == (4097, 8192)
    assert usage.counts == {
        "cpu.periods": 40,
        "cpu.throttled.periods": 12,
        "disk.read.operations": 4,
        "disk.write.operations": 5,
    }
    assert usage.cpu_seconds is None
    assert usage.memory is None


def test_the_nearest_quota_above_a_group_counts_in_version_1(tmp_path, v1):
    plant(
        tmp_path,
        {
            "sys/fs/cgroup/cpu/batch/cpu.stat": "nr_periods 40\nnr_throttled 30\nthrottled_time 2500000000\n",
            "sys/fs/cgroup/cpu/batch/inner/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        },
    )
    counts = {"cpu.periods": 40, "cpu.throttled.periods": 30}
    assert v1.find_quota({"cpu": "/batch/inner", "": "/"}) == Quota("cpu", "/batch", 2.5, counts)
    assert v1.find_quota({"cpu": "/batch"}) == Quota("cpu", "/batch", 2.5, counts)
    assert v1.find_quota({"cpu": "/", "": "/"}) is None


def test_the_nearest_quota_above_a_group_counts_in_version_2(tmp_path, v2):
    above = "kubepods.slice/kubepods-burstable.slice"
    plant(tmp_path, {f"sys/fs/cgroup/{above}/cpu.stat": "usage_usec 9\nthrottled_usec 4000000\n"})
    assert v2.find_quota({"": POD}) == Quota("", f"/{above}", 4.0)
    assert v2.find_quota({"": "/kubepods.slice"}) is None


def test_pressure_of_version_2_counts_beside_version_1(tmp_path, v1):
    plant(tmp_path, {"sys/fs/cgroup/unified/job/io.pressure": "some avg10=0.00 avg60=0 avg300=0 total=1500000\n"})
    assert v1.read({"cpuacct": f"{STEP}/task_2", "": "/job"}) == CgroupUsage(cpu_seconds=12.5, stalled={"io": 1.5})


def test_a_pod_of_version_2(v2):
    usage = v2.read({"": POD})
    assert usage == CgroupUsage(
        cpu_seconds=7.25,
        throttled_seconds=0.5,
        cpu_limit=2.5,
        memory=350_000_000,
        memory_limit=4_000_000_000,
        oom_kills=2,
        read_bytes=1000,  # 253:1 is built on 254:0
        write_bytes=2000,
        stalled={"cpu": 3.0, "memory": 0.00004, "memory.full": 0},
        counts={
            "cpu.periods": 9,
            "cpu.throttled.periods": 2,
            "memory.limit.slowed": 0,
            "memory.limit.reached": 4,
            "disk.read.operations": 1,
            "disk.write.operations": 2,
        },
        kinds={"memory.anonymous": 300_000_000, "memory.file": 200_000_000},
    )


def test_limits_climb_to_the_job_of_version_2(v2):
    assert v2.read_limits({"": "/system.slice/n1_slurmstepd.scope/job_1/step_0/user/task_0"}) == (None, 314572800)


def test_a_group_that_is_gone_gives_nothing(v1, v2):
    assert v2.read({"": "/gone"}).cpu_seconds is None
    assert v2.read({"": "/gone"}).memory is None
    assert v1.read({"memory": "/gone", "cpuacct": "/gone"}).cpu_seconds is None


def test_a_path_that_climbs_out_is_not_followed(v2):
    assert v2.read({"": "/../../etc"}) == CgroupUsage()


def test_only_what_is_mounted_is_listed(tmp_path):
    plant(
        tmp_path,
        {"proc/self/mountinfo": "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
    )
    hierarchies = Hierarchies(f"{tmp_path}/proc", "")
    assert hierarchies.find_directory("", "/docker/abc/inner") == "/sys/fs/cgroup/inner"
    assert hierarchies.find_directory("", "/docker/abc") == "/sys/fs/cgroup"
    assert hierarchies.find_directory("", "/docker/abcd") is None
    assert hierarchies.find_directory("memory", "/docker/abc") is None


@pytest.mark.parametrize(
    ("text", "cpus"), [(b"0-3,8\n", 5), (b"0\n", 1), (b"\n", None), (b"", None), (None, None), (b"x\n", None)]
)
def test_cpu_lists(text, cpus):
    assert count_cpus(text) == cpus


def test_climbing_ends_at_the_top():
    assert climb("/top/a/b", "/top") == ["/top/a/b", "/top/a", "/top"]
    assert climb("/top", "/top") == ["/top"]
    assert climb("/elsewhere", "/top") == ["/elsewhere"]


OWNER, KEY = Owner("j", "worker-0"), (("", "/a"),)


def counted(*readings):
    counters = GroupCounters()
    for began, ended, seconds in readings:
        counters.update({OWNER: {KEY: CgroupUsage(cpu_seconds=seconds, began=began, ended=ended)}})
    return counters.sum_totals()[OWNER]["cpu"]


def test_a_reading_that_began_before_the_last_one_doubles_nothing():
    assert counted((1, 2, 1.0), (5, 6, 2.5), (3, 4, 2.0), (7, 8, 3.0)) == 3.0


def test_the_higher_of_two_readings_at_a_time_counts():
    assert counted((1, 2, 1.0), (3, 6, 2.5), (4, 5, 2.0), (7, 8, 3.0)) == 3.0
    assert counted((3, 6, 2.0), (4, 5, 2.5)) == 2.5


def test_a_group_that_was_made_again_goes_on_from_what_the_one_before_had_used():
    assert counted((1, 2, 1.0), (3, 4, 2.5), (5, 6, 0.5), (7, 8, 0.75)) == 3.25


def test_readings_are_ordered_by_their_beginning(v1):
    first, second = v1.read({"cpuset": STEP}), v1.read({})
    assert 0 < first.began < first.ended < second.began < second.ended
