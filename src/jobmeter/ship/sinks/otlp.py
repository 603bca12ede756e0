"""Sink for OTLP/HTTP logs in protobuf: https://opentelemetry.io/docs/specs/otlp/#otlphttp."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import NS_PER_MS
from jobmeter.ship.http import PostSink
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.protobuf import encode_bytes, encode_fixed64, encode_number, encode_text, read

_NUMBERS = {"debug": 5, "info": 9, "warn": 13, "error": 17}
"""Severity numbers: https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber."""
_RESOURCE = {
    "job": "service.name",
    "replica": "service.instance.id",
    "node": "host.name",
    "project": "jobmeter.project",
    "attempt": "jobmeter.attempt",
    "resource_group": "jobmeter.resource_group",
}
_RECORD = {"stream": "log.iostream"}


class OtlpSink(PostSink):
    """Posts to ``url``, by default with the path ``/v1/logs``. A resource is a replica of a job, or a node."""

    path = "/v1/logs"
    content_type = "application/x-protobuf"

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Post the lines. Returns the number of records that a partial success rejects."""
        return min(len(lines), _count_rejected(self.post(b"".join(self._encode_resources(lines))).body))

    def _encode_resources(self, lines: Sequence[ShippedLine]) -> Iterator[bytes]:
        for resource, own in groupby(lines, self._describe_resource):
            records = b"".join(encode_bytes(2, _record(line)) for line in own)
            scope = encode_bytes(2, encode_bytes(1, encode_text(1, "jobmeter")) + records)
            yield encode_bytes(1, encode_bytes(1, resource) + scope)

    def _describe_resource(self, line: ShippedLine) -> bytes:
        own = {name: line.attributes[key] for key, name in _RESOURCE.items() if key in line.attributes}
        return b"".join(encode_bytes(1, _pair(name, value)) for name, value in {**own, **self._labels}.items())


def _record(line: ShippedLine) -> bytes:
    parts = [encode_fixed64(1, line.line.time_ns)]
    if line.level:
        parts += [encode_number(2, _NUMBERS[line.level]), encode_text(3, line.level.upper())]
    parts.append(encode_bytes(5, encode_text(1, line.line.text)))
    for key, value in line.attributes.items():
        if key not in _RESOURCE:
            parts.append(encode_bytes(6, _pair(_RECORD.get(key, f"jobmeter.{key}"), value)))
    parts.append(encode_bytes(6, _pair("log.record.uid", str(line.number))))
    parts.append(encode_fixed64(11, line.arrived * NS_PER_MS))
    return b"".join(parts)


def _pair(name: str, value: str) -> bytes:
    return encode_text(1, name) + encode_bytes(2, encode_text(1, value))


def _count_rejected(body: bytes) -> int:
    """Number of rejected records in an ExportLogsServiceResponse; 0 for an unreadable one."""
    try:
        partial = read(body).get(1, b"")
        rejected = read(partial).get(1, 0) if isinstance(partial, bytes) else 0
    except InvalidRequestError:
        return 0
    return rejected if isinstance(rejected, int) and rejected < 1 << 63 else 0
