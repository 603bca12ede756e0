"""Tests of ``jobmeter scheduler kubernetes`` during an outage of the API server: its messages, and its recovery."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until
from tests.unit.collect.scheduler.kubernetes.replay import PATHS, Replay, recorded, replaying


@contextmanager
def watcher(server: ServerProcess, folder: Path, kubeconfig: str) -> Iterator[Path]:
    """Run ``jobmeter scheduler kubernetes`` as a user starts it; yield its log."""
    (folder / "kubeconfig").write_text(kubeconfig)
    command = [sys.executable, "-m", "jobmeter", "scheduler", "kubernetes", "--cluster", "c", "--interval", "1s"]
    options = ["--server", server.url, "--key", server.token, "--kubeconfig", str(folder / "kubeconfig")]
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [*command, *options, "--spool", str(folder / "spool")], stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield folder / "log"
    finally:
        process.terminate()
        assert process.wait(30) == 0


def status(server: ServerProcess) -> list[tuple[str, bool]]:
    found = server.call("GET", "/api/jobmeter/v1/status").json()["schedulers"]
    return [(one["problem"], one["since"] is not None) for one in found]


def states(server: ServerProcess) -> dict[str, str]:
    return {job["id"]: job["state"] for job in server.call("GET", "/api/jobmeter/v1/jobs").json()["jobs"]}


def test_an_outage_is_reported_and_its_end(tmp_path: Path) -> None:
    first = Replay({path: recorded(name) for path, name in PATHS.items()})
    with running(tmp_path / "data") as server, ExitStack() as up:
        up.enter_context(replaying(first))
        with watcher(server, tmp_path, first.kubeconfig) as log:
            wait_until(lambda: states(server).get("two") == "Succeeded", "the recorded jobs")
            wait_until(lambda: status(server) == [("", False)], "a report")
            up.close()
            wait_until(lambda: [text for text, since in status(server) if "does not answer" in text and since])
            assert "does not answer" in log.read_text()
            assert "; since 20" in log.read_text()
            command = [sys.executable, "-m", "jobmeter", "status", "--server", server.url, "--key", server.token]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "kubernetes of cluster c: jobs are not up to date since 20" in out
            late = json.loads(recorded("pods")[-1])["object"]
            last = late["metadata"]["resourceVersion"]
            late["metadata"] |= {"uid": "late", "name": "late", "ownerReferences": []}
            # Only a full list contains the changes of the meantime, because the last version read is too old.
            again = Replay({path: [] for path in PATHS}, frozenset({last}), port=first.server_address[1])
            again.lists = {"/api/v1/pods": [json.dumps(late).encode()]}
            up.enter_context(replaying(again))
            wait_until(lambda: status(server) == [("", False)], "the end of the outage", 90)
            wait_until(lambda: "late" in states(server), "what came meanwhile", 90)
            assert "answers again, after" in log.read_text()
