"""OTLP over gRPC on a separate port: the operations of OTLP over HTTP in another envelope.

https://opentelemetry.io/docs/specs/otlp/#otlpgrpc. gRPC has its own threads, in which a call waits until its data is
durable. A call that waits for a thread has not been read yet, so excess data stays with the sender.

On the wire a call with one message is a stream of one. It is served as a stream, because then the handler requests the
message only after the credential is verified and memory is reserved.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import grpc

from jobmeter.access.call import Call
from jobmeter.access.memory import MemoryAccount, drop_frames
from jobmeter.dialects.base import Answer, Match, Operation, drive
from jobmeter.dialects.otlp import OTLP
from jobmeter.dialects.otlp.errors import find_kind, make_message, retry_ms_of
from jobmeter.dialects.otlp.forms import BODY_BYTES, PROTOBUF
from jobmeter.errors import ConfigurationError, InvalidRequestError, JobmeterError, LimitExceededError
from jobmeter.server.commands import perform
from jobmeter.server.dialect_router import make_context
from jobmeter.server.exchange import report
from jobmeter.server.http.limits import MOST_GRPC
from jobmeter.server.pipeline import NOTHING, AccessRule, Incoming, ServedRequest, choose_no_project, enter, finish
from jobmeter.server.services import Services
from jobmeter.wire.otlp.answers import encode_status

_log = logging.getLogger("jobmeter.server")

_SERVICES = {
    "opentelemetry.proto.collector.metrics.v1.MetricsService": "ExportMetrics",
    "opentelemetry.proto.collector.trace.v1.TraceService": "ExportTraces",
    "opentelemetry.proto.collector.logs.v1.LogsService": "ExportLogs",
}
"""Services by name, with the operation of each."""
METHOD = "Export"
ROUTER = "otlp-grpc"
"""Name in logs and in the server's own metrics."""
THREADS = 16
"""Concurrent calls. Each has one message of at most ``BODY_BYTES`` in memory."""
CALLS = 4_096
"""Calls at one time, including those that wait for a thread.

Many more senders than threads may call. Further calls get RESOURCE_EXHAUSTED.
"""
_METADATA_BYTES = 16 * 1024
_LOOKAHEAD_BYTES = 64 * 1024
"""HTTP/2 flow-control window: bytes of a message read ahead of the handler."""
_IDLE_MS, _HANDSHAKE_MS, _PING_MS, _PONG_MS = 120_000, 15_000, 60_000, 20_000
"""Longest connection without a call, longest handshake, interval of pings, and time limit of their answers."""
_AGE_MS, _LAST_CALL_MS = 3_600_000, 30_000
"""Maximum age of a connection, and the grace period of its running calls. Its client then reconnects."""
_GONE = 499
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    """gRPC server, bound to a port when created, serving from ``start`` to ``stop``."""

    def __init__(
        self, host: str, port: int, certificate: Path | None = None, key: Path | None = None, most: int = MOST_GRPC
    ) -> None:
        """``port`` 0 takes any free port; connections beyond ``most`` are closed.

        Raises ConfigurationError when the address is not available.
        """
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="jobmeter-grpc")
        self._server = grpc.server(
            self._pool,
            options=(
                ("grpc.max_receive_message_length", BODY_BYTES),
                ("grpc.max_metadata_size", _METADATA_BYTES),
                ("grpc.max_allowed_incoming_connections", most),
                # Without this limit a message is read ahead of the handler as fast as the connection allows.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", _LOOKAHEAD_BYTES),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.max_connection_age_ms", _AGE_MS),
                ("grpc.max_connection_age_grace_ms", _LAST_CALL_MS),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.keepalive_time_ms", _PING_MS),
                ("grpc.keepalive_timeout_ms", _PONG_MS),
                # A second server on the same port must fail, not share the calls.
                ("grpc.so_reuseport", 0),
            ),
            maximum_concurrent_rpcs=CALLS,
        )
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port: int = self._bind(address, certificate, key)
        except RuntimeError as error:
            raise ConfigurationError(f"cannot listen on {host} port {port} for gRPC: {error}") from error

    def _bind(self, address: str, certificate: Path | None, key: Path | None) -> int:
        if certificate is None or key is None:
            port: int = self._server.add_insecure_port(address)
        else:
            pair = (key.read_bytes(), certificate.read_bytes())
            port = self._server.add_secure_port(address, grpc.ssl_server_credentials((pair,)))
        return port

    def start(self, services: Services) -> None:
        """Begin to serve."""
        services.telemetry.grpc_port = self.port
        for service, name in _SERVICES.items():
            operation = next(one for one in OTLP.operations if one.name == name)
            export = grpc.stream_unary_rpc_method_handler(_Exports(services, service, operation).export)
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {METHOD: export}),))
        self._server.start()

    def stop(self, seconds: float = 30.0) -> None:
        """Accept no more calls; wait up to ``seconds`` for running calls."""
        self._server.stop(seconds).wait()
        self._pool.shutdown(cancel_futures=True)


