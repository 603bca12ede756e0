"""Ids of jobs that are unique across clusters with the same scheduler numbers."""

from enum import StrEnum
from hashlib import blake2s

from jobmeter.model.series import MAX_NAME

_SEPARATOR = "@"
_DIGEST = 8


class JobIds(StrEnum):
    """Form of job ids. ``PLAIN``: the scheduler's own. ``CLUSTER``: with the name of the cluster."""

    PLAIN = "plain"
    CLUSTER = "cluster"


def make_cluster_job(job: str, cluster: str) -> str:
    """Build the id of a job with its cluster: ``21@beta``. An id that would be too long ends with a digest."""
    name = f"{job}{_SEPARATOR}{cluster}"
    if len(name) <= MAX_NAME:
        return name
    digest = blake2s(name.encode(), digest_size=_DIGEST).hexdigest()
    return f"{name[: MAX_NAME - 2 * _DIGEST - 1]}~{digest}"
