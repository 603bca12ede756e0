"""``/api/put``.

https://opentsdb.net/docs/build/html/api_http/put.html
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Steps, WriteSamples, ask, charge_nothing
from jobmeter.dialects.base.request import QUERY, Request
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.errors import JSON, PutError
from jobmeter.dialects.opentsdb.requests import PRESENT, Count, operation
from jobmeter.errors import ForbiddenError, InvalidRequestError
from jobmeter.ingest.join import select
from jobmeter.ingest.receipt import Receipt
from jobmeter.model.batch import SampleBatch
from jobmeter.model.grouping import group_pairs
from jobmeter.model.question import Question
from jobmeter.wire.opentsdb.point import PointRefusedError, Points
from jobmeter.wire.opentsdb.put import DataPoint, decode

_BODY_BYTES, _DECODED_BYTES = 64 * 2**20, 256 * 2**20
_DROPPED = {
    "future": "Timestamp is further ahead than the server's clock may be wrong",
    "expired": "Timestamp is older than the project's retention",
}

Refusals = dict[int, str]
"""Reasons for rejected data points, by their position in the request."""


@operation(
    "POST /api/put",
    "ingest:write",
    name="put",
    body_bytes=_BODY_BYTES,
    decoded_bytes=_DECODED_BYTES,
    read_bytes=charge_nothing,
)
class PutRequest(Request, frozen=True, kw_only=True):
    """Stores data points; 204 if all are stored, 400 if any was rejected (the others are stored).

    The tags `host` (or `node`, `fqdn`), `job`, `replica`, `attempt`, `device`, `cluster` and `project` name the source,
    other tags are labels. Values of catalogue metrics are checked; any other metric keeps its name.
    """

    summary: Annotated[bool, QUERY, "Present: the answer counts stored and refused data points.", PRESENT] = False
    details: Annotated[bool, QUERY, "Present: the answer also lists refused data points with the reasons.", PRESENT] = (
        False
    )
    sync: Annotated[
        bool,
        QUERY,
        "Accepted: the answer is always sent when the stored data points are durable.",
        PRESENT,
    ] = False
    sync_timeout: Annotated[int, QUERY, "Accepted, and not needed.", Meta(le=2**31), Count()] = 0
    body: Annotated[
        bytes,
        "A data point or an array of them: `{metric, timestamp (s or ms), value (number or text), "
        "tags}`. It may be compressed: `Content-Encoding: gzip`.",
    ]

    def _steps(self) -> Steps:
        sent = decode(self.call.body, self.context.limits.request_points, self.call.take)
        if not sent:
            raise InvalidRequestError("No datapoints found in content", "body")
        refused: Refusals = {}
        reasons: Counter[str] = Counter()
        batch, places = _gather(sent, self.context.project, refused, reasons)
        rejected = tuple(sorted(reasons.items()))
        for part, rows in _split_by_project(batch, places):
            yield from _write(part, rows, refused, rejected)
            rejected = ()
        if rejected:
            yield from ask(WriteSamples(batch=batch, rejected=rejected))
        return _answer(self.call, sent, refused)


def _gather(
    sent: Sequence[DataPoint], project: str | None, refused: Refusals, reasons: Counter[str]
) -> tuple[SampleBatch, list[int]]:
    """Return the valid data points, and the position in the request of each row."""
    points = Points(project)
    places: list[int] = []
    for at, one in enumerate(sent):
        try:
            points.add(one.metric or "", one.timestamp, one.value, one.format_tags())
        except PointRefusedError as error:
            refused[at] = error.message
            reasons[error.reason] += 1
        else:
            places.append(at)
    return points.take(), places


def _split_by_project(batch: SampleBatch, places: Sequence[int]) -> list[tuple[SampleBatch, list[int]]]:
    """Split the batch by project, so that the rows that a project's limits drop are known."""
    projects = group_pairs((series.project, at) for at, series in enumerate(batch.series))
    if len(projects) == 1:
        return [(batch, list(places))]
    rows = np.array(places, np.int64)
    return [
        (select(batch, positions), rows[np.isin(batch.index, positions)].tolist()) for positions in projects.values()
    ]


def _write(
    batch: SampleBatch, rows: Sequence[int], refused: Refusals, rejected: tuple[tuple[str, int], ...]
) -> Generator[Question[Any], Any, None]:
    try:
        receipt = yield from ask(WriteSamples(batch=batch, rejected=rejected))
    except (InvalidRequestError, ForbiddenError) as error:
        refused.update(dict.fromkeys(rows, error.message))
    else:
        refused.update(_find_dropped(batch, rows, receipt))


def _find_dropped(batch: SampleBatch, rows: Sequence[int], receipt: Receipt) -> Refusals:
    """Return the dropped rows: the newest or the oldest, by the limit that dropped them."""
    order = np.argsort(batch.time, kind="stable").tolist()
    ends = {"future": order[::-1], "expired": order}
    return {
        rows[at]: _DROPPED[reason]
        for reason, count in receipt.rejected.items()
        if reason in ends
        for at in ends[reason][:count]
    }


def _answer(call: Call, sent: Sequence[DataPoint], refused: Refusals) -> Answer:
    status = 400 if refused else 200
    body: Mapping[str, Any] = {"failed": len(refused), "success": len(sent) - len(refused)}
    if call.get_parameter("details") is not None:
        errors = [{"datapoint": sent[at].describe(), "error": refused[at]} for at in sorted(refused)]
        return answer({"errors": errors, **body}, status)
    if call.get_parameter("summary") is not None:
        return answer(body, status)
    if refused:
        raise PutError("One or more data points had errors", "body")
    return Answer(204, b"", (), JSON)
