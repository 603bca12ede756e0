"""Tests of the GPUs that a process's variables name: CUDA's documented rules, and rules that PyTorch found."""

from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.collect.gpus import Gpu, device_set
from tests.unit.collect.trees import plant_process

from jobmeter.collect.accelerators.nvidia.visible import parse_container_devices, parse_cuda_devices
from jobmeter.collect.accelerators.visible import Partition
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.member import Member, MembershipSource

UUIDS = ["9942190a", "9e8d35e3", "e429a63e", "eee1dfbc", "bbcd6503", "472ea263", "e56257c4", "1c20e77d"]
GPUS = [Gpu(at, f"GPU-{uuid}-a134-0fdd-0e01-23811fdbd293") for at, uuid in enumerate(UUIDS)]


def visible(text, devices=GPUS, permitted=None, variable="CUDA_VISIBLE_DEVICES", source=MembershipSource.SLURM):
    member = Member(owner=Owner("j", "worker-0"), source=source, devices=((variable, text),))
    return device_set(devices).list_visible(member, permitted)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars
        ("2,1", [2, 1]),
        ("0,2,-1,1", [0, 2]),
        ("2,-1,3", [2]),
        ("GPU-9e8d35e3", [1]),
        # https://github.com/pytorch/pytorch/blob/main/test/test_cuda.py: its authors observed this in a driver.
        ("1gpu2,2ampere", [1, 2]),
        ("0, 1, 2, -1, 3", [0, 1, 2]),
        ("0, 1, 2, 1", []),
        ("2, +3, -0, 5", [2, 3, 0, 5]),
        ("one,two,3,4", []),
        ("4,3,two,one", [4, 3]),
        ("GPU-9e8d35e3, 2", [1]),
        ("GPU-e4,GPU-9e8d35e3", [2, 1]),
        ("GPU-9e8d35e3,GPU-1,GPU-47", [1, 7, 5]),
        ("GPU-123,GPU-9e8d35e3", []),
        ("GPU-9e8d35e3,GPU-123,GPU-47", [1]),
        ("GPU-9e8d35e3,GPU-e,GPU-47", [1]),
        ("GPU-9e8d35e3,GPU-47,GPU-9e8d35e3", []),
        ("MIG-89c850dc-e56a-55eb-8a8b-d4d2f1d6c1f2", []),
        ("MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/0", []),
        # The same device by two abbreviations, entries that end the list, and spaces.
        ("GPU-9e8d35e3,GPU-9e", []),
        ("GPU-", []),
        ("8", []),
        ("7,8,6", [7]),
        ("1,GPU-9e8d35e3", [1]),
        (" 3 , 1 ", [3, 1]),
        (" GPU-9e8d35e3 , GPU-47 ", [1, 5]),
        ("", []),
        (",0", []),
        ("0,,1", [0]),
        ("NoDevFiles", []),
        ("0-2", [0]),
    ],
)
def test_cuda_stops_at_the_first_invalid_entry(text, found):
    assert visible(text) == found


@given(st.lists(st.integers(-2, 9), max_size=6), st.sets(st.integers(0, 7)))
def test_ordinals_count_the_devices_that_a_process_may_open(ordinals, permitted):
    openable = sorted(permitted)
    valid = list(takewhile(lambda ordinal: 0 <= ordinal < len(openable), ordinals))
    expected = [openable[ordinal] for ordinal in valid] if len(set(valid)) == len(valid) else []
    assert visible(",".join(map(str, ordinals)), permitted=openable) == expected


@given(
    st.lists(st.text("abc", min_size=3, max_size=3), min_size=1, max_size=6, unique=True),
    st.lists(st.text("abc", max_size=3), max_size=5),
)
def test_an_abbreviation_names_the_only_uuid_that_begins_so(uuids, names):
    devices = [Gpu(at, f"GPU-{uuid}") for at, uuid in enumerate(uuids)]
    matches = [[at for at, uuid in enumerate(uuids) if uuid.startswith(name)] for name in names]
    valid = [found[0] for found in takewhile(lambda found: len(found) == 1, matches)]
    expected = valid if len(set(valid)) == len(valid) else []
    assert visible(",".join(f"GPU-{name}" for name in names), devices) == expected


def test_a_device_that_may_not_be_opened_is_not_visible():
    assert visible("GPU-9e8d35e3,GPU-47", permitted=[1, 2]) == [1]
    assert visible("GPU-47,GPU-9e8d35e3", permitted=[1, 2]) == []


@pytest.mark.parametrize("text", ["0", "0,GPU-47", "GPU-47"])
def test_ordinals_inside_a_pod_mean_nothing_where_its_devices_are_unknown(text):
    assert visible(text, source=MembershipSource.KUBERNETES) == ([5] if "GPU" in text else [])


@pytest.mark.parametrize(
    ("variable", "text", "found"),
    [
        ("SLURM_JOB_GPUS", "0, 3", [0, 3]),
        ("SLURM_JOB_GPUS", "9,3,03", [3]),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293,5,5", [1, 5]),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-e", []),
        ("NVIDIA_VISIBLE_DEVICES", "all", []),
        ("NVIDIA_VISIBLE_DEVICES", "void", []),
    ],
)
def test_a_plain_list_of_devices(variable, text, found):
    assert visible(text, variable=variable) == found


def test_the_uuids_of_sixteen_devices_are_read_whole(tmp_path):
    text = ",".join(f"GPU-{at:08x}-a134-0fdd-0e01-23811fdbd293" for at in range(16))
    plant_process(tmp_path, 7, CUDA_VISIBLE_DEVICES=text, SLURM_JOB_NAME="n" * 600)
    assert read_environment(str(tmp_path / "proc"), 7) == {"CUDA_VISIBLE_DEVICES": text}


def part(parent, instance, place, ordinal):
    uuid = f"MIG-{parent}{instance}{place}00000-aaaa-bbbb-cccc-0123456789ab"
    return Gpu(
        100 + 10 * parent + ordinal,
        uuid,
        part=Partition(parent, f"GPU-{UUIDS[parent]}-a134-0fdd-0e01-23811fdbd293", instance, place, ordinal),
    )


SPLIT = [*GPUS, part(1, 3, 0, 0), part(1, 5, 0, 1), part(1, 5, 1, 2)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MIG-13000000-aaaa-bbbb-cccc-0123456789ab", [110]),
        ("MIG-1510", [112]),
        ("MIG-15", []),  # the variable names two instances
        ("MIG-13,MIG-1510", [110]),  # CUDA shows one instance
        (f"MIG-GPU-{UUIDS[1]}-a134-0fdd-0e01-23811fdbd293/5/1", [112]),
        (f"MIG-GPU-{UUIDS[1]}-a134-0fdd-0e01-23811fdbd293/4/0", []),
        ("1", [110]),
        (f"GPU-{UUIDS[1]}", [110]),
        ("0,1", [0]),
        ("1,0", [110]),
        ("0,2", [0, 2]),
        ("MIG-", []),
    ],
)
def test_what_cuda_shows_of_instances(text, found):
    assert parse_cuda_devices(text, SPLIT) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1:0", [110]),
        ("1:2,0", [112, 0]),
        ("1:3", []),
        ("MIG-13,MIG-1510", [110, 112]),
        ("1", [110, 111, 112]),
        ("all", []),
    ],
)
def test_what_a_container_has_of_instances(text, found):
    assert parse_container_devices(text, SPLIT) == found
