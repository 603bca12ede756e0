"""Peers VictoriaMetrics and Prometheus: they store the same samples and answer the same queries."""

import functools
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from benchmarks import protobuf
from benchmarks.client import Post, answer
from benchmarks.contestant import Contestant, Points, Template
from benchmarks.data import Data, Names
from benchmarks.install import program
from benchmarks.ours import Jobmeter
from benchmarks.processes import folder_bytes
from benchmarks.questions import Asked
from benchmarks.row import PROMETHEUS, VICTORIA

_BODY_SAMPLES = 250_000
_DAYS = 60
_ROWS = re.compile(r'^vm_(rows|pending_rows|active_merges)\{type="storage(?:/(\w+))?"\} (\d+)$', re.MULTILINE)


class Peer(Contestant):
    """Contestant with PromQL and remote write."""

    def path(self, asked: Asked) -> str:
        """Return the path of a range query of means over each step, then over the members of ``by``.

        A point stands for the step before it. The first point is at the end of Jobmeter's first bucket, because the
        buckets of both start at multiples of the step. The range ends at the query's end, so a new query has a new
        path.
        """
        groups = {"device": "replica,device", "replica": "replica"}[asked.by]
        query = f"avg by ({groups}) (avg_over_time({_selector(asked)}[{asked.step_s}s]))"
        start = (asked.start_ms // (asked.step_s * 1000) + 1) * asked.step_s
        span = f"start={start}&end={asked.end_ms / 1000:.3f}&step={asked.step_s}"
        return f"/api/v1/query_range?query={_quoted(query)}&{span}"

    def points(self, body: bytes, step_s: int) -> Points:
        """See ``Contestant.points``."""
        return _points(json.loads(body)["data"]["result"], step_s)

    @staticmethod
    def template(series: Sequence[Names]) -> Template:
        """See ``Contestant.template``."""
        return protobuf.RemoteTemplate([one.labels for one in series])

    def written(self) -> Post:
        """See ``Contestant.written``."""
        return Post(self.port, "/api/v1/write", protobuf.HEADERS)


class VictoriaMetrics(Peer):
    """VictoriaMetrics with its defaults, its result cache included."""

    name = VICTORIA
    ready = "/health"
    uncached = "&nocache=1"

    def __init__(self) -> None:
        super().__init__()
        self._loaded = 0

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        listen = f"-httpListenAddr=127.0.0.1:{self.port}"
        started = str(program("victoria-metrics"))
        return [started, listen, f"-storageDataPath={self.data_folder}", f"-retentionPeriod={_DAYS}d"]

    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """See ``Contestant.import_bodies``."""
        stamps = numbers(data.time)
        lines = [json_line(one, stamps, data.value[at]) for at, one in enumerate(data.names())]
        per_body = max(1, _BODY_SAMPLES // len(data.time))
        bodies = [b"".join(lines[first : first + per_body]) for first in range(0, len(lines), per_body)]
        return Post(self.port, "/api/v1/import", {}), bodies

    def load(self, data: Data) -> float:
        """See ``Contestant.load``. On return all samples that were ever loaded are visible to queries."""
        rate = super().load(data)
        self._loaded += data.samples
        self.wait_for_samples(self._loaded)
        return rate

    def flush(self) -> None:
        """See ``Contestant.flush``. Samples of a flush that is already running become visible slightly later."""
        answer(self.request("/internal/force_flush"))

    def wait_for_samples(self, samples: int, patience: float = 60.0) -> None:
        """Wait until the parts that queries read hold ``samples`` samples.

        Raises RuntimeError after ``patience`` seconds. A forced flush does not wait for a flush that is already
        running. For some seconds answers may lack many of the last loaded samples, although the server reports no
        pending ones (seen with 1.145 and 1.79). The server's counts are up to a second old.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            counted = self._counts()
            if sum(counted["rows", kind] for kind in ("inmemory", "small", "big")) >= samples:
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} shows fewer than {samples} samples after {patience:.0f} s")

    def export(self, asked: Asked) -> str:
        """See ``Contestant.export``."""
        span = f"start={asked.start_ms / 1000:.3f}&end={asked.end_ms / 1000:.3f}"
        return f"/api/v1/export?match[]={_quoted(_selector(asked))}&{span}"

    def exported(self, body: bytes) -> Points:
        """See ``Contestant.exported``."""
        lines = [json.loads(line) for line in body.splitlines()]
        return {
            (one["metric"]["replica"], one["metric"]["device"]): dict(
                zip(one["timestamps"], one["values"], strict=True)
            )
            for one in lines
        }

    def in_files(self, samples: int) -> bool:
        """Return True if all samples are in files and the server neither holds samples in memory nor merges.

        Otherwise asks for a merge, which writes the samples in memory to files.
        """
        self.flush()
        found = self._counts()
        files = found[("rows", "small")] + found[("rows", "big")]
        merging = any(count for (what, _), count in found.items() if what == "active_merges")
        done = files >= samples and not found[("rows", "inmemory")] and not found[("pending_rows", "")] and not merging
        if not done and not merging:
            answer(self.request("/internal/force_merge"))
        return done

    def raw_bytes(self) -> int:
        """Return the bytes on disk of samples, without the index of names."""
        return folder_bytes(self.data_folder / "data")

    def _counts(self) -> Counter[tuple[str, str]]:
        """Return the server's counts of rows, pending rows and merges, by count and kind of part, 0 by default."""
        return Counter({(what, kind): int(count) for what, kind, count in _ROWS.findall(self._metrics())})

    def _metrics(self) -> str:
        return answer(self.request("/metrics")).decode()


class Prometheus(Peer):
    """Prometheus as a receiver of remote write.

    Prometheus has no bulk import, and takes the samples of a series only in the order of time.
    """

    name = PROMETHEUS
    ready = "/-/ready"
    import_lanes = 1

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        config = self.place / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1h}\n")
        return [
            str(program("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={self.data_folder}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver",
            f"--storage.tsdb.retention.time={_DAYS}d",
        ]  # fmt: skip

    def export(self, asked: Asked) -> str:
        """See ``Contestant.export``: a range vector of an instant query."""
        query = f"{_selector(asked)}[{round(asked.hours * 60)}m]"
        return f"/api/v1/query?query={_quoted(query)}&time={asked.end_ms / 1000:.3f}"

    def exported(self, body: bytes) -> Points:
        """See ``Contestant.exported``."""
        return _points(json.loads(body)["data"]["result"], 0)

    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """See ``Contestant.import_bodies``: remote write in the order of time."""
        return self.written(), list(protobuf.bodies(data))


def contestants(ours: type[Jobmeter] = Jobmeter, *, prometheus: bool = True) -> list[Contestant]:
    """Return Jobmeter, then the peers that this machine has. No contestant is started yet."""
    peers = [VictoriaMetrics()] if program("victoria-metrics") else []
    more = [Prometheus()] if prometheus and program("prometheus") else []
    return [ours(), *peers, *more]


def json_line(names: Names, stamps: str, value: NDArray[np.float64]) -> bytes:
    """Return a series as a line of VictoriaMetrics' JSON import. ``stamps`` is its times in the form of ``numbers``."""
    labels = ",".join(f'"{key}":"{text}"' for key, text in names.labels.items())
    return f'{{"metric":{{{labels}}},"values":[{numbers(value)}],"timestamps":[{stamps}]}}\n'.encode()


def numbers(column: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """Return the numbers as text with commas between them."""
    return ",".join(map(repr, column.tolist()))


def _points(series: Sequence[dict[str, object]], step_s: int) -> Points:
    """Decode a matrix of PromQL. Each point moves to the start of its step."""
    found: Points = {}
    for one in series:
        labels, values = one["metric"], one["values"]
        assert isinstance(labels, dict)
        assert isinstance(values, list)
        points = {round(at * 1000) - step_s * 1000: float(value) for at, value in values}
        found[(labels["replica"], labels.get("device", ""))] = points
    return found


def _selector(asked: Asked) -> str:
    chosen = f'job="{asked.job}"' + (f',replica="{asked.replica}"' if asked.replica else "")
    return f"{asked.metric.replace('.', '_')}{{{chosen}}}"


@functools.cache
def _quoted(query: str) -> str:
    return quote(query)
