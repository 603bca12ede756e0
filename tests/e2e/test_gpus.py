"""Tests of GPUs that fail under a running agent: the real agent and server, with a fake driver library.

The agent stays the same process throughout, and its other metrics keep arriving.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobmeter.model.time import SystemClock
from tests.support.nvml import Call, FakeNvml
from tests.support.processes import ServerProcess, run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
JOB = "4711"
NEWER = "580.10.02"
EVERY_GPU = sorted(f"gpu{number}" for number in range(4))


class Node:
    """Node with four GPUs, its agent, and the server's view of it."""

    def __init__(self, folder: Path, server: ServerProcess, stack: ExitStack) -> None:
        self.server = server
        self.driver = FakeNvml(folder, 4)
        stack.callback(self.driver.unblock)
        self.pid = self._started(stack, [sys.executable, "-c", "input()"], SLURM_JOB_ID=JOB, SLURM_PROCID="0").pid
        for number in (0, 1):
            self.driver.devices[number].run((self.pid, 2**30))
        command = [sys.executable, "-m", "jobmeter", "agent", "--server", server.url, "--key", server.token]
        options = ["--interval", "1s", "--node", "n1", "--spool", str(folder / "spool"), "--no-journal"]
        self.agent = self._started(stack, [*command, *options, "--no-kernel-log"], **self.driver.environment)

    def _started(self, stack: ExitStack, command: list[str], **environment: str) -> "subprocess.Popen[bytes]":
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **environment})
        )
        stack.callback(process.send_signal, signal.SIGTERM)
        return process

    def newest(self, metric: str, by: str = "device") -> dict[str, int]:
        """Return the start of each device's last bucket of a metric, within the last ten seconds."""
        path = "/api/jobmeter/v1/nodes/n1/metrics"
        reply = self.server.call("GET", path, metric=metric, by=by, since="10s", step="1s")
        lines = reply.json()["lines"] if reply.status == 200 else ()  # the server does not yet know the node
        return {line["device"] or "": line["points"][-1][0] for line in lines}

    def is_measured(self, *devices: str) -> bool:
        """Return True if these devices, and no others, have a GPM value since now."""
        now_ms = SystemClock().now_ms()
        found: list[str] = []
        wait_until(lambda: self.newest("node.load1", "node").get("", 0) > now_ms + 1_000, "a look of the agent")
        found = sorted(name for name, time in self.newest("gpu.sm.active").items() if time > now_ms)
        return found == sorted(devices)

    def events(self) -> list[tuple[str, str, str]]:
        done = self.cli("events", "--type", "device_fault", "--node", "n1")
        return [(one["reason"], one["job"], one["subject"]) for one in json.loads(done)]

    def states(self) -> dict[str, str]:
        """Return the unmeasured devices with their states, from `jobmeter nodes`."""
        (node,) = json.loads(self.cli("nodes"))
        return {one["device"]: one["state"] for one in node["info"].get("devices", ()) if "state" in one}

    def findings(self) -> list[dict[str, Any]]:
        return [one for one in json.loads(self.cli("diagnose", JOB)) if one["rule"] == "gpu_missing"]

    def cli(self, *arguments: str) -> str:
        done = run_cli(*arguments, "--json", "--server", self.server.url, "--key", self.server.token)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        server = stack.enter_context(running(tmp_path / "data"))
        yield Node(tmp_path, server, stack)


def test_an_agent_measures_what_is_left_and_what_comes_back(node: Node) -> None:
    # Before the driver library exists, the agent measures the host.
    wait_until(lambda: node.newest("node.load1", "node"), "the host is measured")
    assert node.newest("gpu.power") == {}

    # The library appears; one GPU cannot be opened, and one GPU of the job is lost.
    node.driver.devices[3].fail(4, Call.HANDLE)
    node.driver.install()
    wait_until(lambda: node.is_measured("gpu0", "gpu1", "gpu2"), "the library is found")
    node.driver.devices[1].fail(15)
    wait_until(lambda: node.is_measured("gpu0", "gpu2"), "one GPU is lost, and the others go on")
    wait_until(lambda: node.states() == {"gpu1": "lost", "gpu3": "no permission"}, "the node says why")
    assert {("GpuNotPermitted", "", "device gpu3"), ("GpuLost", JOB, "device gpu1")} <= set(node.events())
    (finding,) = wait_until(node.findings, "the finding of the job")
    assert finding["subject"] == {"kind": "device", "name": "n1/gpu1"}
    assert finding["severity"] == "critical"
    assert "lost" in finding["evidence"][0]["text"]

    # Both recover.
    for device in node.driver.devices:
        device.answer()
    wait_until(lambda: node.is_measured(*EVERY_GPU), "both are back")
    wait_until(lambda: node.states() == {}, "the node says so")
    assert ("GpuBack", JOB, "device gpu1") in node.events()

    # A call to one GPU blocks: the host and the other GPUs continue.
    node.driver.devices[2].block(1, Call.POWER)
    wait_until(lambda: node.is_measured("gpu0", "gpu1", "gpu3"), "a GPU blocks alone")
    wait_until(lambda: ("DeviceHangs", "", "device gpu2") in node.events(), "the event")
    wait_until(lambda: node.states() == {"gpu2": "hangs"}, "the node says so")
    node.driver.unblock()
    wait_until(lambda: node.is_measured(*EVERY_GPU), "the call returned")

    # The driver is replaced while the agent runs.
    node.driver.load_driver(NEWER)
    for device in node.driver.devices:
        device.fail(9)
    wait_until(lambda: ("DriverMismatch", "", "") in node.events(), "the mismatch")
    wait_until(lambda: set(node.states().values()) == {"library mismatch"}, "the node says so")
    node.driver.install(NEWER)
    for device in node.driver.devices:
        device.answer()
    wait_until(lambda: node.is_measured(*EVERY_GPU), "the new library is loaded")
    assert node.agent.poll() is None, "it was never started again"


def test_a_signal_releases_the_driver_of_a_running_agent(node: Node) -> None:
    node.driver.install()
    wait_until(lambda: node.is_measured(*EVERY_GPU), "the GPUs are measured")
    maps = Path(f"/proc/{node.agent.pid}/maps")
    assert str(node.driver.folder) in maps.read_text()
    pid = int((node.driver.file.parent / "spool/lock").read_text())
    assert pid == node.agent.pid
    os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: str(node.driver.folder) not in maps.read_text(), "the library is closed")
    wait_until(node.is_measured, "the host is measured, and no GPU")
    assert "DriverReleased" in node.cli("events", "--node", "n1")
    assert node.agent.poll() is None
