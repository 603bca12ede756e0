"""Replicas as the instances of a job, in the names that callers have for them."""

from jobmeter.errors import NotFoundError
from jobmeter.model.job import JobView

CONTAINER = "main"
"""An instance's one container: what its processes write is stored by replica."""


def replicas_named(view: JobView, instance: str, field: str = "InstanceId") -> frozenset[str]:
    """Return the replica of an instance: of any attempt's pod, of ``<job>-<replica>``, or of its own name.

    None of no text. Raises NotFoundError (``instance``) in the words of the vendor's ``field``.
    """
    if not instance:
        return frozenset()
    for replica in view.replicas:
        if instance in {replica.pod_id, f"{view.job.id}-{replica.name}", replica.name}:
            return frozenset({replica.name})
    raise NotFoundError(f"The specified {field} {instance} does not exist.", "instance", instance)
