"""Tests of sinks with independent readers: published protobuf classes, vendors' own clients and servers."""

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import zlib
from pathlib import Path

import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from tests.support.fakes import NOW
from tests.support.receivers import receiving
from tests.support.waiting import wait_until

from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.protobuf import read
from jobmeter.ship.registry import KINDS, find_opener
from jobmeter.ship.settings import Sinks
from jobmeter.ship.sink import Origin, Sink, SinkError, SinkRefusedError, SinkSettings
from jobmeter.ship.sinks.sls import sign_headers

ROOT = Path(__file__).parents[4]
GUARD = DestinationPolicy.from_settings(["127.0.0.1"])
ORIGIN = Origin("00000000000000ab", "eas-sls", "access_log")
OPEN: list[Sink] = []
TEXTS = ["epoch 1", "", '\t "quoted" \\ é 🚀 \u2028 \x1b[31m', "x" * 65_000]
MOMENT = NOW * 1_000_000 + 123_456_789


def shipped(texts=TEXTS, **names):
    given = {"job": "j1", "replica": "worker-0", "node": "n1", "attempt": 2, "level": Level.WARNING, **names}
    return [
        ShippedLine(7 + at, NOW + 5, "rg", LogLine(time_ns=MOMENT + at, text=text, **given))
        for at, text in enumerate(texts)
    ]


def sink(kind, **settings):
    row = SinkSettings(project=ORIGIN.project, logstore=ORIGIN.logstore, kind=kind, **settings)
    made = find_opener(kind)(row, GUARD, ORIGIN)
    OPEN.append(made)
    return made


@pytest.fixture(autouse=True)
def _closed():
    yield
    while OPEN:
        OPEN.pop().close()


def _attributes(pairs):
    return {pair.key: pair.value.string_value for pair in pairs}


def test_otlp_is_read_by_the_published_classes():
    with receiving() as receiver:
        to = sink("otlp", url=receiver.url, token="secret", labels={"env": "test"})
        assert to.send([*shipped(), *shipped(["other"], job="j2", level=None)]) == 0
        assert to.send(shipped(["again"])) == 0
        to.close()
    first, second = receiver.requests
    assert (first.path, first.headers["content-type"]) == ("/v1/logs", "application/x-protobuf")
    assert first.headers["authorization"] == "Bearer secret"
    request = ExportLogsServiceRequest.FromString(first.body)
    assert [_attributes(one.resource.attributes) for one in request.resource_logs] == [
        {
            "service.name": job,
            "service.instance.id": "worker-0",
            "host.name": "n1",
            "jobmeter.project": "default",
            "jobmeter.attempt": "2",
            "jobmeter.resource_group": "rg",
            "env": "test",
        }
        for job in ("j1", "j2")
    ]
    records = request.resource_logs[0].scope_logs[0].log_records
    assert [record.body.string_value for record in records] == TEXTS
    assert [record.time_unix_nano for record in records] == [MOMENT + at for at in range(4)]
    assert records[0].observed_time_unix_nano == (NOW + 5) * 1_000_000
    assert (records[0].severity_number, records[0].severity_text) == (13, "WARN")
    assert _attributes(records[0].attributes) == {"log.iostream": "stdout", "log.record.uid": "7"}
    assert request.resource_logs[1].scope_logs[0].log_records[0].severity_number == 0
    again = ExportLogsServiceRequest.FromString(second.body)
    assert again.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "again"


def test_what_a_partial_success_rejects_is_counted():
    answer = ExportLogsServiceResponse(partial_success=ExportLogsPartialSuccess(rejected_log_records=3))
    with receiving(lambda taken: (200, {}, answer.SerializeToString())) as receiver:
        assert sink("otlp", url=receiver.url).send(shipped()) == 3
    with receiving(lambda taken: (200, {}, b"\xff\xff")) as receiver:
        assert sink("otlp", url=receiver.url).send(shipped()) == 0


def test_loki_is_sent_streams_with_few_labels():
    with receiving() as receiver:
        sink("loki", url=receiver.url, tenant="t1").send([*shipped(), *shipped(["x"], stream="stderr")])
    (taken,) = receiver.requests
    assert (taken.path, taken.headers["x-scope-orgid"]) == ("/loki/api/v1/push", "t1")
    body = json.loads(taken.body)
    assert [stream["stream"]["stream"] for stream in body["streams"]] == ["stdout", "stderr"]
    assert body["streams"][0]["stream"] == {
        "service_name": "jobmeter",
        "resource_group": "rg",
        "project": "default",
        "job": "j1",
        "replica": "worker-0",
        "node": "n1",
        "stream": "stdout",
    }
    assert body["streams"][0]["values"] == [
        [str(MOMENT + at), text, {"attempt": "2", "level": "warn"}] for at, text in enumerate(TEXTS)
    ]


