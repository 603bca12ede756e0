"""``make bench-cluster``: Jobmeter on a ClickHouse node, with one and three servers, beside its embedded engine."""

import argparse
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tests.support.clickhouse import Node, NodeProcess
from tests.support.clusters import free_ports
from tests.support.postgresql import own_server

from benchmarks.client import answer, drive
from benchmarks.contestant import running
from benchmarks.data import Data, Names, utilization
from benchmarks.ours import Jobmeter
from benchmarks.questions import Asked, now_ms
from benchmarks.questions import live as live_questions
from benchmarks.results import machine
from benchmarks.row import Bar, Better, Result, Row, at_least

EMBEDDED, NODE = "embedded", "one server on a node"
LEADER, FOLLOWER = "three servers: the leader", "three servers: a follower"
_LANES = 16
_DAY_HOURS = 24
_AS_EMBEDDED = Bar("as embedded", 0.5, peer=EMBEDDED)
ROWS = (
    Row("write.one", "inserts of one sample, 1 connection", "/s", Better.HIGHER),
    Row("write.many", f"inserts of one sample, {_LANES} connections", "/s", Better.HIGHER, at_least(2_000, "/s")),
    Row("bulk", "samples of a day, 128 series, large bodies", "samples/s", Better.HIGHER, _AS_EMBEDDED),
    Row("live.p50", "a live hour of 8 devices, never repeated, 1 connection", "ms", Better.LOWER),
    Row("live.rate", f"the same, {_LANES} connections", "/s", Better.HIGHER),
    Row("day.p50", "a day by replica, never repeated, 1 connection", "ms", Better.LOWER),
)


class Embedded(Jobmeter):
    """Jobmeter with its default, embedded engine."""

    name = EMBEDDED


class OnNode(Jobmeter):
    """Jobmeter on a ClickHouse node."""

    name = NODE

    def __init__(self, node: NodeProcess) -> None:
        super().__init__()
        self._store = f"{node.own.dsn}/bench"

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        return [*super().command, "--store", self._store]


class Leading(OnNode):
    """Jobmeter on a ClickHouse node that two other servers also use. This server starts first and so is the leader."""

    name = LEADER

    def __init__(self, node: NodeProcess, registry: str) -> None:
        super().__init__(node)
        self._registry = registry

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        return [*super().command, "--registry", self._registry]


class Following(Leading):
    """Jobmeter on the leader's ClickHouse node, as a follower with the leader's keys."""

    name = FOLLOWER

    def __init__(self, node: NodeProcess, registry: str, leader: Leading) -> None:
        super().__init__(node, registry)
        self._leader = leader

    @property
    def headers(self) -> Mapping[str, str]:
        """See ``Contestant.headers``."""
        return self._leader.headers

    def start(self) -> float:
        """Start the server with the secret key of the leader; see ``Contestant.start``."""
        self.data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(self._leader.data_folder / "secret.key", self.data_folder)
        return super().start()


@contextlib.contextmanager
def disk_node() -> Iterator[NodeProcess]:
    """Run a ClickHouse server whose tables are in a temporary folder, while the context lasts."""
    home = Path(tempfile.mkdtemp(prefix="jobmeter-bench-node-"))
    process = NodeProcess(Node(*free_ports(2)), home / "node")
    try:
        process.start()
        yield process
    finally:
        process.kill()
        shutil.rmtree(home, ignore_errors=True)


def singles(one: Jobmeter, lane: int, round_number: int) -> Iterator[bytes]:
    """Yield requests with one sample each, one millisecond after the other. Each lane writes its own series."""
    template = one.template([Names("gpu.power", "single", f"worker-{lane}", "node-1", "gpu0")])
    where, start = one.written(), now_ms() - 600_000 + round_number
    for number in itertools.count():
        yield where.encode(template.patch(start + number, np.array([number / 7])))


def measure(one: Jobmeter, day: Data, seconds: float, number: int, found: dict[str, Result]) -> None:
    """Measure each row once, except the import. Each measurement takes ``seconds``."""
    for key, lanes in (("write.one", 1), ("write.many", _LANES)):
        driven = drive(one.port, [singles(one, lane, number) for lane in range(lanes)], seconds)
        found[key].add(one.name, driven.rate)
    found["live.p50"].add(one.name, drive(one.port, [one.messages(live_questions(day.job))], seconds).latency.p50)
    shared = one.messages(live_questions(day.job))
    found["live.rate"].add(one.name, drive(one.port, [shared] * _LANES, seconds).rate)
    by_replica = [Asked(day.job, 0, _DAY_HOURS, 300, "replica")]
    found["day.p50"].add(one.name, drive(one.port, [one.messages(by_replica)], seconds).latency.p50)


def agree(everybody: Sequence[Jobmeter], day: Data) -> str:
    """Return how the answers of the servers differ, empty if they differ at most by the rounding of sums."""
    asked = Asked(day.job, day.end_ms, _DAY_HOURS, 300, "replica")
    found = [one.points(answer(one.request(one.path(asked))), asked.step_s) for one in everybody]
    for points in found[1:]:
        if {name: list(line) for name, line in points.items()} != {name: list(line) for name, line in found[0].items()}:
            return "the answers of the servers have different points"
        for name, line in points.items():
            if not np.allclose(list(line.values()), list(found[0][name].values()), rtol=1e-12, atol=0):
                return f"the answers of the servers differ for {name}"
    return ""


def table(found: Sequence[Result], names: Sequence[str]) -> str:
    """Return the medians as a Markdown table."""
    lines = [f"| the same minutes | {' | '.join(names)} | bar |", "|---|" + "---|" * (len(names) + 1)]
    for one in found:
        medians = [one.median(name) for name in names]
        cells = ["" if value is None else f"{value:,.4g} {one.row.unit}" for value in medians]
        lines.append(f"| {one.row.name} | {' | '.join(cells)} | {one.row.bar.text if one.row.bar else ''} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all servers and print the table. Exits with a message if their answers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = {row.key: Result(row) for row in ROWS}
    day = utilization(now_ms(), _DAY_HOURS)
    with disk_node() as node, disk_node() as other, own_server() as database:
        registry = f"{database.url}/postgres"
        leader = Leading(other, registry)
        everybody = [Embedded(), OnNode(node), leader, Following(other, registry, leader)]
        with running([*everybody, Following(other, registry, leader)]):
            for one in everybody[:-1]:
                found["bulk"].add(one.name, one.load(day))
            for one in everybody:  # otherwise the import's roll-ups slow down the first measurements
                one.wait_for_roll_ups(Asked(day.job, day.end_ms, _DAY_HOURS, 300, "replica"), "minute")
            for number in range(options.rounds):
                turn = number % len(everybody)
                for one in everybody[turn:] + everybody[:turn]:
                    measure(one, day, options.seconds, number, found)
            failure = agree(everybody, day)
    print(f"{machine()}\n\n{table(list(found.values()), [EMBEDDED, NODE, LEADER, FOLLOWER])}")
    if failure:
        raise SystemExit(failure)


if __name__ == "__main__":
    main()
