"""GPUs through a fake of NVML: units, what is missing, whose a device is."""

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from tests.waiting import wait_until

from jobmeter.collect.base import Owner, Place
from jobmeter.collect.discover.devices import visible_devices
from jobmeter.collect.discover.member import Member, Source
from jobmeter.collect.nvidia import binding
from jobmeter.collect.nvidia.api import DeviceLostError, NotSupportedError, Reading
from jobmeter.collect.nvidia.binding import PynvmlLibrary
from jobmeter.collect.nvidia.collector import NvidiaCollector
from jobmeter.model.record import check_record
from jobmeter.testing.collector import NOW_MS, CollectorContract
from jobmeter.testing.nvml import FakeDevice, FakeNvml

PLACE = Place("n1", "c1")


def member(job, replica="worker-0", **more):
    return Member(owner=Owner(job, replica), source=Source.SLURM, **more)


class Bench:
    """A collector over fake devices and a table of processes that the test fills."""

    def __init__(self, devices=1, **more):
        self.devices = [FakeDevice(i, f"GPU-{i:08x}") for i in range(devices)]
        self.by_pid: dict[int, Member] = {}
        self.collector = NvidiaCollector(
            PLACE, FakeNvml(self.devices), self.by_pid.get, lambda: list(self.by_pid.values()), **more
        )

    def look(self, now_ms=NOW_MS):
        return {
            (s.series.metric, s.series.device, s.series.job, s.series.replica): s.value
            for s in self.collector.collect(now_ms)
        }

    def owners(self, device="gpu0"):
        return {key[2:] for key in self.look() if key[0] == "gpu.power" and key[1] == device}

    def allocations(self):
        return [
            (job.job_id, a.replica, a.device, a.start, a.end, a.rank, a.source)
            for job in self.collector.allocations.records(0).jobs
            for a in check_record(job).allocations
        ]


class TestNvidia(CollectorContract):
    @pytest.fixture
    def collector(self):
        bench = Bench(2)
        bench.by_pid[7] = member("j", process_rank=0)
        bench.devices[1].values["processes"] = [(7, 5 * 2**30)]
        bench.devices[1].values["process_utilization"] = {7: 60.0}
        return bench.collector


def test_values_are_in_the_units_of_the_catalogue():
    bench = Bench()
    bench.look()
    values = {metric: value for (metric, *_), value in bench.look(NOW_MS + 10_000).items()}
    assert values["gpu.utilization"] == pytest.approx(0.83)
    assert values["gpu.memory.copy.utilization"] == pytest.approx(0.41)
    assert values["gpu.memory.usage"] == 60 * 2**30
    assert values["gpu.memory.limit"] == 139 * 2**30
    assert values["gpu.power"] == pytest.approx(431.25)
    assert values["gpu.energy"] == pytest.approx(5000.123 + 2 * 500)
    assert values["gpu.temperature"] == 61
    assert values["gpu.clock.sm"] == 1.98e9
    assert values["gpu.throttle.power"] == pytest.approx(2.0)
    assert values["gpu.nvlink.transmit"] == 1024 * 1024
    assert values["gpu.sm.active"] == pytest.approx(0.715)
    assert values["gpu.tensor.active"] == pytest.approx(0.44)
    assert values["gpu.dram.active"] == pytest.approx(0.385)


def test_what_the_device_does_not_give_is_absent_and_never_zero():
    bench = Bench()
    for name in ("utilization", "energy", "profile", "fan", "ecc_errors", "processes"):
        del bench.devices[0].values[name]
    bench.look()
    names = {metric for metric, *_ in bench.look(NOW_MS + 60_000)}
    assert not {"gpu.utilization", "gpu.energy", "gpu.sm.active", "gpu.fan", "gpu.ecc.corrected"} & names
    assert {"gpu.power", "gpu.memory.usage", "gpu.temperature", "gpu.power.limit"} <= names


