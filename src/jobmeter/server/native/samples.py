"""``/jobs/{job}/samples``: stream every stored sample of a job."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from jobmeter.query.defaults import choose_range
from jobmeter.query.readings import Readings, ReadingsQuestion
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.server.native import raw
from jobmeter.server.native.arguments import DEVICE, REPLICA, QueryArguments
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, Stream, make_job_ref
from jobmeter.server.native.metrics import METRIC, TIMES, check_metrics
from jobmeter.server.pipeline import export_slot

PATIENCE_SECONDS = 60.0
"""Longest time in seconds that a client may read nothing: meanwhile it occupies a connection to the engine."""


class SampleBody(msgspec.Struct, frozen=True):
    """A line of the answer: a stored sample, in the unit of its metric. ``time`` is in epoch milliseconds."""

    time: int
    metric: str
    replica: str
    node: str
    device: str
    attempt: int
    labels: dict[str, str]
    value: float


_FORMATS: Mapping[str, Callable[[Readings, str], Stream]] = {
    "json": raw.write_json,
    "csv": raw.write_csv,
    "parquet": raw.write_parquet,
}


HEADING = "metrics"


@Endpoint(
    "exportSamples",
    "GET /jobs/{job}/samples",
    "metrics:read",
    answer=SampleBody,
    answer_type="application/x-ndjson",
    queries=(
        METRIC,
        *TIMES,
        REPLICA,
        DEVICE,
        QueryArguments("format", "json, csv or parquet. Default: json."),
        PROJECT,
    ),
    other_types=("text/csv", "application/vnd.apache.parquet"),
    by_resource=True,
)
def _samples(context: CallContext) -> Stream:
    """Stream every stored sample of a job.

    Samples are not bucketed, combined or converted: a counter has the values that were read, in the unit of its metric.
    A derived metric gives the samples of its sources, under their own names (`cpu.usage` gives `cpu.time`). For a
    device measured without a job, the job has the samples from the time when it had the device. The samples of a series
    follow one another in order of time. `csv` has the columns `time`, `replica`, `device`, `value`; first `metric` if
    more than one name may occur; last `node`, `attempt`, `labels` if a series has no replica, belongs to a later
    attempt, or has labels. `json` has an object per line, `parquet` every column, labels as JSON text. An incomplete
    answer ends with a broken connection, so that no client takes it for complete. Default range: the whole life of a
    finished job, the last hour of a running one.
    """
    given = context.arguments
    metrics = check_metrics(given.read_texts("metric"))
    answer = given.read_choice("format", _FORMATS, "json")
    job = context.ask(HeadQuestion(make_job_ref(context)))
    start, end, since = given.read_times()
    span = choose_range(job, context.services.clock.now_ms(), start=start, end=end, since=since)
    question = ReadingsQuestion(
        ref=JobRef(job.id, job.project),
        metrics=metrics,
        range=span,
        replicas=frozenset(given.read_texts("replica")),
        devices=frozenset(given.read_texts("device")),
    )
    give_back = export_slot(context.services, context.request)
    try:
        found = context.ask(question)
    except BaseException:
        give_back()
        raise

    def over() -> None:
        try:
            found.blocks.close()
        finally:
            give_back()

    return replace(answer(found, job.id), over=over, patience=PATIENCE_SECONDS)
