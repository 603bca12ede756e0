"""``/api/v1/write``."""

from collections import Counter
from typing import Annotated

import numpy as np
from msgspec import field

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Steps, WriteSamples, ask, charge_nothing
from jobmeter.dialects.base.errors import Headers
from jobmeter.dialects.base.request import HEADER, Request
from jobmeter.dialects.prometheus.errors import ENCODING, TEXT, TYPE, make_text
from jobmeter.dialects.prometheus.requests import operation
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.ingest.exporters.label_resolver import ABSENT, ResolvedBatch
from jobmeter.ingest.join import join
from jobmeter.ingest.receipt import Receipt
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.model.series import DEFAULT_PROJECT
from jobmeter.model.special import encode_special
from jobmeter.wire.remote_write.decode import WrittenSeries, decode_1, decode_2
from jobmeter.wire.remote_write.snappy import unpack

_BODY_BYTES = 32 * 2**20
_UNPACKED_BYTES = 128 * 2**20
_COLUMNS = 4
"""Most copies of an unpacked message in memory, decoded data included."""
_MEDIA = "application/x-protobuf"
_ONE, _TWO = "prometheus.WriteRequest", "io.prometheus.write.v2.Request"


@operation(
    "POST /api/v1/write",
    "ingest:write",
    name="write",
    body_bytes=_BODY_BYTES,
    read_bytes=charge_nothing,
    encodings=frozenset({"snappy"}),
)
class RemoteWrite(Request, frozen=True, kw_only=True):
    """Stores samples; 204 if all are stored, 400 if any was rejected.

    The other samples are stored, and the text counts the rejected samples. The answer is sent when the accepted samples
    are durable. Metrics of well-known exporters become the catalogue's; any other metric is stored as `external.<name>`
    with its labels. NaN, infinities and stale markers are stored too; only PromQL and remote read return them. The
    token is the password of Basic, or a bearer token.
    """

    content_type: Annotated[
        str,
        HEADER,
        f"`{_MEDIA}` for 1.0, `{_MEDIA};proto={_TWO}` for 2.0. Anything else is 415.",
    ] = field(default="", name="Content-Type")
    content_encoding: Annotated[str, HEADER, "`snappy`, the block format. Anything else is 415."] = field(
        default="", name="Content-Encoding"
    )
    body: Annotated[bytes, "A message of that type, compressed."]

    def _steps(self) -> Steps:
        message = _message(self.call)
        senders = self.context.senders or SenderCache()
        data = unpack(self.call.body, _UNPACKED_BYTES, lambda size: self.call.take(_COLUMNS * size))
        written = decode_1(data) if message == _ONE else decode_2(data, senders.symbols)
        most = self.context.limits.request_series
        if len(written.keys) > most:
            raise LimitExceededError(f"a request may name at most {most} series, not {len(written.keys)}", "body")
        names = self.context.project or DEFAULT_PROJECT, message
        batch, refused, sent = _resolve(written, names, senders, self.context.now_ms)
        if written.histograms:
            refused["histogram"] = written.histograms
        receipt = Receipt()
        if len(batch) or refused:
            labels = None if sent is None else sent.batch
            receipt = yield from ask(WriteSamples(batch, tuple(sorted(refused.items())), labels))
            if sent is not None:
                sent.confirm()
        refused.update(receipt.rejected)
        del refused[ABSENT]
        headers = _counts(receipt) if message == _TWO else ()
        if refused:
            return make_text(400, _explanation(refused, receipt), headers)
        return Answer(204, b"", headers, TEXT)


def _message(call: Call) -> str:
    """Return the name of the message. Raises InvalidRequestError for another form."""
    encoding = call.get_header("content-encoding").strip().lower()
    if encoding not in {"", "snappy"}:
        raise InvalidRequestError(f"{ENCODING} {encoding[:40]!r} is not supported; snappy is", ENCODING)
    media, *parameters = (part.strip() for part in call.get_header("content-type").split(";"))
    if media.lower() not in {"", _MEDIA}:
        raise InvalidRequestError(f"{TYPE} {media[:80]!r} is not supported; {_MEDIA} is", TYPE)
    names = [value.strip('"') for name, _, value in (one.partition("=") for one in parameters) if name == "proto"]
    message = names[0] if names else _ONE
    if message not in {_ONE, _TWO}:
        raise InvalidRequestError(f"message {message[:80]!r} is not known; {_ONE} and {_TWO} are", TYPE)
    return message


def _resolve(written: WrittenSeries, names: tuple[str, str], senders: SenderCache, now_ms: int) -> ResolvedBatch:
    """Return the valid samples, special values among them in second series."""
    finite = np.isfinite(written.value)
    index, time, value = columns = written.index, written.time, written.value
    if finite.all():
        return senders.prometheus_labels.resolve_batch(names, written.keys, written.labels, columns, now_ms)
    plain = index[finite], time[finite], value[finite]
    batch, refused, sent = senders.prometheus_labels.resolve_batch(names, written.keys, written.labels, plain, now_ms)
    coded = index[~finite], time[~finite], encode_special(value[~finite])
    more, others, _ = senders.special_labels.resolve_batch(names, written.keys, written.labels, coded)
    return ResolvedBatch(join([batch, more]), refused + others, sent)


def _counts(receipt: Receipt) -> Headers:
    return (
        ("X-Prometheus-Remote-Write-Samples-Written", str(receipt.accepted)),
        ("X-Prometheus-Remote-Write-Histograms-Written", "0"),
        ("X-Prometheus-Remote-Write-Exemplars-Written", "0"),
    )


def _explanation(refused: Counter[str], receipt: Receipt) -> str:
    reasons = ", ".join(f"{count} for {reason}" for reason, count in sorted(refused.items()))
    return f"{receipt.accepted} samples were stored, {refused.total()} were refused: {reasons}"
