"""Tests of disagreement between the devices given to jobs and the processes that compute on them."""

import pytest
from tests.unit.collect.gpus import Bench, Gpu, device_set

from jobmeter.collect.accelerators.names import name_gpu
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.devices import DeviceClaim
from jobmeter.collect.discover.disagree import HOLD, DisagreementWatch, find_disagreements
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.model.job import AllocationSource
from jobmeter.model.record import check_event

DEVICES = device_set([Gpu(i, f"GPU-{i}aaa-bbbb") for i in range(4)])


def member(devices=None, job="j", replica="worker-0", source=MembershipSource.SLURM, **more):
    return Member(owner=Owner(job, replica), source=source, devices=(devices,) if devices else (), **more)


def by(source, *owners):
    return [DeviceClaim(owner, None, source) for owner in owners]


def messages(member, index=1, allocated=None):
    return [one.message for one in find_disagreements(DEVICES, {index: [member]}, allocated)]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SLURM_JOB_GPUS", "2"),
        ("SLURM_STEP_GPUS", "2,3"),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-2aaa-bbbb"),
        ("CUDA_VISIBLE_DEVICES", "GPU-2aaa"),
    ],
)
def test_a_device_that_the_environment_does_not_name(variable, text):
    (message,) = messages(member((variable, text)))
    assert message.startswith(f"It computes on gpu1, but {variable} gives it gpu2")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SLURM_JOB_GPUS", "0,1"),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-1aaa-bbbb"),
        ("CUDA_VISIBLE_DEVICES", "2"),  # counts from the first device that its group permits
        ("NVIDIA_VISIBLE_DEVICES", "2,all"),
        ("CUDA_VISIBLE_DEVICES", "MIG-GPU-1aaa/1/0"),
        ("SLURM_JOB_GPUS", "9"),
    ],
)
def test_agreement_and_possible_agreement_are_not_reported(variable, text):
    assert messages(member((variable, text))) == []


def test_no_allocation_in_the_environment_is_no_disagreement():
    assert messages(member()) == []


def test_any_device_of_the_job_may_be_a_ranks():
    assert messages(member(("SLURM_JOB_GPUS", "0,1"), local_rank=0, process_rank=0)) == []


def test_an_allocation_by_the_kubelet_decides_alone():
    given = {1: by(AllocationSource.KUBELET, Owner("other", "worker-1"), Owner("j", "worker-0", 2))}
    assert messages(member(("NVIDIA_VISIBLE_DEVICES", "GPU-2aaa-bbbb")), allocated=given) == []
    (message,) = messages(member(replica="worker-7"), allocated=given)
    assert message == "It computes on gpu1, which the kubelet gave to worker-0 of j, worker-1 of other."


def test_it_is_reported_once_when_it_lasts_and_again_when_it_comes_again():
    found = find_disagreements(DEVICES, {1: [member(("SLURM_JOB_GPUS", "2"))]})
    watch = DisagreementWatch(NodeIdentity("n1", "c1"), name_gpu)
    for now_ms in range(HOLD - 1):
        watch.update(now_ms, found)
    watch.update(9, [])
    assert watch.take_records(0).events == []
    for _ in range(2):
        for now_ms in range(10, 20):
            watch.update(now_ms, found)
        (event,) = watch.take_records(0).events
        check_event(event)
        assert (event.job, event.replica, event.node, event.cluster) == ("j", "worker-0", "n1", "c1")
        assert (event.time, event.reason, event.subject) == (10 + HOLD - 1, "AllocationMismatch", "device gpu1")
        watch.update(20, [])


def test_the_collector_of_gpus_looks_for_it(driver):
    bench = Bench(driver)
    driver.devices[1].run((7, 1))
    bench.by_pid[7] = member(("SLURM_JOB_GPUS", "0"))
    for _ in range(HOLD):
        bench.look()
    (event,) = bench.collector.disagreements.take_records(0).events
    assert event.message == "It computes on gpu1, but SLURM_JOB_GPUS gives it gpu0."
