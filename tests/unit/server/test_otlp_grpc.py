"""Tests of OTLP over gRPC with gRPC's own client, on a server without HTTP."""

import socket
import threading
from contextlib import closing

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from tests.store_contract.samples import FOREVER
from tests.support import certificates
from tests.support.fakes import NOW
from tests.support.memory_store import MemoryStore
from tests.support.otlp import Request, add, metric, request
from tests.support.serving import serving
from tests.support.waiting import wait_until

from jobmeter.dialects.otlp import OTLP
from jobmeter.dialects.otlp.forms import BODY_BYTES
from jobmeter.errors import ConfigurationError, ThrottledError, UnavailableError
from jobmeter.model.series import Series
from jobmeter.server.otlp_grpc import GrpcServer, _Exports
from jobmeter.store.base import SeriesSelector

LOCAL = "127.0.0.1"
NS = NOW * 1_000_000
JOB = {"jobmeter.job.id": "j", "jobmeter.replica": "worker-0"}
RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
LOSS = Series("app.loss", "lab", job="j", replica="worker-0")


class Grpc:
    """Server with its port."""

    def __init__(self, folder, store=None, tls=(None, None), **options):
        self.store = store or MemoryStore()
        self.application = serving(folder, self.store, **options)
        self.server = GrpcServer(LOCAL, 0, *tls)
        self.server.start(self.application.application.services)
        self.channels: list[grpc.Channel] = []

    def connect(self, credentials=None):
        target = f"{LOCAL}:{self.server.port}"
        channel = grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
        self.channels.append(channel)
        return channel

    def export(self, message, key=None, channel=None, **more):
        metadata = (("authorization", f"Bearer {key.token}"),) if key else ()
        stub = MetricsServiceStub(channel or self.connect())
        return stub.Export(message, metadata=metadata, timeout=60, **more)

    def refusal(self, *arguments, **more):
        with pytest.raises(grpc.RpcError) as error:
            self.export(*arguments, **more)
        return error.value

    def metrics(self):
        return self.application.raw("GET", "/metrics").body.decode()

    def series(self):
        return self.store.find(SeriesSelector(metrics=frozenset({"app.loss"})))

    def close(self):
        for channel in self.channels:
            channel.close()
        self.server.stop()
        self.application.application.close()


@pytest.fixture
def server(tmp_path):
    with closing(Grpc(tmp_path / "data")) as made:
        yield made


def loss(value=0.25, at=NS):
    return request(JOB, add(metric("app.loss"), at, value))


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_what_is_exported_is_there_when_the_answer_comes(server, compression):
    key = server.application.key("writer", "lab")
    answer = server.export(loss(), key, compression=compression)
    assert not answer.HasField("partial_success")
    assert server.series() == [LOSS]
    assert "jobmeter_ingest_samples_accepted_total 1.0" in server.metrics()
    assert 'jobmeter_requests_total{api="otlp-grpc",status="200"} 1.0' in server.metrics()


def test_what_is_refused_is_counted_and_reported(server):
    key = server.application.key("writer", "lab")
    reply = server.export(request(JOB, add(metric("d", "sum", temporality=1), NS, 1)), key).partial_success
    assert (reply.rejected_data_points, "delta" in reply.error_message) == (1, True)
    assert 'rejected_total{reason="delta"} 1.0' in server.metrics()


def test_without_a_key_or_with_a_wrong_one_nothing_is_stored(server):
    class Wrong:
        token = "jm_wrong"

    assert server.refusal(loss()).code() is grpc.StatusCode.UNAUTHENTICATED
    assert server.refusal(loss(), Wrong()).code() is grpc.StatusCode.UNAUTHENTICATED
    assert server.series() == []
    assert 'jobmeter_requests_total{api="otlp-grpc",status="401"} 2.0' in server.metrics()
    refused = server.application.application.services.settings.data / "audit.log"
    assert refused.read_text().count(LOCAL) == 2


def test_a_reader_may_not_write(server):
    error = server.refusal(loss(), server.application.key("reader", "lab"))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.series() == []


def test_what_is_no_message_is_refused(server):
    export = server.connect().unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
    with pytest.raises(grpc.RpcError) as error:
        export(b"\x0a\xff", metadata=(("authorization", f"Bearer {server.application.admin.token}"),), timeout=60)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_other_services_are_not_there(server):
    export = server.connect().unary_unary(
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
    )
    with pytest.raises(grpc.RpcError) as error:
        export(b"", timeout=60)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_that_is_too_large_is_refused(server, compression, caplog):
    """The limit also holds for a message that is small when compressed and large when decompressed."""
    message = Request()
    message.resource_metrics.add(schema_url="x" * (BODY_BYTES + 1))
    error = server.refusal(message, server.application.admin, compression=compression)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "grpc-status-details-bin" not in dict(error.trailing_metadata() or ())
    # The refusal is not logged as a bug, and the next call is answered.
    server.export(loss(), server.application.key("writer", "lab"))
    assert "Traceback" not in caplog.text
    assert 'status="500"' not in server.metrics()


