"""Expulsion of servers that are silent in the table of servers."""

import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from jobmeter.store.clickhouse.journal_owner import has_ended
from jobmeter.store.clickhouse.roles import ServerPeers, ServerRole
from jobmeter.store.clickhouse.servers import DEPARTED, EXPELLED, FOLLOWING, IDLE, LIVE, ServerRow, ServerRows

_log = logging.getLogger(__name__)
SILENT_SECONDS = 15.0
"""Seconds after which a server is expelled if its beat has not changed."""
EXPELLED_SECONDS = 15.0
"""Seconds between the expulsion of a server and the moment at which another may be alone; over ``FENCE_SECONDS``."""

FENCE_SECONDS = 10.0
"""Seconds for which a direct server answers after its last confirmed beat, and a leader or a follower after a sign."""
SUSPECT_SECONDS = 8.0
"""Seconds without a sign of a follower after which its leader expels it."""


class SilentServers:
    """Beats of the other servers, as one server has seen them. For one thread at a time."""

    def __init__(self, table: ServerRows, now: Callable[[], float]) -> None:
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


def drop_silent(
    peers: ServerPeers, table: ServerRows, others: Sequence[ServerRow], number: int, now: Callable[[], float]
) -> bool:
    """Expel the followers that have ended or are silent, and drop them once they answer nothing.

    Return False if this server is expelled itself.
    """
    rows = {one.id: one for one in others}
    for link in peers.list_followers():
        row = rows.get(link.server)
        if row is None:  # it has departed
            peers.drop(link.server)
            continue
        link.is_expelled |= row.state == EXPELLED
        link.has_worked |= row.phase == FOLLOWING and row.leader == number
        ended = (link.has_worked and row.phase == IDLE) or (link.is_closed and has_ended(row))
        if ended and link.has_worked and not row.leader:  # it has resigned
            peers.drop(link.server)
            continue
        if not link.is_expelled and (ended or now() - max(link.confirmed, link.since) > SUSPECT_SECONDS):
            table.write(replace(row, beat=row.beat + 1, state=EXPELLED))
            if not is_live(table.read(), number):
                return False
            link.is_expelled = True
            _log.warning("server %s (%s) does not answer any more", row.host, row.folder)
        if link.is_expelled and (ended or now() - link.answered > FENCE_SECONDS):
            peers.drop(link.server)
    return True


def find_fence(role: ServerRole, peers: ServerPeers | None, now: float) -> float:
    """Return the time until which the answers of a leader or a follower count; the past for another role."""
    if role is ServerRole.LEADER:
        if peers is None:
            return float("inf")
        signs = [one.confirmed for one in peers.list_followers() if not one.is_expelled]
        return min([now, *signs]) + FENCE_SECONDS  # a new follower may come at any time
    link = peers.leader if peers is not None and role is ServerRole.FOLLOWER else None
    return float("-inf") if link is None or link.is_closed else link.confirmed + FENCE_SECONDS


def is_live(rows: Sequence[ServerRow], number: int) -> bool:
    """Return True if a server is neither expelled nor gone."""
    return any(one.id == number and one.state == LIVE for one in rows)
