"""A steady stream of samples into one contestant, from a process of its own so that the asking client is not slowed."""

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.client import Connection, Post
from benchmarks.contestant import Contestant
from benchmarks.data import Names, job_names
from benchmarks.native import NativeTemplate
from benchmarks.protobuf import RemoteTemplate
from benchmarks.row import OURS

SERIES = 1_000
"""Series of one request."""
BODIES = 10
"""Requests a second: each series is written once a second."""


class Stream:
    """A context: while it is entered, 10,000 samples a second arrive, of the given series and of others.

    ``rate`` tells afterwards how many a second were acknowledged. Entering returns once every series was written once.
    """

    wanted = SERIES * BODIES

    def __init__(self, one: Contestant, series: Sequence[Names]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._stop, self._known = spawn.Event(), spawn.Event()
        self._sent = spawn.Value("d", 0.0)
        arguments = (one.written(), one.name == OURS, list(series), self._stop, self._known, self._sent)
        self._process = spawn.Process(target=_run, args=arguments, daemon=True)
        self.rate = 0.0

    def __enter__(self) -> Self:
        self._process.start()
        while not self._known.wait(1):
            if not self._process.is_alive():
                raise RuntimeError("the stream of samples broke")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._stop.set()
        self._process.join(60)
        self.rate = self._sent.value


def _run(where: Post, native: bool, series: list[Names], stop: Event, known: Event, rate: object) -> None:
    names = [*series, *job_names("gpu.power", "beside", 1_250, 8)][: SERIES * BODIES]
    parts = [names[first : first + SERIES] for first in range(0, len(names), SERIES)]
    templates = [NativeTemplate(part) if native else RemoteTemplate([one.labels for one in part]) for part in parts]
    values = np.round(np.random.default_rng(3).random((BODIES, SERIES)), 2)
    with Connection(where.port) as connection:
        for template, value in zip(templates, values, strict=True):
            connection.ask(where.encode(template.patch(time.time_ns() // 1_000_000, value)))
        known.set()
        begin, sent = time.perf_counter(), 0
        while not stop.is_set():
            wait = begin + sent / BODIES - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            body = templates[sent % BODIES].patch(time.time_ns() // 1_000_000, values[sent % BODIES])
            connection.ask(where.encode(body))
            sent += 1
        rate.value = sent * SERIES / (time.perf_counter() - begin)  # type: ignore[attr-defined]
