"""``/api/v1/read``: https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/."""

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, Operation, Parameter, Steps, accounted_for
from jobmeter.dialects.prometheus.select import find, read_samples
from jobmeter.promql.nodes import Match, Matcher
from jobmeter.wire.remote_read import decode, encode, encode_series
from jobmeter.wire.remote_write.snappy import unpack

_UNPACKED_BYTES = 1 << 20


def read(call: Call, context: Context) -> Steps:
    """Answer the samples of each query."""
    results = []
    for query in decode(unpack(call.body, _UNPACKED_BYTES, call.take)):
        matchers = tuple(Matcher(label, Match(kind), value) for label, kind, value in query.matchers)
        rows = yield from find((matchers,), max(query.start_ms, 0), context.project)
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


OPERATIONS = (
    Operation(
        name="read",
        action="metrics:read",
        method="POST",
        path="/prometheus/api/v1/read",
        answer=read,
        parameters=(Parameter("body", "body", "A `prometheus.ReadRequest`, compressed by Snappy.", required=True),),
        text="Gives the samples of selectors, as `remote_read` of Prometheus asks for them. Answers are samples, not "
        "chunks in streams.",
        read_bytes=accounted_for,
        encodings=frozenset({"snappy"}),
    ),
)
