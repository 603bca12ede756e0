"""Servers that announce changed records to each other, so that each may cache them."""

from collections.abc import Callable, Sequence
from typing import Protocol


class RecordGroup(Protocol):
    """Group of servers: all drop their cached records of a job before one of them acknowledges a change of the job."""

    def get_membership(self) -> int | None:
        """Return a number that changes whenever this server joins the group; None while it is not a member.

        Every change that is acknowledged while the number stays has been announced here.
        """
        ...

    def announce(self, jobs: Sequence[str]) -> None:
        """Return when no server answers from earlier records of jobs with these ids.

        Raises UnavailableError if one may. The change is committed before the call.
        """
        ...

    def hear(self, drop: Callable[[Sequence[str]], None]) -> None:
        """Call a function with the ids of jobs that another server announces. The function must not wait."""
        ...
