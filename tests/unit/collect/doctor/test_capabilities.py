"""Tests that the doctor names exactly the capabilities that the agent's code uses."""

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from jobmeter.collect.doctor.rights import CAPABILITIES

TRY = """
import ctypes, json, os, sys
from jobmeter.collect import files
from jobmeter.collect.accelerators.registry import list_vendors
from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.ends import take_precedence
from jobmeter.collect.process.stat import read_io
from jobmeter.collect.syslog.kernel import DEVICE

list_vendors()  # their modules are imported while Python's own may be read
mask, process, log = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
system = ctypes.CDLL(None, use_errno=True)
system.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
low, high = mask & 0xFFFFFFFF, mask >> 32
assert system.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)) == 0

def kernel_log():
    try:
        os.close(os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True

environment = read_environment("/proc", process) == {"RANK": "5"}
print(json.dumps({
    "log files": files.read(log) is not None,
    "precedence": take_precedence(),
    "processes": environment and read_io("/proc", process) is not None,
    "the kernel's log": kernel_log(),
}))
"""
"""Program that reads like the agent, as user 65534 with given capabilities, and prints what it could read."""

NEEDED = {
    "log files": {"CAP_DAC_READ_SEARCH"},
    "precedence": {"CAP_SYS_NICE"},
    "processes": {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"},
    "the kernel's log": {"CAP_SYSLOG"},
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give and take capabilities")


def restricted() -> bool:
    return Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "0"


def able(numbers, process, log):
    mask = sum(1 << number for number in numbers)
    command = [sys.executable, "-c", TRY, str(mask), str(process), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_doctors_list_is_what_the_agent_makes_use_of(tmp_path):
    names = {number: name for number, (name, _) in CAPABILITIES.items()}
    assert set(names.values()) == set().union(*NEEDED.values())
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o700)
    log = folder / "app.log"
    log.write_text("line\n")
    log.chmod(0o600)
    with subprocess.Popen(["sleep", "600"], env={"RANK": "5"}) as process:
        try:
            for few in (*combinations(names, len(names) - 1), tuple(names), ()):
                given = {names[number] for number in few}
                expected = {what: needed <= given for what, needed in NEEDED.items()}
                if not restricted():
                    expected["the kernel's log"] = True
                assert able(few, process.pid, log) == expected, given
        finally:
            process.kill()
