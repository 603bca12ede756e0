"""OpenTelemetry's own SDK against a real server, over HTTP and gRPC, configured by its environment variables alone."""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import make
from tests.support.processes import API, ServerProcess, running

PYTHON = Path(__file__).parents[2] / ".venvs" / "opentelemetry" / "bin" / "python"
SCRIPT = Path(__file__).parent / "sdk" / "otlp.py"
WAYS = ("http/protobuf", "grpc")
ROUNDS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


def token(server: ServerProcess, role: str) -> str:
    made = server.request("POST", "/keys", {"name": role, "role": role, "project": "lab"})
    found: str = made.json()["token"]
    return found


def export(endpoint: str, way: str, token: str, rounds: int, **environment: str) -> dict[str, list[Any]]:
    """Run the program as a user does. It knows nothing of Jobmeter."""
    ours = ("OTEL_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": way,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "30",
        "OTEL_SERVICE_NAME": "trainer",
    }
    ran = subprocess.run(
        [PYTHON, SCRIPT, way, str(rounds)],
        env={**own, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[Any]] = json.loads(ran.stdout)
    return found


class OtlpServer:
    """Server with both OTLP protocols, and its keys."""

    def __init__(self, server: ServerProcess, grpc: int) -> None:
        self.server = server
        self.endpoints = {
            "http/protobuf": f"http://127.0.0.1:{server.port}",
            "grpc": f"http://127.0.0.1:{grpc}",
        }
        self.writer, self.reader = token(server, "writer"), token(server, "reader")

    def export(self, way: str, job: str, token: str, rounds: int = ROUNDS, **environment: str) -> dict[str, list[Any]]:
        """Run the program for a job."""
        resource = f"jobmeter.job.id={job},jobmeter.replica=worker-0,host.name=gpu-1"
        return export(self.endpoints[way], way, token, rounds, OTEL_RESOURCE_ATTRIBUTES=resource, **environment)

    def values(self, job: str, metric: str, **labels: str) -> list[float]:
        """Return the raw samples of one series in order, through OpenTSDB's API."""
        tags = ",".join(f"{name}={value}" for name, value in {"job": job, **labels}.items())
        since = int(time.time() * 1000) - 600_000
        headers = {"Authorization": f"Bearer {self.reader}"}
        line = f"none:{metric}{{{tags}}}"
        reply = self.server.call("GET", "/api/query", headers=headers, start=since, ms="true", m=line)
        lines = reply.json() if reply.status == 200 else []
        assert len(lines) <= 1
        return [value for line in lines for _, value in sorted(line["dps"].items(), key=lambda one: int(one[0]))]

    def answer(self, job: str, metric: str) -> list[float]:
        """Return the values of the job's only replica, second by second, through the native API."""
        query: dict[str, Any] = {"since": "10m", "step": "1s", "statistic": "min", "by": "replica"}
        headers = {"Authorization": f"Bearer {self.reader}"}
        reply = self.server.call("GET", f"{API}/jobs/{job}/metrics", headers=headers, metric=metric, **query)
        assert reply.status == 200, reply.body
        (line,) = reply.json()["lines"]
        assert line["replica"] == "worker-0"
        return [value for _, value in line["points"]]


@contextlib.contextmanager
def otlp_server(folder: Path, **settings):
    with running(folder / "data", "--otlp-grpc-port", "0", **settings) as server:
        yield OtlpServer(server, server.note["otlp_grpc_port"])


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with otlp_server(tmp_path_factory.mktemp("opentelemetry")) as made:
        yield made


@pytest.fixture(scope="module", params=WAYS)
def job(request, target):
    """Run the program of a job twice, once over each protocol."""
    name = f"train-{WAYS.index(request.param)}"
    found = target.export(request.param, name, target.writer)
    assert found == {"exported": [True] * (ROUNDS + 1), "logged": []}
    return name


def test_the_server_stores_what_the_program_counted(target, job):
    # The last export happens at the end of the program, and repeats the totals.
    assert target.values(job, "steps", rank="0") == [10.0, 20.0, 20.0]
    assert target.values(job, "steps", rank="1") == [5.0, 10.0, 10.0]
    assert target.values(job, "queue") == [3.0, -1.0, -1.0]
    assert target.values(job, "room.temperature") == [20.5, 21.25, 22.0]
    assert target.values(job, "app.loss") == [1.0, 0.5, 0.5]


def test_a_histogram_is_what_prometheus_has_for_it(target, job):
    assert target.values(job, "step.time_count") == [4.0, 8.0, 8.0]
    assert target.values(job, "step.time_sum") == pytest.approx([2.65, 5.3, 5.3])
    for bound, count in {"0.1": 1.0, "0.5": 3.0, "+Inf": 4.0}.items():
        assert target.values(job, "step.time_bucket", le=bound) == [count, 2 * count, 2 * count]


def test_a_question_to_the_native_api_is_answered_with_it(target, job):
    assert set(target.answer(job, "app.loss")) <= {1.0, 0.5}
    assert target.answer(job, "app.loss")[-1] == 0.5
    assert target.answer(job, "external.queue")[-1] == -1.0
    body = target.server.call("GET", f"{API}/jobs/{job}").json()
    assert (body["job"]["project"], [one["name"] for one in body["replicas"]]) == ("lab", ["worker-0"])


@pytest.mark.parametrize("way", WAYS)
def test_compressed_exports_are_taken(target, way):
    name = f"gzip-{WAYS.index(way)}"
    found = target.export(way, name, target.writer, 1, OTEL_EXPORTER_OTLP_COMPRESSION="gzip")
    assert found["exported"] == [True, True]
    assert target.values(name, "app.loss") == [1.0, 1.0]


@pytest.mark.parametrize("way", WAYS)
def test_changes_are_refused_and_the_values_stored(target, way):
    name = f"delta-{WAYS.index(way)}"
    preference = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
    assert target.export(way, name, target.writer, 1, **preference)["exported"] == [True, True]
    assert target.values(name, "app.loss") == [1.0, 1.0]
    assert target.values(name, "steps") == []
    text = target.server.call("GET", "/metrics").body.decode()
    counted = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(counted['jobmeter_ingest_samples_rejected_total{reason="delta"}']) >= 3


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_may_not_write_and_a_wrong_one_are_refused(target, way):
    for token, words in ((target.reader, ("403", "PERMISSION_DENIED")), ("jm_wrong", ("401", "UNAUTHENTICATED"))):
        found = target.export(way, "nobody", token, 1)
        assert found["exported"] == [False, False]
        assert any(word in line for word in words for line in found["logged"]), found["logged"]
    assert target.values("nobody", "app.loss") == []


@pytest.mark.parametrize("way", WAYS)
def test_with_tls(tmp_path, way):
    made = make(tmp_path)
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key), "--otlp-grpc-port", "0")
    with running(tmp_path / "data", *options) as server:
        endpoint = server.url if way != "grpc" else f"https://127.0.0.1:{server.note['otlp_grpc_port']}"
        found = export(endpoint, way, str(server.admin["token"]), 1, OTEL_EXPORTER_OTLP_CERTIFICATE=str(made.ca))
        assert found["exported"] == [True, True], found
        assert server.stop() == 0
        assert "Traceback" not in server.output()


@pytest.mark.parametrize("way", WAYS)
def test_an_exporter_that_is_signalled_come_again_loses_nothing(tmp_path, way):
    """The server accepts one export a second. The SDK sends two at once, and retries the refused one."""
    limited = {"JOBMETER_RATE_LIMITS": "ExportMetrics=1:1"}
    with otlp_server(tmp_path, environment=limited) as target:
        found = target.export(way, "patient", target.writer, 1)
        assert found["exported"] == [True, True], found
        assert any("retrying" in line for line in found["logged"]), found
        assert target.values("patient", "queue") == [3.0, 3.0]
