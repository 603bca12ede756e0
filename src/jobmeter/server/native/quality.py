"""``/jobs/{job}/quality``: completeness of a job's stored data."""

from jobmeter.model.quality import JobQuality
from jobmeter.query.quality import MOST_GAPS, MOST_NODES, QualityQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref

HEADING = "jobs"


@Endpoint(
    "getJobQuality",
    "GET /jobs/{job}/quality",
    "jobs:read",
    details="Gaps of its replicas relative to their sampling interval, replicas that ran without measurements, the "
    "state of its nodes' agents (times offline, samples that arrived late because they waited on disk, "
    "dropped samples, clock errors), and damaged parts of the store. `complete` is true if nothing "
    "is known to be missing, null if that cannot be judged; `sentences` summarise the result, empty "
    "without problems. A gap is two or more missing samples in a row. Long jobs are evaluated in steps of "
    f"`step` ms. At most the {MOST_GAPS} longest gaps are listed, and {MOST_NODES} nodes evaluated; `nodes` is "
    "null for callers who may not see nodes. Arrival times are not stored: late samples are known "
    "only from the agents' own measurements.",
    queries=(PROJECT,),
    by_resource=True,
)
def _quality(context: CallContext) -> JobQuality:
    """Show how complete the stored data of a job is."""
    return context.ask(QualityQuestion(job_ref(context)))
