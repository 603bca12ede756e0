"""Interface of every contestant: start, store samples, answer queries, and report costs."""

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
"""Value of each bucket by the bucket's start in ms, by replica and device. The device of a replica's line is empty."""


class Template(Protocol):
    """Body with one sample of each series; see ``NativeTemplate`` and ``RemoteTemplate``."""

    def patch(self, time_ms: int, values: NDArray[np.float64]) -> bytes:
        """Return the body with a sample of every series at ``time_ms``."""
        ...


class Contestant(ABC):
    """Server with a folder of its own.

    As a context it starts on entry. On exit it stops and its folder is deleted.
    """

    name: ClassVar[str]
    ready: ClassVar[str]
    uncached: ClassVar[str] = ""
    """Suffix that makes a path bypass caches; empty if only a new query avoids the cache."""
    import_lanes: ClassVar[int] = 2
    """Concurrent requests of an import."""

    def __init__(self) -> None:
        self.port = processes.free_port()
        self.place = Path(tempfile.mkdtemp(prefix="jobmeter-bench-"))
        self.data_folder = self.place / "data"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> Sequence[str]:
        """Command line that starts the contestant."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables of the contestant, in addition to this process's variables."""
        return {}

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of each request."""
        return {}

    @abstractmethod
    def path(self, asked: Asked) -> str:
        """Return the path and query string of this contestant's API for the query."""

    @abstractmethod
    def points(self, body: bytes, step_s: int) -> Points:
        """Decode the answer to ``path``."""

    @staticmethod
    @abstractmethod
    def template(series: Sequence[Names]) -> Template:
        """Return a body for ``written``, in the protocol that the contestant's agents use."""

    @abstractmethod
    def written(self) -> Post:
        """Return the target of the bodies of ``template``."""

    @abstractmethod
    def export(self, asked: Asked) -> str:
        """Return the path that exports all raw samples of a job's metric."""

    @abstractmethod
    def exported(self, body: bytes) -> Points:
        """Decode the answer to ``export``: values by the time of each sample in ms."""

    @abstractmethod
    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """Return the target of an import and its bodies, which hold all samples."""

    def load(self, data: Data) -> float:
        """Import all samples, and return the samples a second until the last body was acknowledged."""
        where, bodies = self.import_bodies(data)
        lanes = [map(where.encode, bodies[lane :: self.import_lanes]) for lane in range(self.import_lanes)]
        seconds = drive(self.port, lanes).seconds
        self.flush()
        return data.samples / seconds

    def flush(self) -> None:  # noqa: B027 - most contestants need no flush
        """Make all written samples visible to queries."""

    def in_files(self, samples: int) -> bool:
        """Return True if ``samples`` samples are in the files that ``raw_bytes`` counts.

        May ask the server to write its samples to files.
        """
        raise NotImplementedError

    def raw_bytes(self) -> int:
        """Return the bytes on disk of raw samples."""
        return self.disk()

    def disk(self) -> int:
        """Return the bytes on disk of all data."""
        return processes.folder_bytes(self.data_folder)

    def request(self, path: str) -> Request:
        """Return a GET request of a path."""
        return Request(self.port, path, self.headers)

    def message(self, asked: Asked, *, cached: bool = True) -> bytes:
        """Return the bytes of the request for a query."""
        return self.request(self.path(asked) + ("" if cached else self.uncached)).encode()

    def messages(self, questions: Sequence[Asked], *, cached: bool = True) -> Iterator[bytes]:
        """Yield requests for the queries in turn without end, and never repeat a range; see ``moving``."""
        return (self.message(one, cached=cached) for one in moving(questions))

    @property
    def pid(self) -> int:
        """Id of the process. Raises RuntimeError unless the contestant was started."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> float:
        """Start the contestant and return the seconds until it is ready."""
        self._process, seconds = processes.start(
            self.command, self.port, self.ready, self.place / "log", self.environment
        )
        return seconds

    def stop(self) -> None:
        """Stop the contestant and keep its stored data."""
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
    """Return the bytes on disk of raw samples by contestant.

    Waits until all samples of a contestant, whose number is in ``stored``, are in files whose size has not changed for
    ``quiet`` seconds. A contestant that does not reach this within ``patience`` seconds is left out, because the bytes
    of only some samples would mislead.
    """
    result = dict[str, int]()
    deadline = time.monotonic() + patience
    for one, samples in stored.items():
        last, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            os.sync()  # data that the file system has not allocated yet takes no blocks
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
    """Start all contestants, and stop them at the end of the context."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in everybody]
