"""Tests of StatsD over UDP and OpenTelemetry over HTTP: senders are found by port, other messages are refused."""

import gzip
import http.client
import itertools
import os
import socket
import sys

import pytest
from tests.support.otlp import add, as_json, metric, request
from tests.support.waiting import wait_until
from tests.unit.collect.reports.test_receiver import PID, make, values

from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.local_http import MOST_BODY
from jobmeter.collect.reports.network import OtlpPort, StatsdPort
from jobmeter.collect.reports.ports import PortOwners
from jobmeter.model.time import SystemClock

JSON, PROTOBUF = "application/json", "application/x-protobuf"


@pytest.fixture
def reports():
    return make()


@pytest.fixture
def ask(reports):
    """Send a body and return the status and the answer."""
    port = OtlpPort(0, PortOwners(lambda: [PID]), reports, SampleClock(SystemClock()))
    port.start()
    where = port.environment["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"].split("/")[2]

    def send(body, kind=JSON, path="/v1/metrics", **headers):
        connection = http.client.HTTPConnection(where, timeout=20)
        try:
            connection.request("POST", path, body, {"Content-Type": kind, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    yield send
    port.stop()


def test_both_encodings_are_taken_packed_or_not(ask, reports):
    for at, kind in enumerate((JSON, PROTOBUF)):
        message = request({}, add(metric(f"x{at}"), SystemClock().now_ms() * 1_000_000, 1.5, step=7, part="a"))
        body = message.SerializeToString() if kind == PROTOBUF else as_json(message)
        assert ask(body, kind) == (200, b"" if kind == PROTOBUF else b"{}")
        assert ask(gzip.compress(body), kind, **{"Content-Encoding": "gzip"})[0] == 200
    found = values(reports)
    assert found["app.x0"] == found["app.x1"] == [1.5]
    assert found["app.step"][0] == 7.0


def test_what_is_no_request_is_refused_with_a_reason(ask, reports):
    assert ask(b"{}", path="/v1/traces")[0] == 404
    assert ask(b"{}", "text/plain")[0] == 415
    status, answer = ask(b"{", JSON)
    assert (status, b"not the message" in answer) == (400, True)
    assert ask(b"\xff", PROTOBUF)[0] == 400
    assert ask(b"no gzip", **{"Content-Encoding": "gzip"})[0] == 400
    assert ask(b"{}", **{"Content-Encoding": "br"})[0] == 400
    assert ask(gzip.compress(b" " * (MOST_BODY + 1)), **{"Content-Encoding": "gzip"})[0] == 400
    assert ask(b"", **{"Content-Length": str(MOST_BODY + 1)})[0] == 413
    assert reports.damaged == 2
    assert ask(b"{}")[0] == 200


def test_a_sender_of_no_job_is_refused():
    reports = make()
    port = OtlpPort(0, PortOwners(list), reports, SampleClock(SystemClock()))
    port.start()
    connection = http.client.HTTPConnection(port.environment["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"].split("/")[2])
    connection.request("POST", "/v1/metrics", b"{}", {"Content-Type": JSON})
    assert connection.getresponse().status == 403
    connection.close()
    port.stop()
    assert reports.unattributed == 1


def test_requests_beyond_the_share_of_the_cpu_are_refused(reports):
    spent = itertools.count()
    budget = MeasuringBudget(0.1, 0.5, lambda: 0.0, lambda: float(next(spent)))
    port = OtlpPort(0, PortOwners(lambda: [PID]), reports, SampleClock(SystemClock()), budget)
    port.start()
    connection = http.client.HTTPConnection(port.environment["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"].split("/")[2])
    connection.request("POST", "/v1/metrics", b"{}", {"Content-Type": JSON})
    reply = connection.getresponse()
    assert (reply.status, b"report less often" in reply.read()) == (429, True)
    connection.close()
    port.stop()
    assert reports.refused == 1


def test_datagrams_that_the_kernel_drops_are_counted(reports):
    spent = itertools.count()
    budget = MeasuringBudget(1.0, 0.0, cpu=lambda: next(spent) * 1e-3)
    port = StatsdPort(0, PortOwners(lambda: [PID]), reports.receive, budget)
    port.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        there = port.environment["STATSD_HOST"], int(port.environment["STATSD_PORT"])

        def is_lost():
            for _ in range(1_000):
                sender.sendto(b"x" * 1_000, there)
            return port.lost

        wait_until(is_lost)
    port.stop()


def test_datagrams_are_attributed_by_the_port_of_their_sender(reports):
    port = StatsdPort(0, PortOwners(lambda: [PID]), reports.receive)
    port.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        there = port.environment["STATSD_HOST"], int(port.environment["STATSD_PORT"])
        sender.sendto(b"x:1.5|g", there)
        found: dict[str, list[float]] = {}
        wait_until(lambda: found.update(values(reports)) or "app.x" in found)
    port.stop()
    assert found["app.x"] == [1.5]


def test_the_owner_of_a_port_is_among_the_processes_alone():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        sender = own.getsockname()
        assert PortOwners(lambda: [1, PID]).find("udp", sender, 8125) == PID
        assert PortOwners(lambda: [os.getppid()]).find("udp", sender, 8125) is None
        assert PortOwners(lambda: [PID]).find("tcp", sender, 8125) is None


@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel writes the words of addresses in its own order")
@pytest.mark.parametrize(
    ("table", "local"),
    [
        ("udp", "0100007F"),
        ("udp", "00000000"),
        ("udp6", "00000000000000000000000000000000"),
        ("udp6", "0000000000000000FFFF00000100007F"),
    ],
)
def test_senders_are_found_however_their_socket_is_bound(tmp_path, table, local):
    (tmp_path / "net").mkdir()
    nobody = "0" * len(local)
    row = f"  7: {local}:A3C1 {nobody}:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0"
    (tmp_path / "net" / table).write_text(f"  sl  local_address rem_address   st ...\n{row}\n")
    (tmp_path / "9" / "fd").mkdir(parents=True)
    (tmp_path / "9" / "fd" / "3").symlink_to("socket:[4711]")
    assert PortOwners(lambda: [8, 9], str(tmp_path)).find("udp", ("127.0.0.1", 0xA3C1), 8125) == 9


def test_the_same_port_of_another_address_or_connection_is_no_sender():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", 0))
        assert PortOwners(lambda: [PID]).find("udp", ("127.0.0.1", other.getsockname()[1]), 8125) is None
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
    ):
        sender, port = connection.getsockname(), server.getsockname()[1]
        assert PortOwners(lambda: [PID]).find("tcp", sender, port) == PID
        assert PortOwners(lambda: [PID]).find("tcp", sender, port - 1) is None


def test_a_port_that_is_taken_is_an_error(reports):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        OtlpPort(other.getsockname()[1], PortOwners(list), reports, SampleClock(SystemClock()))