@pytest.fixture(scope="module")
def sls_reader():
    python = ROOT / ".venvs" / "aliyun-log" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs the environment .venvs/aliyun-log: make sdk")

    def ask(given):
        ran = subprocess.run(
            [python, Path(__file__).parent / "sls_reader.py"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return ask


def test_sls_is_read_and_its_signature_made_again_by_the_vendors_own_client(sls_reader):
    with receiving(lambda taken: (200, {}, b"")) as receiver:
        sink("sls", url=receiver.url, access_key_id="id", access_key_secret="secret").send(shipped())
    (taken,) = receiver.requests
    assert taken.headers["host"] == f"eas-sls.127.0.0.1:{receiver.port}"
    assert taken.path.startswith("/logstores/access_log/shards/route?key=")
    found = sls_reader(
        {
            "body": base64.b64encode(taken.body).decode(),
            "headers": dict(taken.headers),
            "path": taken.path,
            "id": "id",
            "secret": "secret",
        }
    )
    assert taken.headers["authorization"] == found["authorization"]
    assert taken.headers["content-md5"] == found["md5"]
    assert (found["topic"], found["source"]) == ("rg", "jobmeter")
    assert [log["contents"]["content"] for log in found["logs"]] == TEXTS
    assert [log["time"] * 1_000_000_000 + log["nanoseconds"] for log in found["logs"]] == [
        MOMENT + at for at in range(4)
    ]
    assert found["logs"][0]["contents"] == {
        "content": "epoch 1",
        "resource_group": "rg",
        "project": "default",
        "job": "j1",
        "replica": "worker-0",
        "node": "n1",
        "attempt": "2",
        "stream": "stdout",
        "level": "warn",
        "number": "7",
    }


def test_the_signature_of_the_vendors_document():
    headers = {"Content-Type": "application/x-protobuf", "x-log-apiversion": "0.6.0", "Host": "h"}
    signed = sign_headers("/logstores/l", headers, b"body", ("id", "secret"), NOW)
    text = "\n".join(
        [
            "POST",
            hashlib.md5(b"body").hexdigest().upper(),
            "application/x-protobuf",
            "Thu, 01 Jan 2026 00:00:00 GMT",
            "x-log-apiversion:0.6.0",
            "x-log-signaturemethod:hmac-sha1",
            "/logstores/l",
        ]
    )
    digest = base64.b64encode(hmac.new(b"secret", text.encode(), "sha1").digest()).decode()
    assert signed["Authorization"] == f"LOG id:{digest}"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "PostBodyInvalid", SinkRefusedError),
        (413, "", SinkRefusedError),
        (400, "RequestTimeExpired", SinkError),
        (401, "SignatureNotMatch", SinkError),
        (500, "InternalServerError", SinkError),
    ],
)
def test_sls_refuses_for_good_only_what_is_about_the_lines(status, code, kind):
    answer = json.dumps({"errorCode": code, "errorMessage": "no"}).encode()
    with receiving(lambda taken: (status, {}, answer)) as receiver, pytest.raises(SinkError) as caught:
        sink("sls", url=receiver.url, access_key_id="id", access_key_secret="secret").send(shipped())
    assert caught.type is kind
    assert "secret" not in caught.value.message


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """Run moto's server with a bucket, in its own environment."""
    python = ROOT / ".venvs" / "s3" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs the environment .venvs/s3: make sdk")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("s3")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "4"},
        )
    try:
        wait_until(lambda: _listens(port) or process.poll() is not None, "moto's server")
        assert process.poll() is None, (folder / "log").read_text()

        def ask(**given):
            ran = subprocess.run(
                [python, Path(__file__).parent / "s3_reader.py"],
                input=json.dumps({"url": f"http://127.0.0.1:{port}", **given}),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
            return json.loads(ran.stdout)

        yield ask, f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_an_object_store_checks_the_signature_and_has_the_lines(s3):
    ask, url = s3
    key = ask(make="logs")  # moto checks every signature from here on
    given = {"url": url, "bucket": "logs", "prefix": "a b/ü"}
    to = sink("s3", access_key_id=key["id"], access_key_secret=key["secret"], **given)
    to.send(shipped(["lost its answer"]))
    to.send(shipped())
    objects = ask(read="logs", id=key["id"], secret=key["secret"])
    assert list(objects) == ["a b/ü/2026/01/01/00000000000000ab-00000000000000000007.jsonl.zst"]
    content = zstandard.ZstdDecompressor().decompress(base64.b64decode(next(iter(objects.values()))))
    lines = [json.loads(line) for line in content.splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    assert lines[0] == {
        "time_ns": MOMENT,
        "number": 7,
        "resource_group": "rg",
        "job": "j1",
        "project": "default",
        "replica": "worker-0",
        "attempt": 2,
        "node": "n1",
        "stream": "stdout",
        "level": "warn",
        "text": "epoch 1",
    }
    wrong = sink("s3", access_key_id=key["id"], access_key_secret="wrong", **given)
    with pytest.raises(SinkError, match="403"):
        wrong.send(shipped())


def test_an_object_store_refuses_nothing_for_good():
    with receiving(lambda taken: (400, {}, b"ExpiredToken")) as receiver, pytest.raises(SinkError) as caught:
        sink("s3", url=receiver.url, bucket="b", access_key_id="i", access_key_secret="s").send(shipped())
    assert caught.type is SinkError


@pytest.mark.parametrize("kind", ["otlp", "loki"])
@pytest.mark.parametrize(
    ("status", "expected"), [(400, SinkRefusedError), (413, SinkRefusedError), (429, SinkError), (503, SinkError)]
)
def test_a_batch_that_is_refused_is_distinguished_from_one_that_is_to_come_again(kind, status, expected):
    with receiving(lambda taken: (status, {}, b"why\nnot\x1b")) as receiver, pytest.raises(SinkError) as caught:
        sink(kind, url=receiver.url).send(shipped())
    assert caught.type is expected
    assert caught.value.message == f"127.0.0.1 answered {status} why not"


@pytest.mark.parametrize("kind", ["otlp", "loki", "sls", "s3"])
def test_redirects_are_not_followed(kind):
    with (
        receiving() as elsewhere,
        receiving(lambda taken: (307, {"Location": elsewhere.url}, b"")) as receiver,
        pytest.raises(SinkError, match="redirects are not followed"),
    ):
        sink(kind, url=receiver.url, access_key_id="i", access_key_secret="s").send(shipped())
    assert elsewhere.requests == []


def test_a_sink_that_is_not_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SinkError, match="refused"):
        sink("loki", url=url).send(shipped())


def test_a_connection_that_was_closed_meanwhile_is_made_again():
    with receiving() as receiver:
        to = sink("loki", url=receiver.url)
        to.send(shipped(["a"]))
        receiver.drop()
        to.send(shipped(["b"]))
    assert len(receiver.requests) == 2


def test_an_answer_of_any_size_is_not_read_to_its_end():
    with receiving(lambda taken: (500, {}, b"x" * 10_000_000)) as receiver, pytest.raises(SinkError) as caught:
        sink("loki", url=receiver.url).send(shipped())
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"kind": "smoke"}, "smoke"),
        ({"kind": "file", "directory": "relative"}, "absolute"),
        ({"kind": "file", "directory": ""}, "directory"),
        ({"kind": "loki", "url": "ftp://host"}, "http"),
        ({"kind": "loki", "url": "http://name:word@host"}, "http"),
        ({"kind": "loki", "url": "http://host?x=1"}, "http"),
        ({"kind": "otlp", "url": ""}, "http"),
        ({"kind": "otlp", "url": "http://host:99999"}, "http"),
        ({"kind": "sls", "url": "http://host"}, "access_key"),
        ({"kind": "s3", "url": "http://host"}, "access_key"),
    ],
)
def test_settings_that_cannot_be(settings, part):
    with pytest.raises(ConfigurationError, match=part) as caught:
        Sinks([SinkSettings(project="p", logstore="l", **settings)], GUARD)
    assert "word" not in caught.value.message


def test_every_kind_has_its_opener():
    assert all(find_opener(kind) for kind in KINDS)


def test_messages_that_are_none_are_refused():
    for message in (b"\xff", b"\x0a\x05ab", b"\x0b", zlib.compress(b"x")):
        with pytest.raises(InvalidRequestError, match="not the message"):
            read(message)
    assert read(b"\x08\x96\x01\x12\x02ab\x1d\0\0\0\0") == {1: 150, 2: b"ab", 3: b"\0\0\0\0"}
