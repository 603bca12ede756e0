"""``/jobs/{job}/samples``: every stored reading of a job, streamed."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from jobmeter.query.defaults import default_range
from jobmeter.query.readings import Readings, ReadingsQuestion
from jobmeter.query.request import JobRef
from jobmeter.server.native import raw
from jobmeter.server.native.arguments import DEVICE, REPLICA, Query
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream, job_ref, tagged
from jobmeter.server.native.metrics import METRIC, TIMES, requested_metrics
from jobmeter.server.pipeline import export_slot

PATIENCE_SECONDS = 60.0
"""How long a client may take nothing: meanwhile it holds a connection to the engine."""


class SampleBody(msgspec.Struct, frozen=True):
    """One line of the answer: a stored reading, in the unit of its metric. ``time`` is in epoch milliseconds."""

    time: int
    metric: str
    replica: str
    node: str
    device: str
    attempt: int
    labels: dict[str, str]
    value: float


_FORMATS: Mapping[str, Callable[[Readings, str], Stream]] = {"json": raw.json, "csv": raw.csv, "parquet": raw.parquet}


def _samples(context: CallContext) -> Stream:
    """Every stored reading of a job, as a stream.

    Nothing is bucketed, joined or converted: a counter is what was read, in the unit of its metric. A metric that is
    worked out from others comes with the readings of those, under their own names (`cpu.usage` with `cpu.time`). Of a
    device that was measured for nobody the job has what was measured while it had the device. The samples of a series
    follow one another in order of time. `csv` has the columns `time`, `replica`, `device`, `value`; first `metric`
    where more than one name may occur; last `node`, `attempt`, `labels` where a series has no replica, is of a later
    attempt, or has labels. `json` has an object a line, `parquet` every column, labels as the text of a JSON object. An
    answer that cannot be completed is cut off, so that no client takes a part for the whole. Default range: the whole
    life of a finished job, the last hour of a running one.
    """
    given = context.arguments
    metrics = requested_metrics(given.texts("metric"))
    answer = given.choice("format", _FORMATS, "json")
    job = context.services.executor.head(job_ref(context), context.scope)
    start, end, since = given.times()
    span = default_range(job, context.services.clock.now_ms(), start=start, end=end, since=since)
    question = ReadingsQuestion(
        ref=JobRef(job.id, job.project),
        metrics=metrics,
        range=span,
        replicas=frozenset(given.texts("replica")),
        devices=frozenset(given.texts("device")),
    )
    give_back = export_slot(context.services, context.request)
    try:
        found = context.services.executor.run(question, context.scope)
    except BaseException:
        give_back()
        raise

    def over() -> None:
        try:
            found.blocks.close()
        finally:
            give_back()

    return replace(answer(found, job.id), over=over, patience=PATIENCE_SECONDS)


ENDPOINTS = tagged(
    "metrics",
    Endpoint(
        "exportSamples",
        "GET /jobs/{job}/samples",
        "metrics:read",
        _samples,
        answer=SampleBody,
        answer_type="application/x-ndjson",
        queries=(
            METRIC,
            *TIMES,
            REPLICA,
            DEVICE,
            Query("format", "json, csv or parquet. Default: json."),
            PROJECT,
        ),
        other_types=("text/csv", "application/vnd.apache.parquet"),
        by_resource=True,
    ),
)
