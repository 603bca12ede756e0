"""Tests of a job with 48 ranks on 6 nodes, an agent process for each node: failures are reported, and nothing is lost.

``make test-clusters`` uses 16 nodes with 128 ranks. The nodes are simulated (``simulated_node``); the agents, their
spools, their connections and the server are real.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobmeter.client.api import Api
from jobmeter.client.searches import MetricSearch
from jobmeter.model.finding import Finding
from jobmeter.model.job import AllocationSource, JobState
from jobmeter.model.job_answers import JobDetail
from jobmeter.model.time import SystemClock
from tests.e2e.simulated_node import RANKS, Plan, node_folder, node_name
from tests.support.processes import ServerProcess, running
from tests.support.proxy import Proxy, proxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
NODES = 16 if os.environ.get("JOBMETER_CLUSTERS") else 6
JOB = "4711"
CUT, REBOOTS = 3, 5
SLOW, IDLE, MISPLACED = 37, 18, 14
LOOKS = 24
"""Number of scans of every agent. Scans of a restarted agent count together."""
RULES = '[common]\nminute = "500ms"\n'


@dataclass
class Fleet:
    """Agents of a finished job, and the data they left behind."""

    server: ServerProcess
    plan: Plan
    path: Path
    agents: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(self, number: int, life: int = 1) -> None:
        command = [sys.executable, "-m", "tests.e2e.simulated_node", str(self.path), str(number), str(life)]
        with node_folder(self.plan, number).joinpath("log").open("ab") as log:
            self.agents[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def looks(self, number: int) -> list[list[int]]:
        """Return by scan the number of the job's samples, the collectors' samples, and all including the agent's."""
        path = node_folder(self.plan, number) / "measured"
        text = path.read_text() if path.exists() else ""
        return [[int(word) for word in line.split()] for line in text.split("\n")[:-1]]

    def log(self, number: int) -> str:
        return (node_folder(self.plan, number) / "log").read_text()

    def record(self, **fields: Any) -> None:
        """Send the scheduler's record of the job."""
        self.server.request("POST", "/jobs", {"job_id": JOB, **fields})

    def end(self) -> dict[int, int]:
        """Stop every agent, and return the exit statuses."""
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
        return {number: agent.wait(60) for number, agent in self.agents.items()}

    @property
    def api(self) -> Api:
        return Api(self.server.transport())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "rules.toml").write_text(RULES)
    with ExitStack() as stack:
        environment = {"JOBMETER_RULES": str(folder / "rules.toml")}
        server = stack.enter_context(running(folder / "data", environment=environment))
        network = stack.enter_context(proxy(server.port))
        urls = [network.url if number == CUT else server.url for number in range(NODES)]
        plan = Plan(
            job=JOB,
            folder=str(folder),
            key=server.token,
            servers=urls,
            slow=SLOW,
            idle=IDLE,
            misplaced=MISPLACED,
            power_cut=REBOOTS,
            frames=LOOKS // 2,
        )
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        found = Fleet(server, plan, folder / "plan.json")
        for number in range(NODES):
            node_folder(plan, number).mkdir()
        try:
            _go_through(found, network)
            yield found
        finally:
            for agent in found.agents.values():
                if agent.poll() is None:
                    agent.kill()
                agent.wait()


def _go_through(fleet: Fleet, network: Proxy) -> None:
    """Run the whole life of the job."""
    began = SystemClock().now_ms()
    fleet.record(name="pretrain", type="Slurm", state="Running", start=began)
    for number in range(NODES):
        fleet.start(number)
    wait_until(lambda: len(fleet.looks(CUT)) > 5, "the first looks")
    network.cut()
    assert fleet.agents[REBOOTS].wait(60) == -signal.SIGKILL
    fleet.start(REBOOTS, life=2)
    away = len(fleet.looks(CUT))
    wait_until(lambda: len(fleet.looks(CUT)) > away + 5, "looks without a network")
    network.mend()
    wait_until(lambda: all(len(fleet.looks(number)) >= LOOKS for number in range(NODES)), "the looks of all", 180)
    ended = fleet.end()
    assert ended == dict.fromkeys(range(NODES), 0), [fleet.log(number) for number, status in ended.items() if status]
    ranks = [{"name": f"worker-{rank}", "state": "Succeeded", "exit_code": 0} for rank in range(NODES * RANKS)]
    fleet.record(state="Succeeded", end=SystemClock().now_ms(), replicas=ranks)


@pytest.fixture(scope="module")
def detail(fleet: Fleet) -> JobDetail:
    return fleet.api.read_job(JOB)


@pytest.fixture(scope="module")
def findings(fleet: Fleet) -> list[Finding]:
    return fleet.api.list_findings(JOB)


