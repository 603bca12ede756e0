"""Shared helpers of registry tests."""

from jobmeter.registry.stored import Observation


def observation(first_ms: int, last_ms: int, **names: object) -> Observation:
    """Return an observation of a replica on a node between two times. ``names`` replace its default names."""
    given = {"project": "default", "job": "j", "replica": "w", "attempt": 0, "cluster": "", "node": "n", "device": ""}
    return Observation(**{**given, **names}, first_ms=first_ms, last_ms=last_ms)  # type: ignore[arg-type]
