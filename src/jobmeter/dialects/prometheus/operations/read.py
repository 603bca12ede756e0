"""``/api/v1/read``: https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/."""

from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.base import Answer, Steps, accounted_for
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.prometheus.requests import API, operation
from jobmeter.dialects.prometheus.select import find, read_samples
from jobmeter.promql.nodes import Matcher, VectorMatch
from jobmeter.wire.remote_read import decode, encode, encode_series
from jobmeter.wire.remote_write.snappy import unpack

_UNPACKED_BYTES = 1 << 20


@operation(f"POST {API}/read", "metrics:read", name="read", read_bytes=accounted_for, encodings=frozenset({"snappy"}))
class RemoteRead(Request, frozen=True):
    """Gives the samples of selectors, for `remote_read` of Prometheus. Answers are samples, not chunks in streams."""

    body: Annotated[bytes, Meta(description="A `prometheus.ReadRequest`, compressed by Snappy.")]

    def _steps(self) -> Steps:
        results = []
        for query in decode(unpack(self.call.body, _UNPACKED_BYTES, self.call.take)):
            matchers = tuple(Matcher(label, VectorMatch(kind), value) for label, kind, value in query.matchers)
            rows = yield from find((matchers,), max(query.start_ms, 0), self.context.project)
            found = yield from read_samples(rows, query.start_ms - 1, query.end_ms)
            bounds = found.starts.tolist()
            results.append(
                [
                    encode_series(labels, found.times[start:end], found.values[start:end])
                    for labels, start, end in zip(found.labels, bounds, bounds[1:], strict=False)
                ]
            )
        headers = (("Content-Encoding", "snappy"), ("X-Prometheus-Remote-Read-Version", "0.1.0"))
        return Answer(200, encode(results), headers, "application/x-protobuf")
