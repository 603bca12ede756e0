"""Kills (kill -9) and freezes (SIGSTOP) processes at random moments, and restores them."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from tests.storm.topology import Installation, RestartedServer
from tests.support.clickhouse import NodeProcess

SHORTEST_SECONDS, LONGEST_SECONDS = 0.2, 20.0
LEADS, FOLLOWS = "this server leads", "this server follows"


@dataclass(frozen=True)
class Fault:
    """Fault with its beginning and end (``time.monotonic``)."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True)
class Target:
    """Part that can be killed and frozen. Each action returns the function that undoes it."""

    name: Callable[[], str]
    kill: Callable[[], Callable[[], None]]
    freeze: Callable[[], Callable[[], None]]


def role_of(kept: RestartedServer) -> str:
    """Return the last role that a server has logged."""
    lines = [line for line in kept.server.output().splitlines() if LEADS in line or FOLLOWS in line]
    return "leader" if lines and LEADS in lines[-1] else "follower"


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _target_server(kept: RestartedServer, *, alone: bool) -> Target:
    def kill() -> Callable[[], None]:
        kept.kill()
        return kept.revive

    def freeze() -> Callable[[], None]:
        pid = kept.server.process.pid
        _signal_group(pid, signal.SIGSTOP)
        return lambda: _signal_group(pid, signal.SIGCONT)

    return Target(lambda: "server" if alone else role_of(kept), kill, freeze)


def _target_placement(kept: RestartedServer, stores: Sequence[str]) -> Target:
    """Restart a server with another number of shards, in any state of the placement of rows."""

    def change() -> Callable[[], None]:
        _, now, *rest = kept.server.options
        kept.kill()
        kept.server.options = ("--store", stores[stores.index(now) - 1], *rest)
        return kept.revive

    return Target(lambda: "placement", change, change)


def _target_worker(kept: RestartedServer, generator: random.Random) -> Target:
    def hit(number: int) -> Callable[[], None]:
        children = kept.server.children()
        if not children:
            return lambda: None
        pid = generator.choice(children)
        _signal(pid, number)
        return lambda: _signal(pid, signal.SIGCONT)

    return Target(lambda: "worker", lambda: hit(signal.SIGKILL), lambda: hit(signal.SIGSTOP))


def _target_node(node: NodeProcess) -> Target:
    def kill() -> Callable[[], None]:
        node.kill()
        return node.start

    def freeze() -> Callable[[], None]:
        node.signal(signal.SIGSTOP)
        return lambda: node.signal(signal.SIGCONT)

    return Target(lambda: "ClickHouse", kill, freeze)


class Faults:
    """Injects faults into one target after another, sometimes two at a time, and records the times."""

    def __init__(self, installation: Installation, generator: random.Random) -> None:
        self.done: list[Fault] = []
        self._generator = generator
        self._pause = threading.Event()
        database = installation.database

        def kill_database() -> Callable[[], None]:
            database.kill()
            return database.start

        def freeze_database() -> Callable[[], None]:
            database.freeze()
            return database.thaw

        alone = len(installation.servers) == 1
        self._kinds: Sequence[Sequence[Target]] = (
            [_target_server(kept, alone=alone) for kept in installation.servers],
            [_target_node(node) for node in installation.nodes],
            [_target_worker(kept, generator) for kept in installation.servers],
            [Target(lambda: "PostgreSQL", kill_database, freeze_database)],
            [_target_placement(kept, installation.stores) for kept in installation.servers],
        )
        self._weights = (5, 3, 1, 1, 5 if len(installation.stores) > 1 else 0)

    def hit(self, longest_seconds: float = LONGEST_SECONDS) -> None:
        """Inject one fault, in one case of five two at a time. Return shortly after everything is back."""
        targets = self._choose()
        began = time.monotonic()
        names: list[str] = []
        back: list[Callable[[], None]] = []
        try:
            for target in targets:
                kills = self._generator.random() < 0.5
                names.append(f"{target.name()} {'killed' if kills else 'frozen'}")
                back.append(target.kill() if kills else target.freeze())
            self._wait(SHORTEST_SECONDS, longest_seconds)
        finally:
            for revive in back:
                revive()
        ended = time.monotonic()
        self._wait(SHORTEST_SECONDS, longest_seconds)
        self.done += [Fault(name, began, ended) for name in (names if len(names) == 1 else ["two at a time"])]

    def hit_named(self, name: str, progress: Callable[[str], None]) -> None:
        """Inject a fault such as "leader killed". Return when samples are acknowledged again.

        If there are several servers, they must also acknowledge samples before the target comes back.
        """
        part, what = name.split()
        target = next(one for kind in self._kinds for one in kind if one.name() == part)
        began = time.monotonic()
        revive = target.kill() if what == "killed" else target.freeze()
        try:
            if part not in {"server", "placement"}:
                progress(f"an acknowledgement while the {part} is {what}")
        finally:
            revive()
        ended = time.monotonic()
        progress(f"an acknowledgement after the {part} was {what}")
        self.done.append(Fault(name, began, ended))

    def _choose(self) -> Sequence[Target]:
        count = 2 if self._generator.random() < 0.2 else 1
        kinds = [self._generator.choices(self._kinds, self._weights)[0] for _ in range(count)]
        targets = [self._generator.choice(kind) for kind in kinds]
        return targets if targets[0] is not targets[-1] else targets[:1]

    def _wait(self, shortest: float, longest: float) -> None:
        """Wait a random time. Short and long times are equally frequent."""
        self._pause.wait(shortest * (longest / shortest) ** self._generator.random())


def find_longest_gaps(faults: Sequence[Fault], moments: Sequence[float]) -> dict[str, float]:
    """Return for each kind of fault the longest time (s) without one of ``moments`` until the next fault."""
    longest: dict[str, float] = {}
    ends = [*(fault.began for fault in faults[1:]), max([*moments, *(fault.ended for fault in faults)], default=0.0)]
    for fault, end in zip(faults, ends, strict=True):
        before = max((moment for moment in moments if moment < fault.began), default=fault.began)
        within = [before, *(moment for moment in moments if fault.began <= moment <= end)]
        after = min((moment for moment in moments if moment > end), default=end)
        within.append(after)
        gap = max(later - earlier for earlier, later in pairwise(within))
        longest[fault.name] = max(longest.get(fault.name, 0.0), gap)
    return longest
