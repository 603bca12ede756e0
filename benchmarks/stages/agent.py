"""Cost of the agent and of node_exporter on a node with eight devices and 500 processes, at two intervals."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from tests.support.nvml import FakeNvml

from benchmarks.client import Request, answer
from benchmarks.contestant import running
from benchmarks.ours import Jobmeter
from benchmarks.plan import Plan
from benchmarks.processes import cpu_seconds, free_port, resident_megabytes, running_plain
from benchmarks.row import OURS, PROMETHEUS, Table

_START_SECONDS = 5.0
_DEVICES, _JOBS, _OF_JOBS, _OTHERS = 8, 6, 300, 200
_PACES = {"": 10.0, ".1s": 1.0}


class _Relay:
    """Proxy between agent and server that counts the bytes from the agent."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65_536):
                self.sent += len(part) if counted else 0
                target.sendall(part)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _processes() -> Iterator[None]:
    """Run 500 sleeping processes while the context lasts.

    Each of the six jobs has one parent with its children. The other 200 processes belong to no job.
    """
    code = "for _ in $(seq {}); do sleep 3600 & done; wait"
    started: list[subprocess.Popen[bytes]] = []
    try:
        for job in range(_JOBS):
            tags = {"JOBMETER_JOB_ID": f"bench-{job}", "JOBMETER_REPLICA": "worker-0"}
            command = ["sh", "-c", code.format(_OF_JOBS // _JOBS - 1)]
            started.append(subprocess.Popen(command, env={**os.environ, **tags}, start_new_session=True))
        started.append(subprocess.Popen(["sh", "-c", code.format(_OTHERS - 1)], start_new_session=True))
        yield
    finally:
        for process in started:
            os.killpg(process.pid, 15)
            process.wait()


def measure(plan: Plan, table: Table) -> None:
    """Measure ``jobmeter agent`` after its start, then node_exporter, at each interval."""
    ours = Jobmeter()
    with running([ours]), tempfile.TemporaryDirectory() as folder, _processes():
        driver = FakeNvml(Path(folder), _DEVICES)
        driver.install()
        for key, interval in _PACES.items():
            _agent(plan, table, ours, Path(folder), driver.environment, key, interval)
            _exporter(plan, table, Path(folder), key, interval)
        driver.close()


def _agent(
    plan: Plan, table: Table, ours: Jobmeter, folder: Path, driver: Mapping[str, str], key: str, interval: float
) -> None:
    relay = _Relay(ours.port)
    node = f"bench{key}"
    command = [sys.executable, "-m", "jobmeter", "agent", "--server", f"http://127.0.0.1:{relay.port}"]
    command += ["--key", ours.token, "--interval", f"{interval:g}s", "--spool", str(folder / node), "--node", node]
    with running_plain(
        ["env", *(f"{name}={value}" for name, value in driver.items()), *command], folder / "log"
    ) as one:
        time.sleep(_START_SECONDS)
        before, sent, begin = cpu_seconds(one.pid), relay.sent, time.monotonic()
        time.sleep(max(plan.agent_seconds, 2 * interval))
        passed = time.monotonic() - begin
        table.add(f"agent{key}.cpu", OURS, (cpu_seconds(one.pid) - before) / passed * 100)
        table.add(f"agent{key}.memory", OURS, resident_megabytes(one.pid))
        table.add(f"agent{key}.bytes", OURS, (relay.sent - sent) / passed / 1024)
        table.add(f"agent{key}.tick", OURS, _longest(ours, node, passed))
    relay.close()


def _longest(ours: Jobmeter, node: str, seconds: float) -> float:
    """Return the duration in milliseconds of the slowest collector on a node in the last ``seconds``.

    Collectors run in parallel, so the slowest one determines the length of a collection.
    """
    query = f'max(max_over_time(jobmeter_agent_collect_duration_seconds{{node="{node}"}}[{round(seconds)}s]))'
    path = f"/prometheus/api/v1/query?query={quote(query)}"
    found = json.loads(answer(Request(ours.port, path, ours.headers)))["data"]["result"]
    return max(float(one["value"][1]) for one in found) * 1000


def _exporter(plan: Plan, table: Table, folder: Path, key: str, interval: float) -> None:
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        return
    port = free_port()
    with running_plain([program, f"--web.listen-address=127.0.0.1:{port}"], folder / "exporter") as one:
        before, begin, received = cpu_seconds(one.pid), time.monotonic(), 0
        while (passed := time.monotonic() - begin) < max(plan.agent_seconds, 2 * interval):
            with socket.create_connection(("127.0.0.1", port)) as link:
                link.sendall(b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
                while part := link.recv(65_536):
                    received += len(part)
            time.sleep(max(interval - (time.monotonic() - begin - passed), 0.0))
        passed = time.monotonic() - begin
        table.add(f"agent{key}.cpu", PROMETHEUS, (cpu_seconds(one.pid) - before) / passed * 100)
        table.add(f"agent{key}.memory", PROMETHEUS, resident_megabytes(one.pid))
        table.add(f"agent{key}.bytes", PROMETHEUS, received / passed / 1024)
