"""Finds the owner of a series (job, replica, machine) from attributes.

https://opentelemetry.io/docs/specs/semconv/registry/attributes/k8s/ and .../host/
"""

from collections.abc import Mapping
from typing import NamedTuple

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.resolve import find_owner
from jobmeter.model.series import is_name

JOB, REPLICA, ATTEMPT, DEVICE = "jobmeter.job.id", "jobmeter.replica", "jobmeter.attempt", "jobmeter.device"
OWN = frozenset({JOB, REPLICA, ATTEMPT, DEVICE})
"""Jobmeter's own attributes, which a program sets; they never become labels."""
POD, CLUSTER = "k8s.pod.name", "k8s.cluster.name"
NODES = ("k8s.node.name", "host.name")
_JOB_NAMES = (
    "k8s.job.name",
    *(
        f"k8s.pod.{word}.{label}"
        for word in ("label", "labels")
        for label in ("training.kubeflow.org/job-name", "batch.kubernetes.io/job-name", "job-name")
    ),
)


class ResourceOwner(NamedTuple):
    """The owner of a series. Unknown parts are empty. ``used``: the attributes that named it; they become no labels.

    Job, replica and device are not checked: they may be invalid names.
    """

    cluster: str
    node: str
    device: str
    job: str
    replica: str
    attempt: int
    used: frozenset[str]


def find_resource_owner(attributes: Mapping[str, str]) -> ResourceOwner:
    """Return the owner of a series with these attributes. Jobmeter's attributes come before Kubernetes'.

    Raises InvalidRequestError for an attempt that is not a number.
    """
    job, replica = attributes.get(JOB, ""), attributes.get(REPLICA, "")
    if not job and POD in attributes:
        named = next((attributes[name] for name in _JOB_NAMES if name in attributes), "")
        job, replica = find_owner(attributes[POD], named)
    own = {name: attributes[name] for name in (*NODES, CLUSTER) if is_name(attributes.get(name, ""))}
    node = next((name for name in NODES if name in own), "")
    return ResourceOwner(
        job=job,
        replica=replica if job else "",
        attempt=_attempt(attributes.get(ATTEMPT, "")) if job else 0,
        cluster=own.get(CLUSTER, ""),
        node=own.get(node, ""),
        device=attributes.get(DEVICE, ""),
        used=OWN | ({CLUSTER} & own.keys()) | ({node} if node else frozenset()),
    )


def _attempt(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequestError(f"{ATTEMPT} {text[:20]!r} is not a number", "labels")
    return int(text or 0)