def test_a_lost_device_takes_no_other_along():
    bench = Bench(2)
    bench.devices[0].lost = True
    assert {device for _, device, *_ in bench.look()} == {"gpu1"}


def test_slow_values_come_once_a_minute():
    bench = Bench()
    assert ("gpu.ecc.corrected", "gpu0", "", "") in bench.look()
    assert ("gpu.ecc.corrected", "gpu0", "", "") not in bench.look(NOW_MS + 10_000)
    assert ("gpu.ecc.corrected", "gpu0", "", "") in bench.look(NOW_MS + 60_000)


def test_an_idle_device_is_nobodys():
    assert Bench().owners() == {("", "")}


def test_a_device_of_one_job_is_measured_for_it():
    bench = Bench()
    bench.by_pid[7] = member("j", "worker-3", process_rank=12)
    bench.devices[0].values["processes"] = [(7, 2**30)]
    bench.devices[0].values["process_utilization"] = {7: 55.0}
    look = bench.look()
    assert bench.owners() == {("j", "worker-3")}
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-3"] == 2**30
    assert look["gpu.process.utilization", "gpu0", "j", "worker-3"] == pytest.approx(0.55)
    assert bench.allocations() == [("j", "worker-3", "gpu0", NOW_MS, None, 12, "process")]


def test_a_device_of_two_replicas_of_one_job_is_the_jobs():
    bench = Bench()
    bench.by_pid |= {7: member("j", "worker-0"), 8: member("j", "worker-1")}
    bench.devices[0].values["processes"] = [(7, 10), (8, 20)]
    assert bench.owners() == {("j", "")}
    look = bench.look()
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-0"] == 10
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-1"] == 20


@pytest.mark.parametrize("stranger", [None, member("other"), member("run", measured=True)])
def test_a_device_that_is_shared_is_nobodys_and_each_job_has_its_processes(stranger):
    bench = Bench()
    bench.by_pid[7] = member("j")
    if stranger:
        bench.by_pid[8] = stranger
    bench.devices[0].values["processes"] = [(7, 10), (8, 20)]
    assert bench.owners() == {("", "")}
    look = bench.look()
    assert look["gpu.process.memory.usage", "gpu0", "j", "worker-0"] == 10
    assert (("gpu.process.memory.usage", "gpu0", "other", "worker-0") in look) == (
        stranger is not None and not stranger.measured
    )


def test_visible_devices_are_allocated_to_an_idle_job():
    bench = Bench(2)
    bench.by_pid[7] = member("j", devices=("SLURM_JOB_GPUS", "1"))
    assert bench.owners("gpu1") == {("j", "worker-0")}
    assert bench.owners("gpu0") == {("", "")}
    assert bench.allocations() == [("j", "worker-0", "gpu1", NOW_MS, None, None, "environment")]
    bench.by_pid[9] = member("other")
    bench.devices[1].values["processes"] = [(9, 1)]
    assert bench.owners("gpu1") == {("other", "worker-0")}


def test_allocations_are_intervals_reported_when_they_change():
    bench = Bench()
    bench.by_pid[7] = member("j", process_rank=1)
    bench.devices[0].values["processes"] = [(7, 1)]
    bench.look(1000)
    bench.look(2000)
    assert bench.allocations() == [("j", "worker-0", "gpu0", 1000, None, 1, "process")]
    del bench.devices[0].values["processes"]  # the driver does not tell: nothing ends
    bench.look(3000)
    assert bench.allocations() == []
    bench.devices[0].values["processes"] = []
    bench.look(4000)
    assert bench.allocations() == [("j", "worker-0", "gpu0", 1000, 4000, 1, "process")]
    bench.devices[0].values["processes"] = [(7, 1)]
    bench.look(5000)
    bench.collector.allocations.close(6000)
    assert bench.allocations() == [
        ("j", "worker-0", "gpu0", 5000, None, 1, "process"),
        ("j", "worker-0", "gpu0", 5000, 6000, 1, "process"),
    ]


