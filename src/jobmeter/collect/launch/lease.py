"""Lease of a run. While it is renewed, the server regards the job as running."""

import secrets
from contextlib import suppress
from pathlib import Path

from jobmeter.model.record import Lease, LeaseRecord, Records
from jobmeter.model.time import SECOND, Clock
from jobmeter.wire.native.encode import make_records_frame

LEASE_SECONDS = 60
"""Longest silence in seconds until a run counts as lost, unless its interval is longer."""
MISSED = 3
"""Renewals that may be missed."""
_FILE = "lease"


class RunLease:
    """Creates due renewals. For the thread of the delivery.

    A renewal is sent with a current request and not stored, because a late renewal proves nothing.
    """

    def __init__(self, job: str, project: str, owner: str, interval_ms: int, clock: Clock) -> None:
        """``interval_ms`` is the time between two samples."""
        self.lease = Lease(owner=owner, seconds=max(LEASE_SECONDS, MISSED * interval_ms // SECOND))
        self._frame = make_records_frame(Records(leases=[LeaseRecord(job_id=job, project=project, lease=self.lease)]))
        self._clock = clock
        self._renewed: float | None = None

    def make_frame(self) -> bytes:
        """Return the frame of a renewal; empty while the last one is recent."""
        every = self.lease.seconds / MISSED
        recent = self._renewed is not None and self._clock.monotonic() - self._renewed < every
        return b"" if recent else self._frame

    def note_renewal(self) -> None:
        """Note that the server received a renewal."""
        self._renewed = self._clock.monotonic()


def lease_owner(folder: Path | None) -> str:
    """Return a random name for the lease's holder, or that of a finished run that left its spool ``folder``."""
    owner = secrets.token_hex(16)
    if folder is None:
        return owner
    with suppress(OSError, UnicodeDecodeError):
        found = (folder / _FILE).read_text()
        if len(found) == len(owner) and found.isalnum():
            return found
    with suppress(OSError):
        (folder / _FILE).write_text(owner)
    return owner
