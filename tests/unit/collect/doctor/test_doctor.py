"""Tests of the doctor's report on machines made of files and on possible answers of a server."""

import fcntl
import os
from email.utils import formatdate
from pathlib import Path
from threading import Event

import pytest
from tests.support.fakes import SetClock
from tests.support.nvml import Call
from tests.support.waiting import wait_until

from jobmeter.client.transport import Response, Transport
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.doctor.base import Check, SourceStatus, run_checks
from jobmeter.collect.doctor.delivery import check_server, check_spool
from jobmeter.collect.doctor.devices import check_found, list_device_checks
from jobmeter.collect.doctor.examine import Questions, examine
from jobmeter.collect.doctor.kernel import check_kernel
from jobmeter.collect.doctor.processes import check_events
from jobmeter.collect.doctor.rights import check_rights
from jobmeter.collect.doctor.schedulers import check_schedulers
from jobmeter.collect.machine import Machine
from jobmeter.collect.process_events.counts import ProcessCounts, make_counts_file
from jobmeter.collect.process_events.netlink import EventSocket
from jobmeter.errors import UnauthenticatedError, UnavailableError
from jobmeter.model.time import format_iso

NAMES = ("CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_NICE", "CAP_SYSLOG")
V1_MOUNTS = "".join(
    f"3{number} 30 0:{number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("cpu", "cpuacct", "memory", "blkio", "pids"))
)
V2_MOUNT = "30 29 0:26 / {root}/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def machine(tmp_path):
    """Return a machine without devices, schedulers or log sources."""
    for name in ("proc/self", "sys", "dev", "run", "var"):
        (tmp_path / name).mkdir(parents=True)
    places = {name: str(tmp_path / name) for name in ("proc", "sys", "dev", "run", "var")}
    write(tmp_path / "proc/self/status", "CapEff:\t0000000000000000\n")
    return Machine(**places)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("mask", "status", "named"),
    [
        ("000001ffffffffff", SourceStatus.OK, []),
        ("0000000000080000", SourceStatus.LIMITED, ["CAP_DAC_READ_SEARCH", "CAP_SYS_NICE", "CAP_SYSLOG"]),
        ("0000000400880004", SourceStatus.OK, []),
        ("0000000000000000", SourceStatus.LIMITED, list(NAMES)),
    ],
)
def test_the_capabilities_that_are_missing_are_named(machine, mask, status, named):
    write(Path(machine.proc, "self/status"), f"Name:\tx\nCapEff:\t{mask}\n")
    found = by_name(check_rights(machine, uid=1000))["capabilities"]
    assert found.status is status
    assert [name for name in NAMES if name in found.advice] == named


class Closed(EventSocket):
    def __init__(self):
        """Open no socket."""

    def close(self):
        """Close no socket."""


def refused():
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("begins", "ends", "status", "said"),
    [
        (Closed, Closed, SourceStatus.OK, "with their usage"),
        (Closed, refused, SourceStatus.LIMITED, "short processes are found, but their last usage cannot be read"),
        (refused, refused, SourceStatus.LIMITED, "are missed: their events cannot be read (Operation not permitted)"),
    ],
)
def test_events_of_processes(tmp_path, begins, ends, status, said):
    (check,) = check_events(tmp_path, begins, ends)
    assert (check.name, check.status) == ("events", status)
    assert said in check.text
    assert ("CAP_NET_ADMIN" in check.advice) == (status is SourceStatus.LIMITED)


@pytest.mark.parametrize(("problem", "said"), [("", "has missed 1,234"), ("not permitted", "has missed at most 1,234")])
def test_what_an_agent_has_missed_is_named(tmp_path, problem, said):
    make_counts_file(tmp_path).save(ProcessCounts(1_234, 1_795_000_000_000, problem))
    (check,) = check_events(tmp_path, Closed, Closed)
    assert f"since {format_iso(1_795_000_000_000)} the agent {said} processes" in check.text


