"""Servers that announce changed records to each other, so that each may cache them."""

from collections.abc import Callable, Sequence
from typing import Protocol


class RecordGroup(Protocol):
    """Group of servers: all drop their cached records of a job before one of them acknowledges a change of the job."""

    def get_membership(self) -> int | None:
        """Return a number that changes whenever this server joins the group; None while it is not a member.

        While the number stays, this server hears of each change before it is acknowledged.
        """
        ...

    def announce(self, jobs: Sequence[str]) -> None:
        """Announce changed jobs by id, and wait until no server answers from earlier records of them.

        Raises UnavailableError if a server may still do so. Commit the change before the call.
        """
        ...

    def hear(self, drop: Callable[[Sequence[str]], None]) -> None:
        """Call a function with the ids of jobs that another server announces. The function must not wait."""
        ...
