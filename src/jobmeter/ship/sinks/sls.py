"""Sink for Alibaba Cloud's Log Service (SLS), PutLogs.

The body is a LogGroup in protobuf, compressed with LZ4:
https://www.alibabacloud.com/help/en/sls/developer-reference/api-sls-2020-12-30-putlogs. For the signature see
https://www.alibabacloud.com/help/en/sls/developer-reference/request-signatures.
"""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from email.utils import formatdate

import msgspec
import pyarrow as pa

from jobmeter.model.time import SystemClock
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import HttpSink, SinkEndpoint, SinkReply, check_reply
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.protobuf import encode_bytes, encode_fixed32, encode_number, encode_text
from jobmeter.ship.sink import Origin, SinkError, SinkRefusedError, SinkSettings, get_access_key

_REFUSED = frozenset({"PostBodyInvalid", "PostBodyTooLarge", "InvalidLogSize"})
_SECOND_NS = 1_000_000_000


class SlsSink(HttpSink):
    """Sends to the shipper's project and logstore.

    ``url`` is the URL of the region: ``https://cn-shanghai.log.aliyuncs.com``. All lines of a shipper go to one shard,
    in order.
    """

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy, origin: Origin) -> None:
        """Raise ConfigurationError for an invalid URL or a missing access key."""
        self._key = get_access_key(settings)
        super().__init__(settings, guard)
        region = self._endpoint
        self._host = f"{origin.project}.{region.host_header}"
        # With a host name the project becomes its prefix; a server at an IP address reads the project from Host.
        if not _is_address(region.host):
            self._endpoint = SinkEndpoint(f"{region.parts.scheme}://{self._host}", guard)
        key = hashlib.md5(origin.shipper.encode(), usedforsecurity=False).hexdigest()
        self._resource = f"/logstores/{origin.logstore}/shards/route?key={key}"

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Put the lines. Returns the number of permanently refused lines."""
        group = b"".join(encode_bytes(1, _log(line)) for line in lines)
        group += encode_text(3, lines[0].resource_group) + encode_text(4, "jobmeter")
        body = pa.compress(group, codec="lz4_raw", asbytes=True)
        headers = {
            "Host": self._host,
            "x-log-apiversion": "0.6.0",
            "x-log-bodyrawsize": str(len(group)),
            "x-log-compresstype": "lz4",
            "Content-Type": "application/x-protobuf",
        }
        signed = sign_headers(self._resource, headers, body, self._key, SystemClock().now_ms())
        reply = self._endpoint.request("POST", self._resource, body, signed)
        try:
            check_reply(reply, self._endpoint.host)
        except SinkRefusedError as error:
            # Most answers with status 400 are about the request's time or key, not about the lines.
            if reply.status == 413 or _code(reply) in _REFUSED:
                raise
            raise SinkError(error.message) from error
        return 0


def sign_headers(
    resource: str, headers: Mapping[str, str], body: bytes, key: tuple[str, str], now_ms: int
) -> dict[str, str]:
    """Sign the headers of a POST."""
    signed = {
        **headers,
        "x-log-signaturemethod": "hmac-sha1",
        "Date": formatdate(now_ms / 1000, usegmt=True),
        "Content-MD5": hashlib.md5(body, usedforsecurity=False).hexdigest().upper(),
    }
    own = sorted((name, value) for name, value in signed.items() if name.startswith(("x-log-", "x-acs-")))
    lines = [
        "POST",
        signed["Content-MD5"],
        signed["Content-Type"],
        signed["Date"],
        *(f"{name}:{value}" for name, value in own),
        resource,
    ]
    digest = hmac.new(key[1].encode(), "\n".join(lines).encode(), "sha1").digest()
    return {**signed, "Authorization": f"LOG {key[0]}:{base64.b64encode(digest).decode()}"}


def _log(line: ShippedLine) -> bytes:
    seconds, rest = divmod(line.line.time_ns, _SECOND_NS)
    level = {"level": line.level} if line.level else {}
    contents = {"content": line.line.text, **line.attributes, **level, "number": str(line.number)}
    parts = [
        encode_number(1, seconds),
        *(encode_bytes(2, encode_text(1, name) + encode_text(2, value)) for name, value in contents.items()),
    ]
    return b"".join((*parts, encode_fixed32(4, rest)))


def _code(reply: SinkReply) -> str:
    try:
        return str(msgspec.json.decode(reply.body, type=dict[str, object]).get("errorCode", ""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
