"""``/jobs/{job}/quality``: how complete what is stored of a job is."""

from jobmeter.model.quality import JobQuality
from jobmeter.query.quality import MOST_GAPS, MOST_NODES, QualityQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref, tagged


def _quality(context: CallContext) -> JobQuality:
    """How complete what is stored of a job is."""
    return context.services.executor.run(QualityQuestion(job_ref(context)), context.scope)


ENDPOINTS = tagged(
    "jobs",
    Endpoint(
        "getJobQuality",
        "GET /jobs/{job}/quality",
        "jobs:read",
        _quality,
        details=(
            "Gaps of its replicas against their own sampling interval, replicas that ran and were not measured, how "
            "the agents of its nodes fared (when they were away, samples that waited on their disks and so came late, "
            "samples that they gave up, their clocks), and damaged parts of the store. `complete` is whether nothing "
            "is known to be missing, null where nothing can be judged; `sentences` say what there is to say, empty "
            "where there is nothing. A gap is two samples in a row or more. Long jobs are looked at in steps of "
            f"`step` ms. At most the {MOST_GAPS} longest gaps are listed, and {MOST_NODES} nodes looked at; `nodes` is "
            "null for whoever may not see nodes. When a sample arrived is not stored: that samples came late is told "
            "by the agents' own measurements alone."
        ),
        queries=(PROJECT,),
        by_resource=True,
    ),
)
