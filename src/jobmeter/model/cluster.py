"""The id of a job whose scheduler gives names that another cluster gives, too."""

from enum import StrEnum
from hashlib import blake2s

from jobmeter.model.series import MAX_NAME

_SEPARATOR = "@"
_DIGEST = 8


class JobIds(StrEnum):
    """What is in the ids of jobs. ``PLAIN``: what the scheduler calls them. ``CLUSTER``: its cluster besides."""

    PLAIN = "plain"
    CLUSTER = "cluster"


def job_in_cluster(job: str, cluster: str) -> str:
    """The id of a cluster's job among those of others: ``21@beta``. One that is too long ends with its digest."""
    name = f"{job}{_SEPARATOR}{cluster}"
    if len(name) <= MAX_NAME:
        return name
    digest = blake2s(name.encode(), digest_size=_DIGEST).hexdigest()
    return f"{name[: MAX_NAME - 2 * _DIGEST - 1]}~{digest}"
