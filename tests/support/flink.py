"""Starts a real Flink on 127.0.0.1 from ``apache-flink`` of PyPI: one job manager and one task manager."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.clusters import free_ports, running
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("JOBMETER_FLINK") or ROOT / ".venvs" / "flink")
"""Python environment with ``apache-flink``, created by ``make flink``."""
JOBS = Path(__file__).parents[1] / "e2e" / "sdk" / "flink_jobs.py"
_JAVA = ("/usr/lib/jvm/java-17-openjdk-amd64", "/usr/lib/jvm/default-java")
_READY_SECONDS = 90.0


def needs_flink() -> None:
    """Skip the calling test if Flink or a JVM is missing."""
    if _distribution() is None:
        pytest.skip("apache-flink is not installed: make flink")
    if jvm() is None:
        pytest.skip("there is no JVM for Flink (Debian's package default-jre-headless)")


def _distribution() -> Path | None:
    return next(iter(HOME.glob("lib/python3*/site-packages/pyflink")), None)


def jvm() -> Path | None:
    places = [Path(place) for place in (os.environ.get("JAVA_HOME", ""), *_JAVA) if place]
    return next((place for place in places if (place / "bin/java").exists()), None)


class Flink:
    """Session cluster of Flink. The job manager reads metrics from its task managers every ``fetch_ms`` ms."""

    def __init__(self, folder: Path, *, slots: int = 8, fetch_ms: int = 10_000) -> None:
        found, java = _distribution(), jvm()
        assert found is not None
        assert java is not None
        self.folder = folder
        self._pyflink = found
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._http = urllib3.PoolManager(timeout=30, retries=False)
        self._ports = dict(zip(("rest", "rpc", "blob"), free_ports(3), strict=True))
        self.url = f"http://127.0.0.1:{self._ports['rest']}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLINK")},
            "JAVA_HOME": str(java),
            "FLINK_HOME": str(found),
            "FLINK_CONF_DIR": str(folder / "conf"),
            "FLINK_LOG_DIR": str(folder / "log"),
            "FLINK_PID_DIR": str(folder),
        }
        self._configure(slots, fetch_ms)

    def _configure(self, slots: int, fetch_ms: int) -> None:
        conf = self.folder / "conf"
        shutil.copytree(self._pyflink / "conf", conf)
        shipped = (conf / "config.yaml").read_text()
        java = re.search(r"^env:\n(?: .*\n)+", shipped, re.MULTILINE)
        values = {
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.bind-host": "127.0.0.1",
            "jobmanager.rpc.port": self._ports["rpc"],
            "jobmanager.memory.process.size": "1024m",
            "blob.server.port": self._ports["blob"],
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.memory.process.size": "1400m",
            "taskmanager.numberOfTaskSlots": slots,
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.port": self._ports["rest"],
            "io.tmp.dirs": self.folder / "tmp",
            "metrics.fetcher.update-interval": fetch_ms,
            "metrics.latency.interval": 1000,
            "execution.checkpointing.dir": f"file://{self.folder}/checkpoints",
        }
        text = "".join(f"{name}: {value}\n" for name, value in values.items())
        (conf / "config.yaml").write_text((java[0] if java else "") + text)
        (self.folder / "tmp").mkdir()
        (self.folder / "log").mkdir()

    def start(self, *names: str) -> None:
        """Start ``jobmanager`` and ``taskmanager``, or the named ones, and wait for their slots."""
        for name in names or ("jobmanager", "taskmanager"):
            with (self.folder / "log" / f"{name}.out").open("ab") as output:
                self._processes[name] = subprocess.Popen(
                    [self._pyflink / "bin" / f"{name}.sh", "start-foreground"],
                    env=self.environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        wait_until(self._slots, "the slots of Flink", _READY_SECONDS)

    def _slots(self) -> int:
        try:
            return int(self.get("/overview").get("slots-total", 0))
        except urllib3.exceptions.HTTPError:
            return 0

    def get(self, path: str) -> Any:
        """Return the decoded answer of the job manager."""
        return json.loads(self._http.request("GET", self.url + path).data)

    def cancel(self, job: str) -> None:
        """Cancel a job, without waiting for its end."""
        self._http.request("PATCH", f"{self.url}/jobs/{job}?mode=cancel")

    def state(self, job: str) -> str:
        """Return Flink's state of a job; empty for an unknown job."""
        return next((one["state"] for one in self.get("/jobs/overview")["jobs"] if one["jid"] == job), "")

    def submit(self, *names: str) -> dict[str, str]:
        """Submit jobs of ``flink_jobs.py``, and return their ids by name."""
        command = [str(HOME / "bin/python"), str(JOBS), "127.0.0.1", str(self._ports["rest"]), *names]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=180, check=False, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return found

    def kill(self, name: str) -> None:
        """Kill a process of the cluster with SIGKILL."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        """Kill all processes of the cluster."""
        for name in list(self._processes):
            self.kill(name)
        self._http.clear()


def cluster() -> AbstractContextManager[Flink]:
    """Run a cluster for the block, and kill its processes at the end."""
    return running("flink", Flink)