def test_a_run_leaves_to_the_agent_what_is_not_its_own():
    bench = Bench(2, alone=True)
    bench.by_pid[7] = member("j")
    bench.devices[1].values["processes"] = [(7, 1)]
    assert {(key[1], key[2]) for key in bench.look()} == {("gpu1", "j")}
    bench.devices[1].values["processes"] = [(7, 1), (8, 1)]
    assert {key[0] for key in bench.look()} == {"gpu.process.memory.usage"}


DEVICES = [FakeDevice(i, f"GPU-{i}aaa-bbbb") for i in range(4)]


@pytest.mark.parametrize(
    ("variable", "text", "found"),
    [
        ("CUDA_VISIBLE_DEVICES", "2,0", [2, 0]),
        ("CUDA_VISIBLE_DEVICES", "GPU-3aaa", [3]),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-1aaa-bbbb,GPU-2aaa-bbbb", [1, 2]),
        ("CUDA_VISIBLE_DEVICES", "9", []),
        ("CUDA_VISIBLE_DEVICES", "-1", []),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", []),
        ("CUDA_VISIBLE_DEVICES", "GPU-", []),
        ("SLURM_JOB_GPUS", "0, 3", [0, 3]),
        ("CUDA_VISIBLE_DEVICES", "MIG-GPU-1aaa/1/0", []),
    ],
)
def test_visible_devices_of_an_environment(variable, text, found):
    assert visible_devices(member("j", devices=(variable, text)), DEVICES) == found


def test_numbers_inside_a_pod_say_nothing():
    pod = Member(owner=Owner("j", "w"), source=Source.KUBERNETES, devices=("CUDA_VISIBLE_DEVICES", "0,GPU-2aaa"))
    assert visible_devices(pod, DEVICES) == [2]


def test_each_rank_has_one_of_several_visible_devices():
    bench = Bench(4)
    for rank in range(4):
        bench.by_pid[rank] = member(
            "j", devices=("CUDA_VISIBLE_DEVICES", "3,2,1,0"), local_rank=rank, process_rank=rank + 8
        )
    bench.look()
    assert sorted((a[2], a[5]) for a in bench.allocations()) == [
        ("gpu0", 11),
        ("gpu1", 10),
        ("gpu2", 9),
        ("gpu3", 8),
    ]


class Error(Exception):
    def __init__(self, value):
        super().__init__(f"code {value}")
        self.value = value


def library(**functions):
    """A module that behaves like pynvml as far as a test needs it; what it lacks is not supported."""

    def unsupported(*_):
        raise Error(3)

    class Module(SimpleNamespace):
        def __getattr__(self, name):
            return 0 if name.startswith("NVML_") or name == "nvmlMemory_v2" else unsupported

    return Module(
        NVMLError=Error,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        **functions,
    )


def device(**functions):
    (found,) = PynvmlLibrary(lambda: library(**functions)).devices()
    return found


def test_no_driver_means_no_device_and_no_error():
    assert PynvmlLibrary(lambda: None).devices() == []


def test_a_library_without_its_driver_is_tried_again():
    state = {"up": False}

    def start():
        if not state["up"]:
            raise Error(9)

    module = library()
    module.nvmlInit = start
    opened = PynvmlLibrary(lambda: module)
    assert opened.devices() == []
    state["up"] = True
    assert len(opened.devices()) == 1


def test_errors_of_the_library_become_ours():
    with pytest.raises(NotSupportedError):
        device().read(Reading.POWER)

    def lost(handle):
        raise Error(15)

    broken = device(nvmlDeviceGetPowerUsage=lost)
    with pytest.raises(DeviceLostError):
        broken.read(Reading.POWER)
    assert broken.lost