def test_processes_whose_environment_is_hidden_are_counted(machine):
    for pid in ("1", "2", "3"):
        write(Path(machine.proc, pid, "cmdline"), f"p{pid}")
    write(Path(machine.proc, "1/environ"), "A=1")
    write(Path(machine.proc, "4/cmdline"), "")  # a kernel thread
    found = by_name(check_rights(machine, uid=1000))["processes"]
    assert (found.status, found.text.split(":")[0]) == (
        SourceStatus.LIMITED,
        "the environment of 1 of 3 processes can be read",
    )
    write(Path(machine.proc, "self/mounts"), "proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    assert "hidepid=invisible" in by_name(check_rights(machine, uid=1000))["processes"].text


def test_control_groups_of_each_version_and_none(machine):
    place = Path(machine.proc, "self/mountinfo")
    write(place, "")
    assert by_name(check_kernel(machine))["cgroups"].status is SourceStatus.LIMITED
    write(place, V1_MOUNTS)
    found = by_name(check_kernel(machine))["cgroups"]
    assert (found.status, found.text) == (SourceStatus.OK, "version 1: cpu, cpuacct, memory, blkio, pids")
    root = Path(machine.sys).parent
    write(place, V2_MOUNT.format(root=root))
    write(root / "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    found = by_name(check_kernel(machine))["cgroups"]
    assert (found.status, found.text) == (SourceStatus.OK, "version 2: cpuset, cpu, io, memory, pids")
    write(root / "sys/fs/cgroup/cgroup.controllers", "cpu pids\n")
    found = by_name(check_kernel(machine))["cgroups"]
    assert (found.status, found.text[-19:]) == (SourceStatus.LIMITED, "missing: memory, io")


def test_sources_of_the_kernel_that_are_not_there_or_not_read(machine):
    found = by_name(check_kernel(machine))
    assert {name: check.status for name, check in found.items() if name != "cgroups"} == dict.fromkeys(
        ("pressure", "log", "journal", "perf", "rapl", "ipmi"), SourceStatus.ABSENT
    )
    write(Path(machine.proc, "pressure/cpu"), "some avg10=0.00\n")
    write(Path(machine.proc, "sys/kernel/perf_event_paranoid"), "2\n")
    write(Path(machine.dev, "kmsg"), "")
    write(Path(machine.sys, "class/powercap/intel-rapl:0/energy_uj"), "5")
    write(Path(machine.sys, "class/powercap/intel-rapl:0/name"), "package-0")
    write(Path(machine.sys, "class/powercap/intel-rapl:0:0/name"), "dram")
    write(Path(machine.sys, "class/powercap/intel-rapl:0:1/name"), "core")
    write(Path(machine.dev, "ipmi0"), "")
    Path(machine.run, "log/journal").mkdir(parents=True)
    found = by_name(check_kernel(machine))
    assert (found["pressure"].status, found["log"].status) == (SourceStatus.OK, SourceStatus.OK)
    assert found["perf"].text.endswith("perf_event_paranoid is 2")
    assert found["rapl"].text == "1 of 2 energy counters of processors (RAPL) cannot be read"
    write(Path(machine.sys, "class/powercap/intel-rapl:0:0/energy_uj"), "7")
    assert by_name(check_kernel(machine))["rapl"].status is SourceStatus.OK
    assert "ipmi" in found["ipmi"].text
    assert found["journal"].status is SourceStatus.ABSENT, "an empty folder is no journal"


def nvidia(machine):
    return by_name(run_checks(list_device_checks(machine), 60.0))["nvidia"]


def test_a_machine_without_devices(machine, make_driver):
    make_driver(0)
    assert {check.status for check in run_checks(list_device_checks(machine), 60.0)} == {SourceStatus.ABSENT}


def test_gpus_that_are_measured_and_why_others_are_not(machine, driver):
    for number in range(8):
        write(Path(machine.dev, f"nvidia{number}"), "")
    write(Path(machine.dev, "nvidiactl"), "")
    assert (nvidia(machine).status, nvidia(machine).text) == (SourceStatus.OK, "8 GPUs (NVIDIA H200)")
    write(Path(machine.dev, "nvidia8"), "")
    assert (nvidia(machine).status, nvidia(machine).text) == (SourceStatus.PROBLEM, "8 of 9 GPUs answer (NVIDIA H200)")
    driver.devices[3].fail(15, Call.HANDLE)
    driver.devices[5].fail(4, Call.HANDLE)
    found = nvidia(machine)
    why = "gpu3: lost (GPU is lost); gpu5: no permission (Insufficient Permissions)"
    assert (found.status, found.text) == (SourceStatus.PROBLEM, f"6 of 8 GPUs are measured (NVIDIA H200); {why}")
    for device in driver.devices:
        device.fail(16, Call.HANDLE)
    assert nvidia(machine).text.endswith("gpu3: reset required (GPU requires restart); and 4 more")
    assert "--gpu-reset" in nvidia(machine).advice


def test_a_gpu_that_blocks(machine, driver):
    nvml = PynvmlLibrary(patience=1.0)
    driver.devices[3].block(1, Call.HANDLE)
    found = check_found(machine, VENDOR, nvml.list_devices(), nvml.problem)
    driver.unblock()
    wait_until(lambda: not any(device.busy for device in nvml.list_devices()), "the call returns")
    nvml.close()
    assert (found.status, found.text) == (SourceStatus.PROBLEM, "7 of 8 GPUs are measured (NVIDIA H200); gpu3: hangs")


@pytest.mark.parametrize(
    ("fault", "text", "advice"),
    [
        (lambda driver: driver.load_driver("580.10.02"), "library mismatch", "the driver was replaced"),
        (
            lambda driver: (driver.folder / "libnvidia-ml.so.1").unlink(),
            "library missing",
            "NVIDIA_DRIVER_CAPABILITIES",
        ),
        (lambda driver: driver.load_driver(""), "driver not loaded", "modprobe"),
        (lambda driver: driver.fail(999), "lost", "nvidia-smi"),
    ],
)
def test_a_library_that_cannot_be_used(machine, driver, fault, text, advice):
    fault(driver)
    write(Path(machine.dev, "nvidia0"), "")
    found = nvidia(machine)
    assert found.status is SourceStatus.PROBLEM
    assert text in found.text
    assert advice in found.advice


def test_devices_of_others(machine, make_driver):
    make_driver(0)
    write(Path(machine.dev, "davinci0"), "")
    write(Path(machine.dev, "davinci_manager"), "")
    write(Path(machine.sys, "class/drm/card0/device/vendor"), "0x1002\n")
    write(Path(machine.sys, "class/drm/card0/device/device"), "0x74a1\n")
    write(Path(machine.sys, "class/drm/card0/device/uevent"), "PCI_SLOT_NAME=0000:09:00.0\n")
    Path(machine.sys, "bus/pci/drivers/amdgpu/0000:09:00.0").mkdir(parents=True)
    found = by_name(run_checks(list_device_checks(machine), 60.0))
    assert (found["amd"].status, found["amd"].text) == (SourceStatus.OK, "1 GPUs (AMD 0x74a1)")
    assert found["ascend"].text == "no NPU is measured: libdcmi.so cannot be found (library missing)"


class Answers(Transport):
    """Transport with fixed bodies and errors by path."""

    server = "https://jobmeter.example"

    def __init__(self, key="token", **answers):
        self.key = key
        self._answers = {"readyz": Response(200, {}, b"ready\n")} | answers

    def request(self, method, path, body=None, headers=None):
        found = self._answers[path.rpartition("/")[2]]
        if isinstance(found, Exception):
            raise found
        return found


def health(clock, ahead_seconds=0.0):
    stamp = formatdate(clock.now_ms() / 1000 - ahead_seconds, usegmt=True)
    return Response(200, {"date": stamp}, b"ok")


WRITER = Response(200, {}, b'{"id":"k","name":"nodes","role":"writer","project":null}')
READER = Response(200, {}, b'{"id":"k","name":"eyes","role":"reader","project":"p1"}')


@pytest.mark.parametrize(
    ("ahead", "status"),
    [
        (0, SourceStatus.OK),
        (3, SourceStatus.OK),
        (60, SourceStatus.LIMITED),
        (-60, SourceStatus.LIMITED),
        (-4000, SourceStatus.LIMITED),
        (400, SourceStatus.PROBLEM),
    ],
)
def test_clocks_that_disagree(ahead, status):
    clock = SetClock()
    found = by_name(check_server(Answers(healthz=health(clock, ahead), whoami=WRITER), clock))
    assert found["clock"].status is status
    assert found["server"].status is found["key"].status is SourceStatus.OK


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (Response(200, {}, b"ready\n"), SourceStatus.OK, "no damage"),
        (
            Response(200, {}, b"ready, degraded: 1 of journal with 10 rows\n"),
            SourceStatus.LIMITED,
            "1 of journal with 10 rows",
        ),
        (UnavailableError("the store does not answer"), SourceStatus.PROBLEM, "the store does not answer"),
    ],
)
def test_damage_to_what_the_server_stored_is_reported(answer, status, said):
    clock = SetClock()
    found = by_name(check_server(Answers(healthz=health(clock), whoami=WRITER, readyz=answer), clock))["stored"]
    assert (found.status, said in found.text) == (status, True)