class _Exports:
    """Handler of calls; each runs on its own thread."""

    def __init__(self, services: Services, service: str, operation: Operation) -> None:
        self._services = services
        self._service = service
        self._match = Match(operation, {})
        self._rule = AccessRule(operation.name, operation.action, OTLP.schemes, operation.rate)

    def export(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Answer the request in ``messages`` with the bytes of the response."""
        services = self._services
        source, memory = Incoming(_call(context, self._service)), services.memory.open_account()
        request = ServedRequest(source, OTLP.name, self._rule)
        began = services.telemetry.count_begin(ROUTER)
        try:
            if not context.is_active():  # nobody waits for the answer, and the sender will send the request again
                source.status = _GONE
                return b""
            answer = self._answer_request(request, messages, memory)
        except JobmeterError as problem:
            report(source.request_id, problem)
            drop_frames(problem)
            source.status, request.error = _refuse(context, problem), problem
        except grpc.RpcError as over:
            # gRPC has already answered, or nobody waits for an answer.
            drop_frames(over)
            text = f"the call ended before its message: the sender disconnected, or sent more than {BODY_BYTES} bytes"
            request.error = LimitExceededError(text, "body")
            _log.info("request %s: %s", source.request_id, text)
            source.status = _GONE
        except Exception as bug:  # noqa: BLE001 - a bug must not reach the client
            _log.exception("request %s failed: %s", source.request_id, self._service)
            drop_frames(bug)
            request.error = JobmeterError("internal error")
            source.status = _refuse(context, request.error)
        else:
            source.status = answer.status
            return answer.body
        finally:
            memory.close()
            source.call = replace(source.call, body=b"", memory=None)
            services.telemetry.count_end(ROUTER, source.status, began)
            finish(services.usage, request)
        return b""

    def _answer_request(self, request: ServedRequest, messages: Iterator[bytes], memory: MemoryAccount) -> Answer:
        """Run the steps of ``jobmeter.server.pipeline`` on the thread of the call. Raises any JobmeterError."""
        services, operation = self._services, self._match.operation
        enter(services, request, choose_no_project)
        call = request.source.call = request.call.with_body(_message(messages, memory), memory)
        call.take(operation.read_bytes(call))
        inputs = make_context(services, request.source.request_id, request.principal, self._match)
        principal, scope = request.principal, request.scope or NOTHING
        return drive(operation.answer(call, inputs), lambda question: perform(services, question, principal, scope))


def _message(messages: Iterator[bytes], memory: MemoryAccount) -> bytes:
    """Read the message of a call. Reserves memory for the largest message until the size is known.

    Raises InvalidRequestError if the message is missing, ThrottledError.
    """
    memory.take(BODY_BYTES)
    body = next(messages, None)
    if body is None:
        raise InvalidRequestError("the call has no message", "body")
    memory.give_back(BODY_BYTES - len(body))
    return body


def _refuse(context: grpc.ServicerContext, error: JobmeterError) -> int:
    """Send the failure, with ``google.rpc.Status`` if it has details; returns its HTTP status."""
    http, code = find_kind(error)
    message, retry_ms = make_message(error), retry_ms_of(error)
    context.set_code(_CODES[code])
    context.set_details(message)
    if retry_ms is not None:
        context.set_trailing_metadata((("grpc-status-details-bin", encode_status(code, message, retry_ms)),))
    return http


def _call(context: grpc.ServicerContext, service: str) -> Call:
    """Convert the call to HTTP form, its body not read; its credential is in the metadata."""
    sent = [(name.lower(), value) for name, value in context.invocation_metadata() if isinstance(value, str)]
    # Parts of the envelope that are fixed here: the content type, and that the body is not compressed any more.
    headers = [pair for pair in sent if pair[0] not in {"content-type", "content-encoding"}]
    return Call(
        "POST", f"/{service}/{METHOD}", "", (*headers, ("content-type", PROTOBUF)), client=_client(context.peer())
    )


def _client(peer: str) -> str:
    """Extract the address from ``ipv4:127.0.0.1:50000`` or ``ipv6:[::1]:50000``, the latter percent-encoded."""
    kind, _, place = peer.partition(":")
    return unquote(place).rpartition(":")[0].strip("[]") if kind in {"ipv4", "ipv6"} else ""
