"""``/api/v1/read``: https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/."""

from collections.abc import Iterator
from typing import Annotated

from jobmeter.dialects.base import Answer, Steps, charge_nothing
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.prometheus.requests import API, operation
from jobmeter.dialects.prometheus.select import SelectedRows, find, read_samples
from jobmeter.errors import LimitExceededError
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.promql.labels import Labels
from jobmeter.promql.nodes import Matcher, VectorMatch
from jobmeter.promql.windows import WindowSamples
from jobmeter.wire.remote_read import decode, encode, encode_frames, encode_series
from jobmeter.wire.remote_write.snappy import unpack

_UNPACKED_BYTES = 1 << 20
_STREAMED = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
_STREAMED_SERIES = 64
"""Number of series whose samples are in memory at a time while frames are written."""
_MOST_BYTES = 128 << 20
"""Most bytes of an answer before compression."""


@operation(f"POST {API}/read", "metrics:read", name="read", read_bytes=charge_nothing, encodings=frozenset({"snappy"}))
class RemoteRead(Request, frozen=True):
    """Returns the samples of selectors, for `remote_read` of Prometheus.

    A client that prefers streamed chunks gets frames with XOR chunks, any other client one message with samples.
    """

    body: Annotated[bytes, "A `prometheus.ReadRequest`, compressed by Snappy."]

    def _steps(self) -> Steps:
        request = decode(unpack(self.call.body, _UNPACKED_BYTES, self.call.take))
        results: list[list[bytes]] = []
        size = 0
        for place, query in enumerate(request.queries):
            matchers = tuple(Matcher(label, VectorMatch(kind), value) for label, kind, value in query.matchers)
            rows = yield from find((matchers,), max(query.start_ms, 0), self.context.project)
            results.append([])
            # A stream is written part by part, so that its samples are never all in memory.
            count = _STREAMED_SERIES if request.streamed else max(len(rows), 1)
            for at in range(0, len(rows), count):
                found = yield from read_samples(SelectedRows(rows[at : at + count]), query.start_ms - 1, query.end_ms)
                series = list(_series(found))
                made = [encode_frames(place, series)] if request.streamed else [encode_series(*one) for one in series]
                size += sum(map(len, made))
                if size > _MOST_BYTES:
                    raise LimitExceededError(
                        f"an answer has at most {_MOST_BYTES} bytes: narrow the range, or select fewer series", "range"
                    )
                results[-1] += made
        if request.streamed:
            return Answer(200, b"".join(part for parts in results for part in parts), content_type=_STREAMED)
        headers = (("Content-Encoding", "snappy"), ("X-Prometheus-Remote-Read-Version", "0.1.0"))
        return Answer(200, encode(results), headers, "application/x-protobuf")


def _series(found: WindowSamples) -> Iterator[tuple[Labels, Int64s, Float64s]]:
    bounds = found.starts.tolist()
    for labels, start, end in zip(found.labels, bounds, bounds[1:], strict=False):
        yield labels, found.times[start:end], found.values[start:end]