@pytest.mark.parametrize(
    ("key", "answer", "said"),
    [
        ("", WRITER, "no key is given"),
        ("token", READER, "key 'eyes', reader, project p1: it may not write"),
        ("token", UnauthenticatedError("it was revoked"), "the server does not accept the key: it was revoked"),
        ("token", UnavailableError("busy"), "the server does not report the key's owner: busy"),
    ],
)
def test_a_key_that_is_of_no_use_is_a_problem(key, answer, said):
    clock = SetClock()
    found = by_name(check_server(Answers(key, healthz=health(clock), whoami=answer), clock))["key"]
    assert (found.status, found.text) == (SourceStatus.PROBLEM, said)


def test_a_server_that_does_not_answer_and_none_at_all():
    clock = SetClock()
    (away,) = check_server(Answers(healthz=UnavailableError("no answer from there")), clock)
    assert (away.status, away.text) == (SourceStatus.PROBLEM, "no answer from there")
    (none,) = check_server(None, clock)
    assert none.status is SourceStatus.ABSENT
    (silent,) = [
        check
        for check in check_server(Answers(healthz=Response(200, {}, b""), whoami=WRITER), clock)
        if check.name == "clock"
    ]
    assert silent.status is SourceStatus.LIMITED


def test_a_spool_in_each_state(machine, tmp_path):
    folder = tmp_path / "spool"
    clock = SetClock()

    def said():
        return by_name(check_spool(machine, folder, clock))["spool"]

    assert said().text.endswith("is empty: no agent has used it yet")
    write(folder / "lock", "")
    assert said().status is SourceStatus.OK
    segment = folder / "000000000001.frames"
    write(segment, "x" * 2**20)
    os.utime(segment, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    assert (said().status, "1.0 MiB wait, no agent uses it now" in said().text) == (SourceStatus.LIMITED, True)
    place = (folder / "lock").stat()
    where = f"{os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino}"
    write(Path(machine.proc, "locks"), f"1: FLOCK  ADVISORY  WRITE 77 {where} 0 EOF\n")
    assert (said().status, "the agent with pid 77 uses it" in said().text) == (SourceStatus.OK, True)
    os.utime(segment, (0, 0))
    assert (said().status, "the oldest since 1970-01-01" in said().text) == (SourceStatus.PROBLEM, True)
    write(folder / "rejected/1.frames", "")
    assert (said().status, "1 refused bodies are quarantined" in said().text) == (SourceStatus.PROBLEM, True)


def test_the_kernel_reports_who_has_a_spool_open(tmp_path):
    write(tmp_path / "lock", "")
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = by_name(check_spool(Machine(), tmp_path, SetClock()))["spool"].text
    assert f"pid {os.getpid()} uses it" in text


def test_schedulers_that_are_not_here(machine):
    found = by_name(check_schedulers(machine, {"PATH": "/nowhere"}, flink="http://127.0.0.1:9"))
    assert (found["slurm"].status, found["kubernetes"].status) == (SourceStatus.ABSENT, SourceStatus.ABSENT)
    assert found["flink"].status is SourceStatus.PROBLEM, "it was named"


def test_a_node_of_slurm_and_of_kubernetes(machine, tmp_path):
    write(Path(machine.proc, "7/comm"), "slurmd\n")
    write(Path(machine.proc, "8/comm"), "kubelet\n")
    found = by_name(check_schedulers(machine, {"PATH": "/nowhere"}, flink="not an address"))
    assert (found["slurm"].status, found["kubernetes"].status) == (SourceStatus.OK, SourceStatus.LIMITED)
    Path(machine.var, "log/containers").mkdir(parents=True)
    ping = tmp_path / "bin/scontrol"
    write(ping, "#!/bin/sh\necho 'Slurmctld(primary) at head is UP'\n")
    ping.chmod(0o755)
    write(tmp_path / "slurm.conf", "ClusterName=alpha\n")
    environment = {"PATH": f"{ping.parent}:{os.environ['PATH']}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    found = by_name(check_schedulers(machine, environment, kubeconfig=str(tmp_path / "none")))
    assert found["slurm"].text == "slurmd of cluster alpha runs here; Slurmctld(primary) at head is UP"
    assert found["kubernetes"].status is SourceStatus.PROBLEM
    write(ping, "#!/bin/sh\necho 'Slurmctld(primary) at head is DOWN'\nexit 1\n")
    assert by_name(check_schedulers(machine, environment))["slurm"].status is SourceStatus.PROBLEM


def test_a_check_that_fails_costs_itself_alone(machine, tmp_path):
    broken = Machine(**{**{name: getattr(machine, name) for name in machine.__slots__}, "proc": "/nowhere"})
    questions = Questions(environment={"PATH": "/nowhere"}, transport=None, spool=tmp_path)
    found = examine(broken, questions, SetClock())
    assert [check.area for check in found if check.name == "check"] == ["rights", "schedulers"]
    assert {"cgroups", "nvidia", "server", "spool"} <= {check.name for check in found}


def test_a_check_that_hangs_costs_itself_alone():
    release = Event()

    def hangs():
        yield Check("kernel", "log", SourceStatus.OK, "was made before")
        release.wait()

    try:
        found = run_checks({("kernel", "check"): hangs, ("delivery", "spool"): list}, 0.5)
        assert [check.text for check in found] == ["was made before", "the check did not end within 0 s"]
        assert found[1] == Check("kernel", "check", SourceStatus.PROBLEM, found[1].text)
    finally:
        release.set()
