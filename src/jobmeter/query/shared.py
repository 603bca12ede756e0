"""What the holder of a share token sees of a job: what its measurements are named and placed by, and nothing else."""

import msgspec

from jobmeter.model.job import Job, JobView, Replica

_JOB = ("id", "project", "state", "created", "start", "end", "limits", "recorded", "first_sample", "last_sample")
_REPLICA = ("name", "attempt", "rank", "pod_id", "start", "end")
_EXTRA = {"pai-dlc": ("SanityCheckResults",)}
"""Results of health checks, which PAI-DLC's GetJobSanityCheckResult shows to the holder of a token.

https://help.aliyun.com/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobsanitycheckresult
"""


def shared_view(view: JobView) -> JobView:
    """The job with the fields that measurements need. A field that is added to a job stays closed until it is named."""
    job = view.job
    extra = {
        dialect: {name: job.extra[dialect][name] for name in names if name in job.extra[dialect]}
        for dialect, names in _EXTRA.items()
        if dialect in job.extra
    }
    replicas = [Replica(**{name: getattr(one, name) for name in _REPLICA}) for one in view.replicas]
    return msgspec.structs.replace(
        view, job=Job(**{name: getattr(job, name) for name in _JOB}, extra=extra), replicas=replicas, allocations=[]
    )
