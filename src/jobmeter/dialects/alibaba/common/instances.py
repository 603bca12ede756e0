"""Replicas as the instances of a job, by the names that callers use for them."""

from jobmeter.errors import NotFoundError
from jobmeter.model.job import JobView

CONTAINER = "main"
"""The name of an instance's single container: the output of its processes is stored by replica."""


def find_replicas(view: JobView, instance: str, field: str = "InstanceId") -> frozenset[str]:
    """Return the replica of an instance: by any attempt's pod, by ``<job>-<replica>``, or by its own name.

    Returns an empty set for an empty text. Raises NotFoundError (``instance``), with the vendor's ``field``.
    """
    if not instance:
        return frozenset()
    for replica in view.replicas:
        if instance in {replica.pod_id, f"{view.job.id}-{replica.name}", replica.name}:
            return frozenset({replica.name})
    raise NotFoundError(f"The specified {field} {instance} does not exist.", "instance", instance)
