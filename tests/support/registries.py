"""What tests of registries share."""

from jobmeter.registry.stored import Observation


def observation(first_ms: int, last_ms: int, **names: object) -> Observation:
    """That samples of a replica on a node were seen from one moment to another; names may be others, or empty."""
    given = {"project": "default", "job": "j", "replica": "w", "attempt": 0, "cluster": "", "node": "n", "device": ""}
    return Observation(**{**given, **names}, first_ms=first_ms, last_ms=last_ms)  # type: ignore[arg-type]
