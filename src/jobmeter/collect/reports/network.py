"""Receive StatsD over UDP and OpenTelemetry's metrics over HTTP, on configured ports of the loopback address."""

import socket
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import msgspec

from jobmeter.collect.budget import MeasuringBudget
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.local_http import LOOPBACK, MOST_BODY, LocalHandler, LocalServer
from jobmeter.collect.reports.datagrams import DatagramReceiver
from jobmeter.collect.reports.ports import PortOwners
from jobmeter.collect.reports.receiver import ProgramReports, ReportSource
from jobmeter.collect.reports.reporter import ReportedPoint
from jobmeter.collect.reports.settings import BURST_SECONDS, SHARE
from jobmeter.collect.reports.statsd import STEP_TAG
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import NS_PER_MS
from jobmeter.wire.otlp import points

_MOST_CONNECTIONS = 64
_REQUEST_SECONDS = 10
_PATH = "/v1/metrics"
_SO_RXQ_OVFL = 40
"""Option that attaches the number of dropped datagrams to each message: socket(7)."""
_COUNT = struct.Struct("=I")


class StatsdPort(DatagramReceiver):
    """UDP socket for StatsD. ``port`` 0: the system chooses. Raises OSError if the port is taken."""

    def __init__(
        self, port: int, owners: PortOwners, take: Callable[[int, bytes], None], budget: MeasuringBudget | None = None
    ) -> None:
        self.lost = 0
        """Datagrams that the kernel dropped because they were not read in time."""
        self._owners = owners
        self._port = port
        super().__init__(socket.AF_INET, _SO_RXQ_OVFL, "statsd", take, budget)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which clients of StatsD and DogStatsD find the port."""
        host = {"STATSD_HOST": LOOPBACK, "DD_AGENT_HOST": LOOPBACK}
        return {**host, "STATSD_PORT": str(self._port), "DD_DOGSTATSD_PORT": str(self._port)}

    def _bind(self) -> None:
        self._socket.bind((LOOPBACK, self._port))
        self._port = self._socket.getsockname()[1]

    def _find_sender(self, ancillary: Mapping[int, bytes], sender: Any) -> int:  # noqa: ANN401 - as of the base class
        if len(content := ancillary.get(_SO_RXQ_OVFL, b"")) >= _COUNT.size:
            self.lost = _COUNT.unpack_from(content)[0]
        return self._owners.find("udp", sender, self._port) or 0


class _MetricsHandler(LocalHandler):
    timeout = _REQUEST_SECONDS
    server: "OtlpPort"

    def respond(self) -> None:
        """Take one message."""
        kind = self.fields.get("content-type", "").partition(";")[0].strip().lower()
        if self.command != "POST" or self.path.partition("?")[0] != _PATH:
            self._answer(404, kind, f"only {_PATH} is served here")
            return
        sent = self.read_body()
        if sent is None:
            self._answer(413, kind, f"a request needs Content-Length, of at most {MOST_BODY} bytes")
            return
        try:
            body = _decompress(sent, self.fields.get("content-encoding", ""))
        except (zlib.error, InvalidRequestError) as error:
            self._answer(400, kind, str(error))
            return
        if kind not in {"application/json", "application/x-protobuf"}:
            self._answer(415, kind, "the body must be application/json or application/x-protobuf")
            return
        status, problem = self.server.take(self.client_address, body, json=kind == "application/json")
        self._answer(status, kind, problem)

    def _answer(self, status: int, kind: str, problem: str) -> None:
        if kind == "application/x-protobuf":
            text = problem.encode()[:100]
            body = bytes((0x12, len(text))) + text if problem else b""  # google.rpc.Status.message
        else:
            kind, body = "application/json", b'{"message":%b}' % msgspec.json.encode(problem) if problem else b"{}"
        self.answer(status, kind, body)


class OtlpPort(LocalServer):
    """HTTP server for OpenTelemetry's metrics. ``port`` 0: the system chooses. Raises OSError if the port is taken."""

    def __init__(
        self,
        port: int,
        owners: PortOwners,
        reports: ProgramReports,
        clock: SampleClock,
        budget: MeasuringBudget | None = None,
    ) -> None:
        """``budget`` bounds the CPU time of all requests; the default is ``SHARE``.

        Further requests are refused (429).
        """
        self._budget = budget or MeasuringBudget(SHARE, BURST_SECONDS)
        self._turn = Lock()
        self._owners = owners
        self._reports = reports
        self._clock = clock
        super().__init__(port, _MetricsHandler, _MOST_CONNECTIONS, "otlp")

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which an OpenTelemetry SDK finds the port."""
        endpoint = self.url + _PATH
        return {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}

    def take(self, sender: tuple[str, int], body: bytes, *, json: bool) -> tuple[int, str]:
        """Take a message of a sender. Return the status of the answer and the problem, if any."""
        with self._turn:
            self._budget.begin()
            try:
                if self._budget.left < 0:
                    self._reports.refused += 1
                    return 429, "too much is reported here: the agent has used its share of the CPU; report less often"
                return self._take_request(sender, body, json=json)
            finally:
                self._budget.end()

    def _take_request(self, sender: tuple[str, int], body: bytes, *, json: bool) -> tuple[int, str]:
        process = self._owners.find("tcp", sender, self.server_address[1])
        reporter = self._reports.find_reporter(process) if process else None
        if reporter is None:
            self._reports.unattributed += 1
            return 403, "the sender belongs to no job that is measured here"
        try:
            found = points.decode(body, json=json)
        except InvalidRequestError as error:
            self._reports.damaged += 1
            return 400, error.message
        # Times are of the wall clock; samples have the clock of this measurement.
        offset_ms = self._clock.measure_wall_offset_ms()
        grouped: defaultdict[tuple[int, float | None, tuple[tuple[str, str], ...]], dict[str, float]]
        grouped = defaultdict(dict)
        for one in found.numbers:
            time_ms = one.time_ns // NS_PER_MS + offset_ms if one.time_ns else self._clock.now_ms()
            labels = tuple((name, text) for name, text in one.attributes.items() if name != STEP_TAG)
            grouped[time_ms, _step(one.attributes), labels][one.name] = one.value
        sent = [ReportedPoint(time, step, values, labels) for (time, step, labels), values in grouped.items()]
        self._reports.add(reporter, ReportSource.OTLP, sent, found.refused)
        return 200, ""


def _step(attributes: Any) -> float | None:  # noqa: ANN401 - a mapping of texts
    try:
        return float(attributes[STEP_TAG])
    except (KeyError, ValueError):
        return None


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        raise InvalidRequestError(f"the encoding {encoding[:32]!r} is not supported: use gzip or none")
    unpacker = zlib.decompressobj(wbits=31)
    found = unpacker.decompress(body, MOST_BODY)
    if unpacker.unconsumed_tail:
        raise InvalidRequestError(f"a request may have {MOST_BODY} bytes when it is decompressed")
    return found
