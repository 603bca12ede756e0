"""Components of heterogeneous jobs. Each is a job of Slurm, and a step may span several of them.

https://slurm.schedmd.com/heterogeneous_jobs.html.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jobmeter.collect.scheduler.slurm.slurm_job import Attempt, SlurmJob

_SCRIPTS = frozenset({"batch", "interactive"})


class Components:
    """Known components, by heterogeneous job and place."""

    def __init__(self, jobs: Iterable[SlurmJob]) -> None:
        """``jobs`` are all known ones, with their steps in the accounting."""
        self._known: Mapping[tuple[int, int], SlurmJob] = {
            # The accounting shows the first component without its place until it has begun.
            one.component or (one.number, 0): one
            for one in jobs
        }

    def add_ranks(self, facts: SlurmJob) -> SlurmJob:
        """Return a job whose steps have the ranks of their tasks in the whole heterogeneous job.

        The steps of a component are left out while the steps of an earlier one are unknown.
        """
        if facts.component is None or facts.component[1] == 0:
            return facts
        leader, place = facts.component
        before = [self._known.get((leader, earlier)) for earlier in range(place)]
        attempts = [
            _add_ranks(attempt, _find_earlier_attempts(before, back))
            for back, attempt in enumerate(reversed(facts.attempts), 1)
        ]
        return replace(facts, attempts=tuple(reversed(attempts)))


def _find_earlier_attempts(components: Sequence[SlurmJob | None], back: int) -> list[Attempt] | None:
    """Return the attempts of the earlier components, which are requeued together; None if one is unknown."""
    found = [one.attempts[-back] if one is not None and back <= len(one.attempts) else None for one in components]
    attempts = [one for one in found if one is not None]
    if len(attempts) < len(found) or not attempts[0].steps:
        return None
    return attempts


def _add_ranks(attempt: Attempt, earlier: Sequence[Attempt] | None) -> Attempt:
    if earlier is None:
        return replace(attempt, steps=())
    tasks = [{step.id: step.tasks for step in one.steps if step.id not in _SCRIPTS} for one in earlier]
    steps = [replace(step, first=sum(own.get(step.id, 0) for own in tasks)) for step in attempt.steps]
    return replace(attempt, steps=tuple(steps))
