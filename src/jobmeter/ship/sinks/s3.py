"""Sink for S3 and compatible object stores: an object of JSON lines, compressed with zstd, per batch."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import zstandard

from jobmeter.model.time import SystemClock, format_iso
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import HttpSink, check_reply
from jobmeter.ship.line import ShippedLine
from jobmeter.ship.sink import Origin, SinkError, SinkRefusedError, SinkSettings, get_access_key


class S3Sink(HttpSink):
    """Writes ``PREFIX/YYYY/MM/DD/SHIPPER-NUMBER.jsonl.zst``, by the arrival day and number of its first line.

    A repeated batch replaces its object: it begins with the same line and contains all its lines. ``url`` is the
    store's; leave ``bucket`` empty if the host name contains the bucket.
    """

    most_lines = 50_000
    most_bytes = 8 * 2**20
    linger_seconds = 60.0

    def __init__(self, settings: SinkSettings, guard: DestinationPolicy, origin: Origin) -> None:
        """Raise ConfigurationError for an invalid URL or a missing access key."""
        self._key = get_access_key(settings)
        super().__init__(settings, guard)
        self._region = settings.region
        bucket = f"/{settings.bucket}" if settings.bucket else ""
        prefix = settings.prefix.strip("/")
        self._base = f"{self._endpoint.path.rstrip('/')}{bucket}/{prefix}{'/' if prefix else ''}"
        self._shipper = origin.shipper

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Put the lines as an object. Returns 0: no line is refused."""
        body = zstandard.ZstdCompressor(level=3).compress(b"".join(line.encode() + b"\n" for line in lines))
        first = lines[0]
        day = format_iso(first.arrived)[:10].replace("-", "/")
        path = quote(f"{self._base}{day}/{self._shipper}-{first.number:020}.jsonl.zst", safe="/-_.~")
        headers = {"Host": self._endpoint.host_header, "Content-Type": "application/zstd"}
        signed = sign_headers(path, headers, body, self._key, self._region, SystemClock().now_ms())
        try:
            check_reply(self._endpoint.request("PUT", path, body, signed), self._endpoint.host)
        except SinkRefusedError as error:
            raise SinkError(error.message) from error
        return 0


def sign_headers(
    path: str, headers: Mapping[str, str], body: bytes, key: tuple[str, str], region: str, now_ms: int
) -> dict[str, str]:
    """Sign the headers of a PUT (AWS4-HMAC-SHA256); ``path`` is as sent.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
    """
    moment = format_iso(now_ms)[:19].replace("-", "").replace(":", "") + "Z"
    digest = hashlib.sha256(body).hexdigest()
    signed = {**headers, "x-amz-content-sha256": digest, "x-amz-date": moment}
    lowered = sorted((name.lower(), value.strip()) for name, value in signed.items())
    names = ";".join(name for name, _ in lowered)
    request = "\n".join(["PUT", path, "", *(f"{name}:{value}" for name, value in lowered), "", names, digest])
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    secret = f"AWS4{key[1]}".encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), "sha256").digest()
    wanted = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(secret, wanted.encode(), "sha256").hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**signed, "Authorization": credential}
