"""What every contestant can do: start, take samples, answer questions, and tell what it costs."""

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import processes
from benchmarks.client import Post, Request, folder, post_all
from benchmarks.data import HOUR_MS, Data, Names

if TYPE_CHECKING:
    import subprocess

IMPORT_LANES = 2
"""Requests that are under way at any time while a contestant is loaded."""


@dataclass(frozen=True)
class Asked:
    """A question: the means over steps of a metric, a line for each member of ``by``. Times are milliseconds."""

    job: str
    end_ms: int
    hours: float
    step_s: int
    by: str
    replica: str | None = None
    metric: str = "gpu.utilization"

    @property
    def start_ms(self) -> int:
        """Where the range begins."""
        return self.end_ms - int(self.hours * HOUR_MS)


class Template(Protocol):
    """A body with one sample of each of some series; see ``NativeTemplate`` and ``RemoteTemplate``."""

    def patch(self, time_ms: int, values: NDArray[np.float64]) -> bytes:
        """The body with every series measured at that time."""
        ...


class Contestant(ABC):
    """A server in a folder of its own. A context: entering starts it, leaving stops it and deletes what it stored."""

    name: str
    ready: str
    afresh = ""
    """What a path needs at its end for an answer that no kept result helps with; empty where nothing can be said."""

    def __init__(self) -> None:
        self.port = processes.free_port()
        self.place = folder()
        self.data_folder = self.place / "data"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """How it is started."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that it is started with, beside those that are there."""
        return {}

    @property
    def headers(self) -> Mapping[str, str]:
        """What is said with each request."""
        return {}

    @abstractmethod
    def path(self, asked: Asked) -> str:
        """The question as this contestant is asked it."""

    @abstractmethod
    def values(self, body: bytes) -> list[list[float]]:
        """The values of each line of an answer to ``path``."""

    @abstractmethod
    def template(self, series: Sequence[Names]) -> Template:
        """Bodies for ``written``: the protocol in which its own agents, or those of its users, write."""

    @abstractmethod
    def written(self) -> Post:
        """Where the bodies of ``template`` go."""

    @abstractmethod
    def export(self, asked: Asked) -> str:
        """The path under which all raw samples of a job's metric come back."""

    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]] | None:
        """The samples for its bulk import, encoded beforehand, and where they go; None: there is no bulk import."""
        del data
        return None

    def load(self, data: Data) -> float | None:
        """Import everything; seconds until the last body was acknowledged, None where there is no bulk import."""
        prepared = self.import_bodies(data)
        if prepared is None:
            return None
        where, bodies = prepared
        lanes = [bodies[lane::IMPORT_LANES] for lane in range(min(IMPORT_LANES, len(bodies)))]
        seconds = post_all(where, lanes)[1]
        self.settle()
        return seconds

    def settle(self) -> None:  # noqa: B027 - most need not
        """Let what was written be seen by questions."""

    def request(self, path: str) -> Request:
        """A GET of it."""
        return Request(self.port, path, self.headers)

    def requests(self, questions: Sequence[Asked], *, afresh: bool = False) -> list[Request]:
        """The questions as this contestant is asked them."""
        end = self.afresh if afresh else ""
        return [self.request(self.path(one) + end) for one in questions]

    def raw_bytes(self) -> int:
        """Bytes on disk of raw samples."""
        return self.disk()

    def disk(self) -> int:
        """Bytes on disk of everything."""
        return processes.folder_bytes(self.data_folder)

    @property
    def pid(self) -> int:
        """The process; RuntimeError unless it was started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> float:
        """Start it; seconds until it is ready."""
        self._process, seconds = processes.start(
            self.command, self.port, self.ready, self.place / "log", self.environment
        )
        return seconds

    def stop(self) -> None:
        """Stop it; what it stored stays."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.stop()
        if not os.environ.get("JOBMETER_BENCH_KEEP"):
            shutil.rmtree(self.place, ignore_errors=True)


def settled(everybody: Sequence[Contestant], quiet: float = 6.0, patience: float = 45.0) -> list[int]:
    """Each one's raw bytes once none has changed for ``quiet`` seconds, or as they are when ``patience`` ends.

    Who has none has not written them down yet.
    """
    os.sync()  # what the file system has not placed yet takes no blocks
    last = [one.raw_bytes() for one in everybody]
    since, deadline = time.monotonic(), time.monotonic() + patience
    while time.monotonic() < (min(since + quiet, deadline) if all(last) else deadline):
        time.sleep(1)
        os.sync()
        now = [one.raw_bytes() for one in everybody]
        if now != last:
            last, since = now, time.monotonic()
    return last
