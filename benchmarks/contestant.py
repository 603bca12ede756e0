"""Interface of every contestant: start, take samples, answer questions, and report costs."""

import contextlib
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import processes
from benchmarks.client import Post, Request, drive
from benchmarks.data import Data, Names
from benchmarks.questions import Asked, moving

if TYPE_CHECKING:
    import subprocess

Points = dict[tuple[str, str], dict[int, float]]
"""By replica and device (empty where the line is of a replica): the value of each bucket by its start in ms."""


class Template(Protocol):
    """A body with one sample of each of some series; see ``NativeTemplate`` and ``RemoteTemplate``."""

    def patch(self, time_ms: int, values: NDArray[np.float64]) -> bytes:
        """The body with every series measured at that time."""
        ...


class Contestant(ABC):
    """A server in a folder of its own. A context: entering starts it, leaving stops it and deletes what it stored."""

    name: ClassVar[str]
    ready: ClassVar[str]
    uncached: ClassVar[str] = ""
    """Suffix of a path for an answer without caches; empty if only a new question avoids the cache."""
    import_lanes: ClassVar[int] = 2
    """Requests that are under way at any time while it is loaded."""

    def __init__(self) -> None:
        self.port = processes.free_port()
        self.place = Path(tempfile.mkdtemp(prefix="jobmeter-bench-"))
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
        """The headers of each request."""
        return {}

    @abstractmethod
    def path(self, asked: Asked) -> str:
        """The question as this contestant is asked it."""

    @abstractmethod
    def points(self, body: bytes, step_s: int) -> Points:
        """The answer to ``path``."""

    @staticmethod
    @abstractmethod
    def template(series: Sequence[Names]) -> Template:
        """A body for ``written``, in the protocol in which its own agents, or those of its users, write."""

    @abstractmethod
    def written(self) -> Post:
        """Where the bodies of ``template`` go."""

    @abstractmethod
    def export(self, asked: Asked) -> str:
        """The path under which all raw samples of a job's metric come back."""

    @abstractmethod
    def exported(self, body: bytes) -> Points:
        """The answer to ``export``, by the time of each sample."""

    @abstractmethod
    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """All samples, encoded, and where they go."""

    def load(self, data: Data) -> float:
        """Import everything; samples a second until the last body was acknowledged."""
        where, bodies = self.import_bodies(data)
        lanes = [map(where.encode, bodies[lane :: self.import_lanes]) for lane in range(self.import_lanes)]
        seconds = drive(self.port, lanes).seconds
        self.flush()
        return data.samples / seconds

    def flush(self) -> None:  # noqa: B027 - most need not
        """Let questions see what was written."""

    def in_files(self, samples: int) -> bool:
        """Whether so many samples are in the files that ``raw_bytes`` counts; may ask the server to write them."""
        raise NotImplementedError

    def raw_bytes(self) -> int:
        """Bytes on disk of raw samples."""
        return self.disk()

    def disk(self) -> int:
        """Bytes on disk of everything."""
        return processes.folder_bytes(self.data_folder)

    def request(self, path: str) -> Request:
        """A GET of it."""
        return Request(self.port, path, self.headers)

    def message(self, asked: Asked, *, cached: bool = True) -> bytes:
        """The bytes of a question."""
        return self.request(self.path(asked) + ("" if cached else self.uncached)).encode()

    def messages(self, questions: Sequence[Asked], *, cached: bool = True) -> Iterator[bytes]:
        """The questions without end, no range repeated; see ``moving``."""
        return (self.message(one, cached=cached) for one in moving(questions))

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


def settled(stored: Mapping[Contestant, int], quiet: float = 6.0, patience: float = 180.0) -> dict[str, int]:
    """Raw bytes by name, each once all of its samples are in files whose size has not changed for ``quiet`` seconds.

    Who is not so far when ``patience`` ends is left out: bytes of a part of the samples say nothing.
    """
    result = dict[str, int]()
    deadline = time.monotonic() + patience
    for one, samples in stored.items():
        last, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            os.sync()  # what the file system has not placed yet takes no blocks
            now = one.raw_bytes() if one.in_files(samples) else -1
            if now != last:
                last, since = now, time.monotonic()
            elif now >= 0 and time.monotonic() - since >= quiet:
                result[one.name] = now
                break
            time.sleep(1)
    return result


@contextlib.contextmanager
def running(everybody: Sequence[Contestant]) -> Iterator[Sequence[Contestant]]:
    """All of them started; each ends with the context."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in everybody]
