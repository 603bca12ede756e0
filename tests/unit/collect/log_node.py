"""Reader of system logs on a node that may die and restart."""

from typing import Any

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.spool import Spool
from jobmeter.collect.syslog.reader import SystemLogReader
from jobmeter.collect.syslog.watch import FileWatch
from jobmeter.settings import Limits
from jobmeter.wire.native.decode import decode

START = 1_795_186_800_000_000_000


class Time:
    """Nanosecond clock that tests set."""

    def __init__(self):
        self.ns = START

    def __call__(self):
        return self.ns

    def now_ms(self):
        return self.ns // 1_000_000

    def monotonic(self):
        return self.ns / 1e9


def lines_in(outbox):
    found: list[Any] = []
    while batch := outbox.peek(2**30):
        found += decode(batch.body, "default", Limits()).lines
        outbox.release(batch.end)
    return found


class Node:
    """Node whose reader may die and restart on the same spool and positions."""

    def __init__(self, folder, patterns=(), sources=(), rate=10_000.0, owner_of=lambda pid: None):
        self.time = Time()
        self._folder, self._patterns, self._sources = folder, patterns, sources
        self._rate, self._owner_of = rate, owner_of
        self.outbox: Outbox | None = None
        self.watch = FileWatch([])
        self.start()

    def start(self, spool=True):
        if self.outbox is not None:
            self.outbox.close()
            self.watch.close()
        self.outbox = Outbox(Spool(self._folder / "spool") if spool else None)
        self.watch = FileWatch([str(pattern) for pattern in self._patterns])
        self.reader = SystemLogReader(
            [make() for make in self._sources],
            self.watch,
            NodeIdentity("n1", project="default"),
            self.outbox,
            self.time,
            self._rate,
            self._owner_of,
            self._folder / "logs.json",
        )

    def __del__(self):
        self.watch.close()

    def rounds(self, count=12):
        for _ in range(count):
            self.time.ns += 250_000_000
            self.reader.round()
        return lines_in(self.outbox)

    def texts(self, count=12):
        return [line.text for line in self.rounds(count)]


def append(path, *texts):
    with path.open("ab") as out:
        out.write("".join(f"{text}\n" for text in texts).encode())
