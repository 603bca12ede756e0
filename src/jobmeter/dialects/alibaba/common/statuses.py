"""A product's words for the states of jobs."""

from collections.abc import Mapping

import msgspec

from jobmeter.model.job import Condition, Job, JobState, Operator


class Statuses(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one product: the meaning of each, and the default word for each of our states.

    A job's record may hold a finer word as ``extra["<dialect>"]["Status"]``. This word is used while the default word
    of its meaning equals the default word of the job's state.
    """

    dialect: str
    meanings: Mapping[str, JobState]
    words: Mapping[JobState, str]

    def find_status(self, job: Job) -> str:
        """Return the status of a job."""
        finer, word = job.extra.get(self.dialect, {}).get("Status"), self.words[job.state]
        return finer if isinstance(finer, str) and self._default(finer) == word else word

    def find_matching(self, status: str) -> tuple[frozenset[JobState], tuple[Condition, ...]]:
        """Return the states and conditions that select the jobs of that status."""
        field, default = f"extra.{self.dialect}.Status", self._default(status)
        states = frozenset(state for state, word in self.words.items() if word == default)
        if status != default:
            return states, (Condition(field, Operator.IN, (status,)),)
        finer = tuple(word for word in self.meanings if word != status and self._default(word) == status)
        return states, (Condition(field, Operator.NOT_IN, finer),) if finer else ()

    def make_filter(self, status: str) -> tuple[frozenset[JobState], tuple[Condition, ...]]:
        """Return ``find_matching`` of a status; an empty filter for an empty text."""
        return self.find_matching(status) if status else (frozenset(), ())

    def _default(self, status: str) -> str | None:
        """Return the default word for the meaning of a word; None for an unknown word."""
        return self.words[self.meanings[status]] if status in self.meanings else None


def list_states(job: Job) -> list[tuple[int, JobState]]:
    """Return the past states of a job, each with its start in epoch ms, as far as the job's times show them."""
    end = job.end if job.state.finished else None
    times = ((job.created, JobState.QUEUED), (job.start, JobState.RUNNING), (end, job.state))
    return [(time, state) for time, state in times if time is not None]