class Refusing(MemoryStore):
    """Store that refuses every append while ``error`` is set."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def append_all(self, batches, retention=FOREVER):
        if self.error is not None:
            raise self.error
        super().append_all(batches, retention)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ThrottledError("too much at once", 1500), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (UnavailableError("the disk is full"), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_back_pressure_says_when_to_try_again(tmp_path, failure, code):
    store = Refusing(failure)
    with closing(Grpc(tmp_path / "data", store)) as server:
        error = server.refusal(loss(), server.application.admin)
        assert (error.code(), error.details()) == (code, failure.message)
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        assert RETRY_INFO in details
        assert details.startswith(bytes((8, code.value[0])))
        store.error = None
        server.export(loss(), server.application.admin)
        assert len(server.series()) == 1


def test_a_bug_says_nothing_of_itself(tmp_path):
    with closing(Grpc(tmp_path / "data", Refusing(RuntimeError("secret")))) as server:
        error = server.refusal(loss(), server.application.admin)
        assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
        assert 'jobmeter_requests_total{api="otlp-grpc",status="500"} 1.0' in server.metrics()


def test_a_key_that_sends_too_often_learns_when_to_come_again(tmp_path):
    with closing(Grpc(tmp_path / "data", rate_limits="ExportMetrics=1:1")) as server:
        server.export(loss(), server.application.admin)
        error = server.refusal(loss(), server.application.admin)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert RETRY_INFO in dict(error.trailing_metadata())["grpc-status-details-bin"]


def test_with_tls(tmp_path):
    made = certificates.make(tmp_path)
    with closing(Grpc(tmp_path / "data", tls=(made.certificate, made.key))) as server:
        channel = server.connect(grpc.ssl_channel_credentials(made.ca.read_bytes()))
        server.export(loss(), server.application.key("writer", "lab"), channel)
        assert server.series() == [LOSS]


def test_a_port_is_not_shared():
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match=r"cannot listen on 127\.0\.0\.1"):
            GrpcServer(LOCAL, taken.getsockname()[1])


def test_a_server_that_never_started_stops():
    GrpcServer(LOCAL, 0).stop()


class Slow(MemoryStore):
    """Store that holds appends until a test releases them."""

    def __init__(self):
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def append_all(self, batches, retention=FOREVER):
        self.reached.set()
        self.go_on.wait(60)
        super().append_all(batches, retention)


def test_a_server_that_stops_answers_what_is_under_way(tmp_path):
    store = Slow()
    with closing(Grpc(tmp_path / "data", store)) as server:
        stub = MetricsServiceStub(server.connect())
        metadata = (("authorization", f"Bearer {server.application.admin.token}"),)
        call = stub.Export.future(loss(), metadata=metadata, timeout=60)
        assert store.reached.wait(60)
        stopping = threading.Thread(target=server.server.stop)
        stopping.start()
        wait_until(lambda: server.refusal(loss()).code() is grpc.StatusCode.UNAVAILABLE, "no new calls")
        store.go_on.set()
        assert call.result(60) is not None
        stopping.join(60)
        assert len(server.series()) == 1
        assert server.refusal(loss(), server.application.admin).code() is grpc.StatusCode.UNAVAILABLE


class Unread:
    """Messages that must not be read."""

    def __iter__(self):
        return self

    def __next__(self):
        raise AssertionError("the message was read")


class Context:
    """Call context as gRPC passes it to its handler."""

    def __init__(self, token=""):
        self.code = None
        self._token = token

    def is_active(self):
        return True

    def peer(self):
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self):
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    def set_code(self, code):
        self.code = code

    def set_details(self, details):
        pass

    def set_trailing_metadata(self, metadata):
        pass


def test_a_message_is_not_read_before_its_credential_holds_and_its_memory_is_left(server):
    services = server.application.application.services
    exports = _Exports(services, "service", OTLP.operations[0])
    stranger, reader = Context(), Context(server.application.key("reader").token)
    writer = Context(server.application.key("writer", "lab").token)
    services.memory.take(services.memory.size)
    for context in (stranger, reader, writer):
        assert exports.export(Unread(), context) == b""
    services.memory.give_back(services.memory.size)
    assert stranger.code is grpc.StatusCode.UNAUTHENTICATED
    assert reader.code is grpc.StatusCode.PERMISSION_DENIED
    assert writer.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_a_message_took_is_given_back(server):
    key = server.application.key("writer", "lab")
    server.export(loss(), key)
    assert server.refusal(loss(), server.application.key("reader")).code() is grpc.StatusCode.PERMISSION_DENIED
    server.server.stop()
    assert server.application.application.services.memory.in_use == 0
