"""Expulsion of servers that are silent in the table of servers."""

import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, ServerRow, ServerTable

_log = logging.getLogger(__name__)
SILENT_SECONDS = 15.0
"""Seconds after which a server is expelled if its beat has not changed."""
EXPELLED_SECONDS = 15.0
"""Seconds between the expulsion of a server and the moment at which another may be alone; over ``FENCE_SECONDS``."""


class SilentServers:
    """Beats of the other servers, as one server has seen them. For one thread at a time."""

    def __init__(self, table: ServerTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._beats: dict[int, tuple[int, float]] = {}  # the last beat of each other server, and the time of its change
        self._expelled: set[int] = set()
        self.waits_until = 0.0
        """Time until which expelled servers may answer."""

    def expel(self, living: Sequence[ServerRow]) -> None:
        """Expel the servers among these whose beat has not changed for ``SILENT_SECONDS``."""
        now = self._now()
        for row in living:
            beat, since = self._beats.get(row.id, (-1, now))
            self._beats[row.id] = (row.beat, since if row.beat == beat else now)
            if now - self._beats[row.id][1] > SILENT_SECONDS:
                _log.warning("server %s (%s) does not answer any more", row.host, row.folder or "no journal")
                self._table.write(replace(row, beat=row.beat + 1, state=EXPELLED))

    def await_expelled(self, rows: Sequence[ServerRow]) -> None:
        """Wait until no expelled server can answer any more, then remove their rows."""
        expelled = [row for row in rows if row.state == EXPELLED and not row.journals]
        fresh = {row.id for row in expelled} - self._expelled
        if fresh:
            self.waits_until = self._now() + EXPELLED_SECONDS
        elif expelled and self._now() >= self.waits_until:
            for row in expelled:
                self._table.write(replace(row, beat=row.beat + 1, state=DEPARTED))
        self._expelled |= fresh
