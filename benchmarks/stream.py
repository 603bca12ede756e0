"""Steady stream of samples into one contestant, from a separate process that does not slow down the querying client."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.client import Connection, Post
from benchmarks.contestant import Contestant, Template
from benchmarks.data import Names


@dataclass(frozen=True)
class Target:
    """Target of samples, and the encoder of their bodies."""

    where: Post
    template: Callable[[Sequence[Names]], Template]


class Stream:
    """Context in which every series gets a sample a second, in ``requests`` requests that are spread over the second.

    The samples that one contestant gets while it is measured go to the others afterwards, so that all store the same.
    Times are odd milliseconds, so that no sample lies on the edge of a bucket. On entry every contestant gets a sample
    of every series.
    """

    def __init__(self, everybody: Sequence[Contestant], series: Sequence[Names], requests: int) -> None:
        self._names = [one.name for one in everybody]
        self.wanted = len(series)
        self.late = ""
        spawn = multiprocessing.get_context("spawn")
        self._pipe, self._child_end = spawn.Pipe()
        targets = [Target(one.written(), one.template) for one in everybody]
        per = -(-len(series) // requests)
        parts = [list(series[first : first + per]) for first in range(0, len(series), per)]
        self._process = spawn.Process(target=serve, args=(targets, parts, self._child_end), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._child_end.close()  # only the child has this end now, so its death closes the pipe
        self._reply()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self._process.is_alive():
            self._pipe.send(None)
            self._process.join(60)

    @contextlib.contextmanager
    def to(self, place: int) -> Iterator[None]:
        """Send samples to the contestant with the index ``place`` while the context lasts."""
        self._pipe.send(place)
        yield
        self._pipe.send(None)
        rate = self._reply()
        if rate < 0.9 * self.wanted:
            self.late = f"{self._names[place]} took only {rate:,.0f} of {self.wanted:,} samples/s"

    def _reply(self) -> float:
        try:
            return float(self._pipe.recv())
        except EOFError:
            raise RuntimeError("the stream of samples broke") from None


class _Sender:
    """Sender to one contestant, with its connection and its bodies."""

    def __init__(self, target: Target, parts: Sequence[Sequence[Names]]) -> None:
        self._where = target.where
        self._connection = Connection(target.where.port)
        self._templates = [target.template(part) for part in parts]

    def send(self, part: int, time_ms: int, values: NDArray[np.float64]) -> None:
        """Send one request. The values move on by one series each second."""
        body = self._templates[part].patch(time_ms, np.roll(values, time_ms // 1000))
        message = self._where.encode(body)
        try:
            self._connection.ask(message)
        except ConnectionError:  # servers close idle connections, while other contestants are measured
            self._connection = Connection(self._where.port)
            self._connection.ask(message)


def serve(targets: Sequence[Target], parts: Sequence[Sequence[Names]], pipe: Pipe) -> None:
    """Serve the commands of ``Stream`` in a process of its own.

    For each index that the pipe sends, streams to that contestant until the pipe sends again. Then the other
    contestants get the same samples, and the reply is the rate in samples a second.
    """
    senders = [_Sender(target, parts) for target in targets]
    values = [np.round(np.random.default_rng(part).random(len(names)), 2) for part, names in enumerate(parts)]
    stamp = time.time_ns() // 1_000_000 | 1
    for sender in senders:
        for part, value in enumerate(values):
            sender.send(part, stamp, value)
    pipe.send(0.0)
    while (place := pipe.recv()) is not None:
        begin = time.perf_counter()
        sent = _stream(senders[place], values, pipe)
        seconds = time.perf_counter() - begin
        pipe.recv()
        for sender in senders[:place] + senders[place + 1 :]:
            for part, stamp in sent:
                sender.send(part, stamp, values[part])
        pipe.send(sum(len(values[part]) for part, _ in sent) / seconds)


def _stream(sender: _Sender, values: Sequence[NDArray[np.float64]], pipe: Pipe) -> list[tuple[int, int]]:
    """Send requests until the pipe has a message. Return the part and the time in ms of each request."""
    begin, sent = time.perf_counter(), list[tuple[int, int]]()
    while not pipe.poll(max(0.0, begin + len(sent) / len(values) - time.perf_counter())):
        part, stamp = len(sent) % len(values), time.time_ns() // 1_000_000 | 1
        sender.send(part, stamp, values[part])
        sent.append((part, stamp))
    return sent
