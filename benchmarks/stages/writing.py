"""Writing: Prometheus remote write from the scraper of a fleet, and the bodies of a thousand agents."""

from collections.abc import Sequence

import numpy as np

from benchmarks.client import Drive, Post, drive
from benchmarks.contestant import Contestant, Template, running
from benchmarks.data import Names
from benchmarks.ours import Jobmeter, JobmeterOfTwo
from benchmarks.peers import contestants
from benchmarks.plan import Plan
from benchmarks.processes import cpu_seconds
from benchmarks.protobuf import HEADERS, RemoteTemplate
from benchmarks.questions import now_ms
from benchmarks.row import Table
from jobmeter.model.catalog import METRICS, Kind, MetricScope

STEP_MS = 10_000
REMOTE_BODIES = 80
AGENT_TIMES = 3
AGENT_SERIES, AGENT_CONNECTIONS = 320, 16
AGENT_DEVICES, NODES_A_JOB = 8, 8
_ROUND_SECONDS = 5.0
"""Time limit of a round in seconds: no body is sent after it."""


def remote(plan: Plan, table: Table) -> None:
    """Measure remote write over one and over four connections.

    Each connection has its own ``plan.series`` series, and each request holds one sample of every series. Only the
    first request, which is not counted, creates series.
    """
    for connections in (1, 4):
        with running(contestants()) as everybody:
            writers = []
            for one in everybody:
                where = Post(one.port, "/api/v1/write", {**HEADERS, **one.headers})
                senders = [RemoteTemplate(_exported(sender, plan.series)) for sender in range(connections)]
                writers.append(_Writer(one, where, senders, plan.series, connections))
            _rounds(plan, table, f"remote.{connections}", writers, REMOTE_BODIES // connections)


def agents(plan: Plan, table: Table) -> None:
    """Measure agents' bodies: native frames to Jobmeter, remote write, like that of vmagent, to the peers."""
    _write_bodies(plan, table, "agents.rate", Jobmeter)


def bodies(plan: Plan, table: Table) -> None:
    """Measure agents' bodies to a server with two worker processes."""
    _write_bodies(plan, table, "bodies.rate", JobmeterOfTwo)


def _write_bodies(plan: Plan, table: Table, key: str, ours: type[Jobmeter]) -> None:
    fleet = [_measured(agent) for agent in range(plan.agents)]
    with running(contestants(ours)) as everybody:
        writers = []
        for one in everybody:
            senders = [one.template(series) for series in fleet]
            writers.append(_Writer(one, one.written(), senders, AGENT_SERIES, AGENT_CONNECTIONS))
        _rounds(plan, table, key, writers, AGENT_TIMES)


class _Writer:
    """Senders that write into one contestant over several connections."""

    def __init__(
        self, one: Contestant, where: Post, senders: Sequence[Template], series: int, connections: int
    ) -> None:
        self.one = one
        self.series = series
        self._where = where
        self._senders = senders
        self._connections = min(connections, len(senders))
        self._values = np.round(np.random.default_rng(5).random(series), 2)

    def write(self, stamps: Sequence[int], seconds: float | None) -> Drive:
        """Send a body of each sender for each timestamp (ms). Bodies are encoded before the first one is sent.

        After ``seconds`` no further body is sent, but at least three are sent.
        """
        lanes: list[list[bytes]] = [[] for _ in range(self._connections)]
        for stamp in stamps:
            values = np.roll(self._values, stamp // STEP_MS)
            for number, sender in enumerate(self._senders):
                body = sender.patch(stamp, values)
                lanes[number % self._connections].append(self._where.encode(body))
        return drive(self.one.port, [iter(lane) for lane in lanes], seconds)


def _rounds(plan: Plan, table: Table, key: str, writers: Sequence[_Writer], times: int) -> None:
    """Measure ``plan.rounds`` rounds with ``times`` samples of each series. The last round ends at the current time.

    Before the first round every series is written once, which is not counted.
    """
    first = now_ms() // STEP_MS * STEP_MS - (plan.rounds * times + 1) * STEP_MS
    for writer in writers:
        writer.write([first - STEP_MS], None)
    for turn in range(plan.rounds):
        stamps = range(first + turn * times * STEP_MS, first + (turn + 1) * times * STEP_MS, STEP_MS)
        for writer in writers if turn % 2 == 0 else writers[::-1]:
            name, before = writer.one.name, cpu_seconds(writer.one.pid)
            written = writer.write(stamps, _ROUND_SECONDS)
            table.add(key, name, written.rate * writer.series)
            samples = len(written.times) * writer.series
            table.add(f"{key}.cpu", name, (cpu_seconds(writer.one.pid) - before) / samples * 1e6)
            table.add(f"{key}.client", name, written.share)


def _measured(agent: int) -> list[Names]:
    """Return the series of one agent, which runs on the node of one replica: eight devices with forty metrics each."""
    count = AGENT_SERIES // AGENT_DEVICES
    metrics = [one.name for one in METRICS if one.scope is MetricScope.DEVICE and one.kind is Kind.GAUGE][:count]
    metrics += [f"app.figure.{number}" for number in range(count - len(metrics))]
    job, replica, node = f"fleet-{agent // NODES_A_JOB}", f"worker-{agent % NODES_A_JOB}", f"node-{agent}"
    return [Names(metric, job, replica, node, f"gpu{device}") for device in range(AGENT_DEVICES) for metric in metrics]


def _exported(sender: int, count: int) -> list[dict[str, str]]:
    return [
        {
            "__name__": f"metric_{series % 44}",
            "device": f"gpu{series // 44 % 8}",
            "instance": f"node-{sender}-{series // 352}:9100",
            "job": "exporter",
        }
        for series in range(count)
    ]
