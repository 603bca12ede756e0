"""Prometheus, vmagent and node_exporter of Debian, which write to a real server for some seconds.

The oracle is the text of the scraped endpoints.
"""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.clusters import free_port
from tests.support.needs import needs
from tests.support.processes import API, ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SENDERS = ("prometheus", "vmagent")
TOGETHER = 25.0
"""Deadline in seconds for the first data of the senders."""
LEAST = 4
"""Number of samples of each series to wait for."""


def text(count: int) -> str:
    """Return the scraped text number ``count``. Each value encodes the number of its scrape."""
    pod = 'namespace="lab",pod="train-7-worker-1",container="main"'
    return "".join(
        f"{line}\n"
        for line in (
            f'app_requests_total{{code="200",text="a \\"b\\" ü"}} {count * 10}',
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="3",UUID="GPU-1",Hostname="gpu-1",modelName="H100",{pod}}} {count % 100}',
            f'DCGM_FI_DEV_FB_USED{{gpu="3",UUID="GPU-1",Hostname="gpu-1",modelName="H100",{pod}}} {count}',
            f'container_memory_working_set_bytes{{id="/a",{pod}}} {count * 4096}',
            f'container_memory_working_set_bytes{{id="/",namespace="lab",pod="train-7-worker-1"}} {count * 8192}',
            "no_value NaN",
        )
    )


class Endpoint:
    """Serves ``text``, and counts the scrapes by path."""

    def __init__(self) -> None:
        self.read = dict.fromkeys(SENDERS, 0)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                sender = self.path.strip("/")
                endpoint.read[sender] += 1
                body = text(endpoint.read[sender]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextlib.contextmanager
def process(log: Path, *command: str) -> Iterator[None]:
    """Run a program for the block, and end it by its own process id."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait(20)


def scraped(sender: str, endpoint: int, exporter: int) -> list[dict[str, object]]:
    """Return the scrape configuration, which both programs accept; JSON is a subset of YAML."""
    job = {
        "job_name": "app",
        "metrics_path": f"/{sender}",
        "static_configs": [{"targets": [f"127.0.0.1:{endpoint}"], "labels": {"instance": f"{sender}-app:80"}}],
        "honor_labels": True,
    }
    node: dict[str, object] = {
        "job_name": "node",
        "static_configs": [{"targets": [f"127.0.0.1:{exporter}"], "labels": {"instance": f"{sender}-node:9100"}}],
    }
    return [job, node]


def start_prometheus(
    folder: Path, server: ServerProcess, scrapes: list[dict[str, object]]
) -> contextlib.AbstractContextManager[None]:
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": scrapes,
        "remote_write": [
            {
                "url": f"http://127.0.0.1:{server.port}/api/v1/write",
                "authorization": {"credentials": server.token},
                "queue_config": {"batch_send_deadline": "1s"},
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    return process(
        folder / "prometheus.log",
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
    )


def start_vmagent(
    folder: Path, server: ServerProcess, scrapes: list[dict[str, object]]
) -> contextlib.AbstractContextManager[None]:
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scrapes}
    (folder / "vmagent.yml").write_text(json.dumps(settings))
    return process(
        folder / "vmagent.log",
        "vmagent",
        f"-promscrape.config={folder / 'vmagent.yml'}",
        f"-remoteWrite.url=http://127.0.0.1:{server.port}/api/v1/write",
        "-remoteWrite.basicAuth.username=vmagent",
        f"-remoteWrite.basicAuth.password={server.token}",
        f"-remoteWrite.tmpDataPath={folder / 'vmagent'}",
        "-remoteWrite.flushInterval=1s",
        f"-httpListenAddr=127.0.0.1:{free_port()}",
    )


STARTS = {"prometheus": start_prometheus, "vmagent": start_vmagent}


def points(server: ServerProcess, metric: str, host: str) -> list[tuple[int, float]]:
    """Return the raw samples of one series, through OpenTSDB's API."""
    since = int(time.time() * 1000) - 600_000
    reply = server.call("GET", "/api/query", start=since, ms="true", m=f"none:{metric}{{host={host}}}")
    if reply.status == 400:
        return []
    assert reply.status == 200, reply.body
    return [(int(at), value) for line in reply.json() for at, value in line["dps"].items()]


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    needs("prometheus-node-exporter")
    port = free_port()
    log = tmp_path_factory.mktemp("exporter") / "log"
    with process(log, "prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"):
        yield port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("remote") / "data") as made:
        yield made


