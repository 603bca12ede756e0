"""The newest report of each cluster's scheduler, in memory: programs report again once a minute."""

import threading
from collections.abc import Iterable

from msgspec.structs import replace

from jobmeter.model.answers import SchedulerStatus
from jobmeter.model.record import SchedulerRecord, record_time
from jobmeter.model.time import MINUTE, Clock, format_iso, parse_time

MOST, MOST_OF_PROJECT = 1_000, 64
"""Most schedulers in memory, in all and of one project; the least recently reported are dropped."""
_SILENT_MS = 10 * MINUTE
_SILENT_INTERVALS = 3
"""A program is silent after ten minutes without a report, and after three of its intervals (five minutes at most)."""


class SchedulerStates:
    """Stores the newest state of each scheduler. Safe for several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str, str], SchedulerStatus] = {}

    def record(self, project: str, records: Iterable[SchedulerRecord]) -> int:
        """Store reports written with a key of that project. Return their number."""
        now_ms, reports = self._clock.now_ms(), list(records)
        with self._lock:
            for one in reports:
                key = project, one.cluster, one.kind
                time = min(parse_time(one.time, "schedulers.time"), now_ms)
                before = self._states.get(key)
                if before is not None and before.heard > time:
                    continue  # a late delivery
                self._states.pop(key, None)
                self._states[key] = SchedulerStatus(
                    kind=one.kind,
                    cluster=one.cluster,
                    project=project,
                    heard=time,
                    interval_ms=one.interval_ms,
                    problem=one.problem,
                    since=record_time(one.since, "schedulers.since"),
                )
                own = [key for key in self._states if key[0] == project]
                for key in own[:-MOST_OF_PROJECT] or list(self._states)[:-MOST]:
                    del self._states[key]
        return len(reports)

    def list_states(self) -> list[SchedulerStatus]:
        """Return all states, by project, cluster and kind."""
        with self._lock:
            states = sorted(self._states.items())
        now_ms = self._clock.now_ms()
        return [_note_silence(state, now_ms) for _, state in states]


def _note_silence(state: SchedulerStatus, now_ms: int) -> SchedulerStatus:
    if now_ms - state.heard < max(_SILENT_MS, _SILENT_INTERVALS * state.interval_ms):
        return state
    text = f"`jobmeter scheduler {state.kind}` has sent no report since {format_iso(state.heard)}: check that it runs"
    return replace(state, problem=text, since=state.heard)