def test_the_facts_of_the_job_are_right(detail: JobDetail) -> None:
    job = detail.job
    assert (job.id, job.name, job.user, job.type, job.state) == (JOB, "pretrain", "ada", "Slurm", JobState.SUCCEEDED)
    ranks = {f"worker-{rank}": (rank, node_name(rank // RANKS), "sim") for rank in range(NODES * RANKS)}
    assert {one.name: (one.rank, one.node, one.cluster) for one in detail.replicas} == ranks
    assert {one.attempt for one in detail.replicas} == {0}
    assert Counter(one.state for one in detail.replicas) == {JobState.SUCCEEDED: NODES * RANKS}
    assert sorted(detail.nodes) == [node_name(number) for number in range(NODES)]


def test_every_rank_has_its_own_device_and_the_misplaced_one_two(detail: JobDetail) -> None:
    observed = [one for one in detail.allocations if one.source is not AllocationSource.IMPORT]
    had = {(one.replica, one.node, one.device, one.source) for one in observed}
    usual = {
        (f"worker-{rank}", node_name(rank // RANKS), f"gpu{rank % RANKS}", AllocationSource.PROCESS)
        for rank in range(NODES * RANKS)
        if rank != MISPLACED
    }
    node, given, used_device = node_name(MISPLACED // RANKS), f"gpu{MISPLACED % RANKS}", f"gpu{MISPLACED % RANKS + 1}"
    assert had - usual == {
        (f"worker-{MISPLACED}", node, used_device, AllocationSource.PROCESS),
        (f"worker-{MISPLACED}", node, given, AllocationSource.ENVIRONMENT),
    }
    assert usual <= had
    assert len({(one.node, one.device) for one in detail.allocations}) == NODES * RANKS


def test_nothing_is_lost(fleet: Fleet) -> None:
    metrics = sorted({one["name"] for one in fleet.server.request("GET", "/catalog").json()["metrics"]})
    chosen = [name for name in metrics if not name.startswith("agent.")]
    stored: Counter[str] = Counter()
    for first in range(0, len(chosen), 20):
        search = MetricSearch(metrics=chosen[first : first + 20], start=0)
        for line in b"".join(fleet.api.stream_samples(JOB, search, "json")).splitlines():
            stored[json.loads(line)["node"]] += 1
    measured = {node_name(number): sum(_column(fleet, number, 0)) for number in range(NODES)}
    assert dict(stored) == measured
    # Rows that were sent twice count twice until the engine has merged them.
    assert fleet.api.read_status().rows["samples"] >= sum(sum(_column(fleet, number, 2)) for number in range(NODES))


def test_the_agents_counted_the_same_and_gave_nothing_up(fleet: Fleet) -> None:
    for number in range(NODES):
        most = _of_agent(fleet, number, "agent.samples", "last")
        used_device = _column(fleet, number, 1)
        # The counter of a killed agent restarts at 0.
        assert most == sum(used_device) if number != REBOOTS else 0 < most < sum(used_device)
        assert _of_agent(fleet, number, "agent.dropped", "max") == 0
        assert _of_agent(fleet, number, "agent.spool.damaged", "max") == 0


def _column(fleet: Fleet, number: int, column: int) -> list[int]:
    return [look[column] for look in fleet.looks(number)]


def _of_agent(fleet: Fleet, number: int, metric: str, statistic: str) -> float:
    path = f"/api/jobmeter/v1/nodes/{node_name(number)}/metrics"
    answer = fleet.server.call("GET", path, metric=metric, statistic=statistic, step="1h").json()
    values = [value for line in answer["lines"] for _, value in line["points"]]
    assert values, answer
    return float(max(values))


def test_the_network_was_away(fleet: Fleet) -> None:
    away = [
        number for number in range(NODES) if "samples cannot be delivered and stay in the spool" in fleet.log(number)
    ]
    assert away == [CUT]


def test_the_slow_rank_is_named(findings: list[Finding]) -> None:
    (slow,) = [one for one in findings if one.rule == "straggler_gpu"]
    assert slow.subject.name == f"{node_name(SLOW // RANKS)}/gpu{SLOW % RANKS}"
    assert {evidence.replica for evidence in slow.evidence} == {f"worker-{SLOW}"}


def test_idle_devices_are_named(findings: list[Finding]) -> None:
    """The process of one device is idle; another device is unused, because its rank computes elsewhere."""
    rules = {"gpu_idle_allocated": IDLE, "gpu_no_process": MISPLACED}
    found = {(one.rule, one.subject.name) for one in findings if one.rule in rules}
    assert found == {(rule, f"{node_name(rank // RANKS)}/gpu{rank % RANKS}") for rule, rank in rules.items()}


def test_the_disagreement_is_named(findings: list[Finding]) -> None:
    (found,) = [one for one in findings if one.rule == "allocation_mismatch"]
    assert found.subject.name == f"{node_name(MISPLACED // RANKS)}/gpu{MISPLACED % RANKS + 1}"
    (evidence,) = found.evidence
    assert evidence.replica == f"worker-{MISPLACED}"
    assert f"but NVIDIA_VISIBLE_DEVICES gives it gpu{MISPLACED % RANKS}" in evidence.text


def test_only_the_node_that_lost_power_is_reported_as_started_again(fleet: Fleet) -> None:
    events = fleet.server.call("GET", "/api/jobmeter/v1/events", type="node_rebooted").json()["events"]
    assert [one["node"] for one in events] == [node_name(REBOOTS)]


def test_the_use_of_both_lives_of_a_rank_counts(fleet: Fleet) -> None:
    ranks = [f"worker-{REBOOTS * RANKS}", "worker-0"]
    search = MetricSearch(metrics=["cpu.time"], start=0, replicas=ranks)
    read: dict[str, list[tuple[int, float]]] = {}
    for line in b"".join(fleet.api.stream_samples(JOB, search, "json")).splitlines():
        one = json.loads(line)
        read.setdefault(one["replica"], []).append((one["time"], one["value"]))
    falls = {name: sum(b[1] < a[1] for a, b in pairwise(own)) for name, own in read.items()}
    assert falls == {ranks[0]: 1, ranks[1]: 0}