@pytest.fixture(scope="module", params=SENDERS)
def remote(request, server, exporter, tmp_path_factory):
    """Return (name of the sender, server, number of scrapes) after the sender wrote for some seconds."""
    sender = request.param
    needs(sender)
    endpoint = Endpoint()
    folder = tmp_path_factory.mktemp(sender)
    try:
        with STARTS[sender](folder, server, scraped(sender, endpoint.port, exporter)):
            wait_until(lambda: len(points(server, "app_requests_total", f"{sender}-app")) >= LEAST, sender, TOGETHER)
    finally:
        endpoint.close()
    return sender, server, endpoint.read[sender]


def test_every_sample_in_a_row_is_there_as_it_was_scraped(remote):
    sender, server, read = remote
    found = sorted(points(server, "app_requests_total", f"{sender}-app"))
    values = [value for _, value in found]
    assert values == [10.0 * count for count in range(1, len(values) + 1)]
    assert len(values) <= read
    assert all(400 < later - earlier < 5000 for (earlier, _), (later, _) in pairwise(found))


def test_labels_are_there_as_they_were_scraped(remote):
    sender, server, _ = remote
    since = int(time.time() * 1000) - 600_000
    query = f"none:app_requests_total{{host={sender}-app}}"
    (line,) = server.call("GET", "/api/query", start=since, m=query).json()
    assert line["tags"] == {
        "code": "200",
        "host": f"{sender}-app",
        "instance": f"{sender}-app:80",
        "project": "default",
        "scrape_job": "app",
        "text": 'a "b" ü',
    }


def test_what_an_exporter_says_of_a_pod_is_a_measurement_of_its_job(remote):
    _, server, _ = remote
    body = server.call("GET", f"{API}/jobs/train-7").json()
    assert [replica["name"] for replica in body["replicas"]] == ["worker-1"]
    scraped_values = {
        "gpu.utilization": {count % 100 / 100 for count in range(1, 200)},
        "gpu.memory.usage": {count * 2.0**20 for count in range(1, 200)},
        "memory.usage": {count * 4096.0 for count in range(1, 200)},
    }
    for metric, expected in scraped_values.items():
        # Both senders scrape the same GPU, so the greatest value of a second is one scraped value.
        query = {"metric": metric, "since": "10m", "step": "1s", "statistic": "max", "by": "device", "format": "csv"}
        reply = server.call("GET", f"{API}/jobs/train-7/metrics", **query)
        assert reply.status == 200, reply.body
        rows = [line.split(",") for line in reply.body.decode().splitlines()[1:]]
        assert len(rows) >= LEAST
        assert {float(row[3]) for row in rows} <= expected
        assert {(row[1], row[2]) for row in rows} == {("worker-1", "gpu3" if metric.startswith("gpu") else "")}


def test_what_node_exporter_says_is_a_measurement_of_the_node(remote, exporter):
    sender, server, _ = remote
    with urlopen(f"http://127.0.0.1:{exporter}/metrics", timeout=10) as reply:
        lines = dict(line.rsplit(" ", 1) for line in reply.read().decode().splitlines() if not line.startswith("#"))
    total = float(lines["node_memory_MemTotal_bytes"])
    # vmagent parses 2.5276502016e+10 as 25276502016.000004: its values can differ in the last bit.
    exact = pytest.approx(total, rel=1e-15)
    remote_values = [value for _, value in points(server, "node.memory.total", f"{sender}-node")]
    assert remote_values
    assert all(value == exact for value in remote_values)
    found = server.call("GET", f"{API}/nodes/{sender}-node/metrics", metric="node.memory.total", since="10m").json()
    assert all(value == exact for line in found["lines"] for _, value in line["points"])
    idle = float(lines['node_cpu_seconds_total{cpu="0",mode="idle"}'])
    since = int(time.time() * 1000) - 600_000
    query = f"none:node.cpu.time{{host={sender}-node,cpu=0,mode=idle}}"
    (line,) = server.call("GET", "/api/query", start=since, m=query).json()
    assert 0 <= idle - max(line["dps"].values()) < 120  # a busy machine is never idle


def test_special_values_are_stored_as_scraped(remote):
    sender, server, _ = remote
    query = f'last_over_time(no_value{{instance="{sender}-app:80"}}[1h])'
    (row,) = server.call("GET", "/prometheus/api/v1/query", query=query).json()["data"]["result"]
    assert row["metric"] == {"__name__": "no_value", "instance": f"{sender}-app:80", "job": "app"}
    assert row["value"][1] == "NaN"
    text = server.call("GET", "/metrics").body.decode()
    counted = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert not [line for line in counted if 'reason="labels"' in line or 'reason="name"' in line]