def test_clients_of_mps_are_measured_each_and_their_server_is_left_out(tmp_path):
    program = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(str(shutil.which("sleep")), program)
    with subprocess.Popen([program, "600"]) as server:
        try:
            wait_until(lambda: Path(f"/proc/{server.pid}/comm").read_text().startswith("nvidia-cuda"), "the program")
            running = [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in ((server.pid, 30), (7, 5))]
            clients = [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in ((7, 10), (8, 2**64 - 1))]
            shared = device(
                nvmlDeviceGetComputeRunningProcesses=lambda _: running,
                nvmlDeviceGetMPSComputeRunningProcesses=lambda _: clients,
            )
            assert sorted(shared.processes()) == [(7, 10), (8, None)]
            old = device(nvmlDeviceGetComputeRunningProcesses=lambda _: running)
            assert old.processes() == [(7, 5)]
        finally:
            server.kill()


def test_field_values_have_the_type_that_the_library_says():
    def value(kind, **parts):
        return SimpleNamespace(valueType=kind, nvmlReturn=0, value=SimpleNamespace(**parts))

    answers = [value(1, uiVal=7), value(3, ullVal=2**40), value(0, dVal=1.5)]
    answers.append(SimpleNamespace(valueType=1, nvmlReturn=3, value=None))
    got = device(nvmlDeviceGetFieldValues=lambda handle, ids: answers).fields([(74, 0), (83, 0), (82, 0), (90, 0)])
    assert got == {(74, 0): 7.0, (83, 0): 2.0**40, (82, 0): 1.5}


def test_memory_before_the_second_version_of_the_call():
    def memory(handle, version=None):
        if version is not None:
            raise Error(13)
        return SimpleNamespace(used=5, total=9)

    assert device(nvmlDeviceGetMemoryInfo=memory).read(Reading.MEMORY) == [5, 9]


def test_of_the_encoder_the_share_alone_and_no_state_that_is_none():
    found = device(
        nvmlDeviceGetEncoderUtilization=lambda handle: [12, 1000], nvmlDeviceGetPerformanceState=lambda handle: 32
    )
    assert found.read(Reading.ENCODER) == [12]
    with pytest.raises(NotSupportedError):
        found.read(Reading.PERFORMANCE_STATE)


def test_the_first_profile_is_empty_and_samples_are_given_back():
    given: list[int] = []
    freed: list[int] = []

    def alloc():
        given.append(len(given))
        return given[-1]

    class Question(SimpleNamespace):
        def __init__(self):
            super().__init__(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(4)])

    def answer(question):
        for position in range(question.numMetrics):
            metric = question.metrics[position]
            metric.value = 10.0 * metric.metricId
            metric.nvmlReturn = 3 if metric.metricId == 5 else 0
        return question

    profiled = device(
        nvmlGpmQueryDeviceSupport=lambda handle: SimpleNamespace(isSupportedDevice=1),
        nvmlGpmSampleAlloc=alloc,
        nvmlGpmSampleGet=lambda handle, sample: None,
        nvmlGpmSampleFree=freed.append,
        nvmlGpmMetricsGet=answer,
        c_nvmlGpmMetricsGet_t=Question,
    )
    assert profiled.profile([1, 5]) == {}
    assert profiled.profile([1, 5]) == {1: 10.0}
    assert profiled.profile([1, 5]) == {1: 10.0}
    assert freed == [0, 1]


def test_process_utilization_is_the_mean_of_what_is_new():
    calls = []

    def samples(handle, since):
        calls.append(since)
        rows = [(7, 1000, 80), (7, 2000, 40), (9, 2000, 10)]
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in rows if at > since - 1]

    found = device(nvmlDeviceGetProcessUtilization=samples)
    assert found.process_utilization() == {}
    assert found.process_utilization() == {7: 40.0, 9: 10.0}
    assert calls == [0, 2000]


def test_the_real_module_has_everything_that_is_called():
    text = Path(binding.__file__).read_text()
    words = set(re.findall(r"\b(?:nvml|module|_nvml)\.((?:nvml|NVML|c_nvml)\w+)", text))
    assert len(words) > 20
    assert [word for word in words if not hasattr(pynvml, word)] == []
