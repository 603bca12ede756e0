"""Tests of the limits of a record: each refusal names its field."""

import json

import pytest

from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import decode_record

REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a device that was given back before it was given": (
        {"allocations": [{"replica": "w", "node": "n", "device": "gpu0", "start": 20, "end": 10}]},
        "allocations.end",
    ),
    "an allocation at no time": (
        {"allocations": [{"replica": "w", "node": "n", "device": "gpu0", "start": "noon"}]},
        "allocations.start",
    ),
    "an allocation that nobody can know of": (
        {"allocations": [{"replica": "w", "node": "n", "device": "gpu0", "start": 1, "source": "rumour"}]},
        "allocations.source",
    ),
    "a node that climbs": ({"replicas": [{"name": "w", "node": "../n"}]}, "replicas.node"),
    "a pod with a slash": ({"replicas": [{"name": "w", "pod_id": "a/b"}]}, "replicas.pod_id"),
    "an attempt before the first": ({"replicas": [{"name": "w", "attempt": -1}]}, "replicas.attempt"),
    "a name without end": ({"name": "x" * 2000}, "name"),
    "a command without end": ({"command": "x" * 70_000}, "command"),
    "a checkpoint without a name": ({"checkpoints": [{"id": ""}]}, "checkpoints.id"),
    "a checkpoint of no time": ({"checkpoints": [{"id": "c", "created": "noon"}]}, "checkpoints.created"),
    "a checkpoint smaller than nothing": ({"checkpoints": [{"id": "c", "size": -1}]}, "checkpoints.size"),
    "too many checkpoints": ({"checkpoints": [{"id": str(n)} for n in range(10_001)]}, "checkpoints"),
    "too long checkpoints": ({"checkpoints": [{"id": "c", "files": ["x" * 2**20]}]}, "checkpoints"),
    "extra of no dialect": ({"extra": {"a.b": {}}}, "extra"),
    "extra without end": ({"extra": {"foas": {"k": "x" * 2**18}}}, "extra"),
    "a path in extra without end": ({"extra": {"foas": {"/".join("a" * 17): 1}}}, "extra"),
    "a limit below nothing": ({"limits": {"cpu": -1}}, "limits.cpu"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_that_cannot_be_meant_names_its_field(name: str) -> None:
    parts, field = REFUSED[name]
    with pytest.raises(InvalidRequestError) as raised:
        decode_record(json.dumps({"job_id": "j", **parts}).encode())
    assert raised.value.field == field
