"""``/v1/metrics``; the same over gRPC, see ``jobmeter.server.otlp_grpc``."""

from collections import Counter
from typing import Annotated

import numpy as np

from jobmeter.dialects.base import Answer, Steps, WriteSamples, ask
from jobmeter.dialects.otlp.forms import JSON, PROTOBUF, MessageRequest, choose_body_encoding, make_estimate, operation
from jobmeter.errors import LimitExceededError
from jobmeter.ingest.exporters.label_resolver import LabelResolver
from jobmeter.ingest.join import join
from jobmeter.ingest.receipt import Receipt
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.model.batch import Int64s, SampleBatch
from jobmeter.model.series import DEFAULT_PROJECT
from jobmeter.wire.otlp import json, protobuf
from jobmeter.wire.otlp.answers import encode_response
from jobmeter.wire.otlp.written import WrittenTelemetry

_DECODERS = {PROTOBUF: protobuf.decode, JSON: json.decode}
_HINTS = {"delta": "delta (only cumulative sums and histograms are kept)"}


@operation("POST /v1/metrics", "ingest:write", read_bytes=make_estimate(16))
class ExportMetrics(MessageRequest, frozen=True, kw_only=True):
    """Stores data points and answers 200 with an `ExportMetricsServiceResponse` in the same encoding.

    Its `partial_success` counts the rejected ones, with the reasons. Metrics of the semantic conventions become the
    catalogue's; any other metric is stored as `external.<name>`. The same over gRPC: `Export` of
    `opentelemetry.proto.collector.metrics.v1.MetricsService`, on the port of `--otlp-grpc-port`. The token is a bearer
    token, or the password of Basic.
    """

    body: Annotated[bytes, "An `ExportMetricsServiceRequest`."]

    def _steps(self) -> Steps:
        media = choose_body_encoding(self.call)
        senders = self.context.senders or SenderCache()
        written = _DECODERS[media](self.call.body, senders.otlp_shapes)
        most = self.context.limits.request_series
        if len(written.keys) > most:
            raise LimitExceededError(f"a request may have at most {most} samples, not {len(written.keys)}", "body")
        batch, heads, refused, parts = _resolve(written, self.context.project or DEFAULT_PROJECT, senders.otlp_labels)
        rejected = Counter({"stale": written.stale, "not-a-number": written.parts}) + refused + parts
        receipt = Receipt()
        if len(batch) or rejected:
            receipt = yield from ask(WriteSamples(batch=batch, rejected=tuple(sorted(rejected.items()))))
        refused.update(_count_dropped(receipt, batch.time, heads))
        return Answer(
            200, encode_response(refused.total(), _explanation(refused, parts), json=media == JSON), (), media
        )


def _resolve(
    written: WrittenTelemetry, project: str, labels: LabelResolver
) -> tuple[SampleBatch, int, Counter[str], Counter[str]]:
    """Return the valid samples, and how many leading samples are one data point each.

    Then, by reason, the numbers of rejected data points, and of rejected further samples of histograms and summaries.
    """
    names = project, "otlp"
    batch, refused, _ = labels.resolve_batch(names, written.keys, written.describe, written.heads)
    refused.update(written.refused)
    heads = len(batch)
    if not len(written.rest[0]):
        return batch, heads, refused, Counter()
    more, parts, _ = labels.resolve_batch(names, written.keys, written.describe, written.rest)
    return join([batch, more]), heads, refused, parts


def _count_dropped(receipt: Receipt, time: Int64s, heads: int) -> Counter[str]:
    """Count the data points among the samples that the server dropped: the newest or the oldest ones."""
    found: Counter[str] = Counter()
    future, expired = receipt.rejected.get("future", 0), receipt.rejected.get("expired", 0)
    if future:
        first = np.partition(time, len(time) - future)[len(time) - future]
        found["future"] = int(np.count_nonzero(time[:heads] >= first))
    if expired:
        last = np.partition(time, expired - 1)[expired - 1]
        found["expired"] = int(np.count_nonzero(time[:heads] <= last))
    return found


def _explanation(refused: Counter[str], parts: Counter[str]) -> str:
    """Return the message for the sender; empty if nothing was rejected."""
    reasons = ", ".join(f"{count} for {_HINTS.get(reason, reason)}" for reason, count in sorted(refused.items()))
    if reasons:
        return f"{refused.total()} data points were refused: {reasons}"
    lost = ", ".join(f"{count} for {reason}" for reason, count in sorted(parts.items()))
    return f"buckets, sums or quantiles were left out: {lost}" if lost else ""
