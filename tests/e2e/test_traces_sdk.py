"""Spans and log records from OpenTelemetry's own SDK on a real server, read by the command line and the APIs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_opentelemetry_sdk import PYTHON, WAYS, otlp_server
from tests.support.processes import API

SCRIPT = Path(__file__).parent / "sdk" / "otlp_traces.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="the environment of the SDK is not built: make sdk"),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with otlp_server(tmp_path_factory.mktemp("traces")) as made:
        yield made


def send(way, job, *arguments, **environment):
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    settings = {"OTEL_RESOURCE_ATTRIBUTES": f"jobmeter.job.id={job},jobmeter.replica=worker-0"}
    ran = subprocess.run(
        [PYTHON, SCRIPT, way, *arguments],
        env={**own, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def by_key(target, way):
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": target.endpoints[way],
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{target.writer}",
    }


def get(target, path, **query):
    headers = {"Authorization": f"Bearer {target.reader}"}
    return target.server.call("GET", f"{API}{path}", headers=headers, **query).json()


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_comes_back_as_the_sdk_sent_it(target, way):
    job = f"traced-{WAYS.index(way)}"
    sent = send(way, job, "logs", **by_key(target, way))
    assert sent["exported"] == ["SUCCESS"] * 3
    epoch, step, load = get(target, f"/traces/{sent['trace']}")["spans"]
    assert [one["name"] for one in (epoch, step, load)] == ["epoch", "step", "load"]
    assert (epoch["parent"], step["parent"], load["parent"]) == ("", epoch["span"], step["span"])
    assert (epoch["kind"], epoch["attributes"]) == ("server", {"rank": 0, "lr": 0.5, "on": True})
    assert (epoch["scope"], epoch["scope_version"], epoch["replica"], epoch["job"]) == (
        "trainer", "1.2", "worker-0", job,
    )  # fmt: skip
    assert [(one["name"], one["attributes"]) for one in step["events"]] == [
        ("checkpoint", {"bytes": 7, "names": ["a", "b"]})
    ]
    assert [(one["trace"], one["span"], one["attributes"]) for one in step["links"]] == [
        (sent["trace"], epoch["span"], {"why": "a"})
    ]
    assert (load["status"], load["message"]) == ("error", "no such file")
    (listed,) = get(target, "/traces", job=job, status="error")["traces"]
    assert (listed["trace"], listed["spans"], listed["errors"]) == (sent["trace"], 3, 1)
    (line,) = get(target, f"/jobs/{job}/logs")["lines"]
    assert line["text"].startswith("loss is nan")
    assert f"trace_id={sent['trace']}" in line["text"]
    assert "step=3" in line["text"]
    assert (line["level"], line["stream"], line["replica"]) == ("error", "otlp", "worker-0")


@pytest.mark.parametrize("way", WAYS)
def test_with_the_token_of_the_vendors_call_and_its_curl(target, way):
    """Run the published example unchanged, apart from host and key."""
    example = (
        f"curl -s -X GET '{target.server.url}/api/PaiLLMTrace/2024-03-11/GetXtraceToken' "
        "-H \"Authorization: Bearer $DASHSCOPE_API_KEY\" -H 'Content-Type: application/json'"
    )
    ran = subprocess.run(
        ["bash", "-c", example],
        env={**os.environ, "DASHSCOPE_API_KEY": target.writer},
        capture_output=True,
        text=True,
        check=True,
    )
    granted = json.loads(ran.stdout)
    endpoint = granted["GrpcEndpoint" if way == "grpc" else "HttpEndpoint"]
    job = f"granted-{WAYS.index(way)}"
    environment = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authentication={granted['Token']}",
    }
    sent = send(way, job, **environment)
    assert sent["exported"] == ["SUCCESS"] * 3
    assert len(get(target, f"/traces/{sent['trace']}")["spans"]) == 3


def test_the_command_line_prints_a_tree(target):
    sent = send("http/protobuf", "printed", **by_key(target, "http/protobuf"))
    ran = subprocess.run(
        [sys.executable, "-m", "jobmeter", "traces", "printed", "--server", target.server.url, "--key", target.reader],
        capture_output=True,
        text=True,
        check=True,
    )
    head, *lines = ran.stdout.splitlines()
    assert head.startswith(sent["trace"])
    assert [line[: len(line) - len(line.lstrip())] + line.split()[0] for line in lines] == [
        "  epoch", "    step", "      load:",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in (head, *lines))
