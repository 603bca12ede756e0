"""Runs a storm: an installation, its traffic, its faults, and the table of results."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.storm.faults import Faults, find_longest_gaps
from tests.storm.ledger import JobLedger, Report, Shape
from tests.storm.questions import Reader
from tests.storm.topology import TOPOLOGIES, Installation
from tests.storm.traffic import Clerk, Client, Renamer, Sender
from tests.storm.verification import verify, verify_clerk
from tests.support.clickhouse import NodeProcess
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

BAD = ("lost", "doubled", "old", "stale", "invented", "wrong", "odd refusals", "unexpected ends")
_PLACED = "shards now: "
"""Log message after all rows have reached their places."""
_HOUR_MS = 3_600_000
_SHOWN = 8
_PROGRESS = 10
"""Number of acknowledgements between two faults of a script."""


@dataclass(frozen=True)
class Load:
    """Traffic per second in samples and questions, and the numbers of threads for large and small batches."""

    samples: float = 10_000.0
    questions: float = 20.0
    bulk: int = 4
    live: int = 2
    readers: int = 3


@dataclass(frozen=True)
class Plan:
    """Limits of a storm in faults and minutes, or its ordered faults: ``script``, such as "leader killed"."""

    topology: str
    seed: int
    faults: int = 0
    minutes: float = 0.0
    script: Sequence[str] = ()
    load: Load = Load()
    processes: int = 2
    """Number of workers of each server."""


class Storm:
    """Threads that send and ask, and their report."""

    def __init__(self, plan: Plan, installation: Installation) -> None:
        self.report = Report()
        self._generator = random.Random(plan.seed)
        self.faults = Faults(installation, self._generator)
        self.ledgers: list[JobLedger] = []
        self._installation = installation
        self._plan = plan
        self._senders: list[Sender] = []
        self.seconds = 0.0
        load, now = plan.load, int(time.time() * 1000) // 1_000 * 1_000
        bulk = Shape(25, 20, 1_000, (now - 48 * _HOUR_MS) // _HOUR_MS * _HOUR_MS)
        live = Shape(4, 1, 100, now - 600_000)
        for number in range(load.bulk + load.live):
            shape = bulk if number < load.bulk else live
            ledger = JobLedger(f"job-{number}", shape)
            rate = load.samples / load.bulk / shape.size if shape is bulk else 8.0
            self.ledgers.append(ledger)
            self._senders.append(Sender(ledger, self._client(number), self.report, rate, self._random(number)))
        self._readers = [
            Reader(self.ledgers, self._client(number), self.report, load.questions / load.readers, self._random(number))
            for number in range(100, 100 + load.readers)
        ]

        self._clerk = Clerk(self._client(200), self.report, now - _HOUR_MS)
        self._others = (*self._readers, self._clerk, Renamer(self._client(201), self.report))

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self._plan.seed} {number}")

    def _client(self, number: int) -> Client:
        return Client([kept.server for kept in self._installation.servers], self._random(1_000 + number))

    def run(self) -> None:
        """Send, ask and inject faults. At the end compare everything, also after a kill of all servers."""
        began = time.monotonic()
        for thread in (*self._senders, *self._others):
            thread.start()
        self._make_faults(began)
        for sender in self._senders:
            sender.stop()
        for sender in self._senders:
            sender.join()
        self.seconds = time.monotonic() - began
        for thread in self._others:
            thread.stop()
        for thread in self._others:
            thread.join()
        self._verify()

    def _make_faults(self, began: float) -> None:
        """Inject the faults of the script, or random ones up to the plan's number, until its minutes are over."""
        for name in self._plan.script:
            for kept in self._installation.servers:  # a starting server needs the parts that the next fault takes
                kept.await_ready()
            self.faults.hit_named(name, self._await_progress)
        for _ in range(self._plan.faults):
            placed = self._count_placed()
            self.faults.hit()
            if self._generator.random() < 0.8:
                self._await_service()
            if len(self._installation.stores) > 1 and self._generator.random() < 0.5:
                self._await_placement(placed)
            if time.monotonic() - began > self._plan.minutes * 60:
                break

    def _await_service(self) -> None:
        """Wait, at most a minute, until samples are acknowledged and questions answered again."""
        began, report = time.monotonic(), self.report
        with suppress(AssertionError):
            wait_until(lambda: min(report.acknowledgements[-1], report.answers[-1]) > began, "service", 60.0)

    def _await_placement(self, before: int) -> None:
        """Wait, at most a minute, until all rows have reached their places once more."""
        with suppress(AssertionError):
            wait_until(lambda: self._count_placed() > before, "placed rows", 60.0)

    def _count_placed(self) -> int:
        """Count how often all rows have reached their places for another number of shards."""
        return sum(kept.server.output().count(_PLACED) for kept in self._installation.servers)

    def _await_progress(self, what: str) -> None:
        enough = len(self.report.acknowledgements) + _PROGRESS
        wait_until(lambda: len(self.report.acknowledgements) > enough, what)

    def _verify(self) -> None:
        servers, nodes = self._installation.servers, self._installation.nodes
        for kept in servers:
            kept.await_ready()
            self._verify_answers(kept.server)
        for kept in servers:
            for end in kept.ends:
                self.report.note("unexpected ends", f"a server ended by itself: {end}")
            kept.kill()
        servers[0].revive()  # this server reaches the folders of the others
        servers[0].await_ready()
        for away in (nodes[0::2], nodes[1::2]) if len(nodes) > 1 else ((),):  # a replica of each shard
            with self._without(away):
                self._verify_answers(servers[0].server)

    def _verify_answers(self, server: ServerProcess) -> None:
        for ledger in self.ledgers:
            verify(server, ledger, self.report)
        verify_clerk(server, self._clerk, self.report)

    @contextmanager
    def _without(self, nodes: Sequence[NodeProcess]) -> Iterator[None]:
        """Kill replicas for the block after every replica has all data."""
        server = self._installation.servers[0].server
        wait_until(lambda: all(server.request("GET", "/status").json()["replicas"].values()), "complete replicas")
        with ExitStack() as stack:
            for node in nodes:
                stack.enter_context(node.killed())
            yield

    def describe(self) -> str:
        """Return the table of the results."""
        counts, report = self.report.counts, self.report
        rate = counts["samples acknowledged"] / max(self.seconds, 1.0)
        lines = [
            f"topology {self._plan.topology}, seed {self._plan.seed}, {self.seconds:.0f} s, {rate:,.0f} samples/s",
            *(
                f"  {name:<28}{counts[name]:>12,}"
                for name in sorted(counts)
                if name.startswith(("sam", "que", "rec", "lin", "nam"))
            ),
            *(f"  {name:<28}{counts[name]:>12,}" for name in BAD),
            "  fault                       number  longest time without acknowledgement / answer (s)",
        ]
        writes = find_longest_gaps(self.faults.done, report.acknowledgements)
        reads = find_longest_gaps(self.faults.done, report.answers)
        for name, count in sorted(Counter(fault.name for fault in self.faults.done).items()):
            lines.append(f"  {name:<28}{count:>6}  {writes[name]:>8.1f} / {reads[name]:.1f}")
        lines.append(f"  changes of the number of shards that ended: {self._count_placed()}")
        starts = sum(kept.failed_starts for kept in self._installation.servers)
        lines.append(f"  starts that were refused: {starts}")
        shown: Counter[str] = Counter()
        for one in report.problems:
            shown[one.kind] += 1
            if shown[one.kind] <= _SHOWN:
                lines.append(f"  {one.kind} ({time.strftime('%T', time.gmtime(one.at))}): {one.text}")
        return "\n".join(lines)


def run_storm(plan: Plan, folder: Path) -> Storm:
    """Run a storm in an empty folder."""
    with TOPOLOGIES[plan.topology].run(folder, "--processes", str(plan.processes)) as installation:
        storm = Storm(plan, installation)
        storm.run()
        return storm
