"""Tests of the identity of a node: its series."""

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.model.series import Series


def test_equal_series_are_one_object_and_have_every_name():
    place, owner, labels = NodeIdentity("n", "c", "p"), Owner("j", "worker-1", 2), (("disk", "sda"),)
    assert place.make_node_series("m", labels) == Series("m", "p", "c", "n", labels=labels)
    assert place.make_device_series("m", "gpu0") == Series("m", "p", "c", "n", "gpu0")
    assert place.make_device_series("m", "gpu0", owner) == Series("m", "p", "c", "n", "gpu0", "j", "worker-1", 2)
    replica = Series("m", "p", "c", "n", "", "j", "worker-1", 2, labels)
    assert place.make_replica_series("m", owner, labels) == replica
    assert place.make_replica_series("m", Owner("j", "worker-1", 2), labels) is place.make_replica_series(
        "m", owner, labels
    )
