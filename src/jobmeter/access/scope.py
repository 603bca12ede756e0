"""What a decision allows: the only thing that questions are answered with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """The projects (None: all) and, for a share token, the one job that an asker may read.

    Made by ``jobmeter.access.decide`` alone. A job outside of it is answered as if it did not exist.
    """

    projects: frozenset[str] | None
    job: str | None = None

    def allows(self, project: str, job: str | None = None) -> bool:
        """True when that project, and that job where one is meant, lies inside."""
        inside = self.projects is None or project in self.projects
        return inside and (self.job is None or self.job == job)
