"""VictoriaMetrics and Prometheus from Debian, loaded with the same samples and asked the same questions."""

import json
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from benchmarks import protobuf
from benchmarks.client import Post, answer, post_all
from benchmarks.contestant import Asked, Contestant, Template
from benchmarks.data import Data, Names
from benchmarks.processes import folder_bytes
from benchmarks.row import PROMETHEUS, VICTORIA

_BODY_SAMPLES = 250_000
_DAYS = 60


class Peer(Contestant):
    """A peer that speaks PromQL and remote write."""

    def path(self, asked: Asked) -> str:
        """Means over the step, then over the members of ``by``."""
        groups = {"device": "replica,device", "replica": "replica"}[asked.by]
        query = f"avg by ({groups}) (avg_over_time({_selector(asked)}[{asked.step_s}s]))"
        span = f"start={asked.start_ms / 1000:.3f}&end={asked.end_ms / 1000:.3f}&step={asked.step_s}"
        return f"/api/v1/query_range?query={quote(query)}&{span}"

    def values(self, body: bytes) -> list[list[float]]:
        """See ``Contestant.values``."""
        return [[float(point[1]) for point in line["values"]] for line in json.loads(body)["data"]["result"]]

    def template(self, series: Sequence[Names]) -> Template:
        """See ``Contestant.template``."""
        return protobuf.RemoteTemplate([names.labels for names in series])

    def written(self) -> Post:
        """See ``Contestant.written``."""
        return Post(self.port, "/api/v1/write", protobuf.HEADERS)


class VictoriaMetrics(Peer):
    """VictoriaMetrics as it comes, its result cache included."""

    name = VICTORIA
    ready = "/health"
    afresh = "&nocache=1"

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        listen = f"-httpListenAddr=127.0.0.1:{self.port}"
        return ["victoria-metrics", listen, f"-storageDataPath={self.data_folder}", f"-retentionPeriod={_DAYS}d"]

    def import_bodies(self, data: Data) -> tuple[Post, list[bytes]]:
        """See ``Contestant.import_bodies``."""
        lines = [json_line(one, data.time, data.value[at]) for at, one in enumerate(data.names())]
        per_body = max(1, _BODY_SAMPLES // len(data.time))
        bodies = [b"".join(lines[first : first + per_body]) for first in range(0, len(lines), per_body)]
        return Post(self.port, "/api/v1/import", {}), bodies

    def settle(self) -> None:
        """See ``Contestant.settle``."""
        answer(self.request("/internal/force_flush"))

    def export(self, asked: Asked) -> str:
        """See ``Contestant.export``."""
        span = f"start={asked.start_ms / 1000:.3f}&end={asked.end_ms / 1000:.3f}"
        return f"/api/v1/export?match[]={quote(_selector(asked))}&{span}"

    def raw_bytes(self) -> int:
        """Of the samples alone, without the index of names."""
        return folder_bytes(self.data_folder / "data")


class Prometheus(Peer):
    """Prometheus as a remote-write receiver. It has no bulk import, and takes each series in the order of time."""

    name = PROMETHEUS
    ready = "/-/ready"

    @property
    def command(self) -> Sequence[str]:
        """See ``Contestant.command``."""
        config = self.place / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1h}\n")
        return [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.data_folder}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver",
            f"--storage.tsdb.retention.time={_DAYS}d",
        ]  # fmt: skip

    def export(self, asked: Asked) -> str:
        """See ``Contestant.export``: a range vector of an instant query."""
        query = f"{_selector(asked)}[{round(asked.hours * 60)}m]"
        return f"/api/v1/query?query={quote(query)}&time={asked.end_ms / 1000:.3f}"

    def load(self, data: Data) -> None:
        """See ``Contestant.load``, by remote write."""
        post_all(self.written(), [list(protobuf.bodies(data))])


def json_line(names: Names, time: NDArray[np.int64], value: NDArray[np.float64]) -> bytes:
    """One series for VictoriaMetrics' JSON import."""
    labels = ",".join(f'"{key}":"{text}"' for key, text in names.labels.items())
    values, stamps = ",".join(map(repr, value.tolist())), ",".join(map(str, time.tolist()))
    return f'{{"metric":{{{labels}}},"values":[{values}],"timestamps":[{stamps}]}}\n'.encode()


def _selector(asked: Asked) -> str:
    chosen = f'job="{asked.job}"' + (f',replica="{asked.replica}"' if asked.replica else "")
    return f"{asked.metric.replace('.', '_')}{{{chosen}}}"
