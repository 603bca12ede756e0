"""A product's words for the states of jobs."""

from collections.abc import Mapping

import msgspec

from jobmeter.model.job import Condition, Job, JobState, Operator


class Statuses(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one product: ``meanings`` of each, and the default one for each of our states.

    A job's record may hold a finer word as ``extra["<dialect>"]["Status"]``, which counts while it matches the job's
    state.
    """

    dialect: str
    meanings: Mapping[str, JobState]
    words: Mapping[JobState, str]

    def of(self, job: Job) -> str:
        """Return the status of a job."""
        finer = job.extra.get(self.dialect, {}).get("Status")
        agrees = isinstance(finer, str) and self.meanings.get(finer) is job.state
        return str(finer) if agrees else self.words[job.state]

    def matching(self, status: str) -> tuple[frozenset[JobState], tuple[Condition, ...]]:
        """Return the states and conditions of the jobs that have that status."""
        field = f"extra.{self.dialect}.Status"
        states = frozenset(state for state, word in self.words.items() if word == status)
        if not states:
            return frozenset({self.meanings[status]}), (Condition(field, Operator.IN, (status,)),)
        finer = tuple(word for word, meant in self.meanings.items() if meant in states and word != status)
        return states, (Condition(field, Operator.NOT_IN, finer),) if finer else ()


def states_of(job: Job) -> list[tuple[int, JobState]]:
    """Return the states that a job went through, each with its beginning in epoch ms, as far as its times say it."""
    end = job.end if job.state.finished else None
    times = ((job.created, JobState.QUEUED), (job.start, JobState.RUNNING), (end, job.state))
    return [(time, state) for time, state in times if time is not None]
