"""Merges a record into stored rows, as pure functions over their values."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.model.extra import encode_bounded
from jobmeter.model.job import LOST, Checkpoint, JobState
from jobmeter.model.record import MAX_CHECKPOINT_BYTES, MAX_CHECKPOINTS, Lease
from jobmeter.model.time import SECOND

_OUTCOMES = frozenset(state.value for state in JobState if state.outcome)
_LIVE = frozenset({JobState.QUEUED.value, JobState.RUNNING.value})
_ENDS = ("end", "exit_code")
LIFE = ("state", "start", "end", "exit_code")
LEASE = ("lease_owner", "lease_ms", "lease_renewed")


def merge_life(stored: Mapping[str, Any], given: Mapping[str, Any], *, restart: bool = False) -> dict[str, Any]:
    """Return state, start, end, exit code, creation, error and loss of a job after a record.

    An error of None stays. A record may say that a finished job runs. With a start after the end it describes a later
    attempt; otherwise it is an old message that was delivered again, and changes nothing. A restarted job has its first
    start and creation; ``restart`` marks a record of such an attempt. A job that was marked lost, or whose end was only
    derived, takes the state of the record.
    """
    if stored["lost"] is not None and (given["state"] is not None or given["end"] is not None):
        found = {**stored, "state": JobState.RUNNING.value, "end": None, "exit_code": None, "lost": None}
        return merge_life(found, {**given, "error": given["error"] or ""}, restart=restart)
    after = {name: stored[name] if given[name] is None else given[name] for name in LIFE}
    after |= {"created": given["created"], "error": given["error"], "lost": stored["lost"]}
    if stored["state"] in _OUTCOMES and given["state"] in {*_LIVE, JobState.UNKNOWN.value}:
        if given["state"] in _LIVE and _is_later(given["start"], stored):
            after |= {"state": given["state"], "end": None, "exit_code": None, "error": given["error"] or ""}
            restart = True
        else:
            after |= {name: stored[name] for name in ("state", *_ENDS)}
            after["start"] = given["start"] if stored["start"] is None else stored["start"]
    elif stored["state"] == JobState.UNKNOWN.value and given["state"] in _LIVE:
        after |= {"end": given["end"], "exit_code": given["exit_code"]}
        restart = True
    if restart and stored["start"] is not None:
        after |= {"start": stored["start"], "created": None}
    after["state"] = _derive_state(after, given)
    return after


def merge_replica_life(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return state, start, end, exit code and reason of a replica after a record.

    A late message does not restart an ended replica. If a replica starts again after a recorded end, that is its next
    attempt: None. A replica that was marked lost, or whose end was only derived, continues with its first start.
    """
    if stored["reason"] == LOST and stored["state"] == JobState.FAILED and (given["state"] or given["end"] is not None):
        stored = {**stored, "state": JobState.RUNNING.value, "end": None, "exit_code": None, "reason": ""}
    after = {name: stored[name] if given[name] is None else given[name] for name in (*LIFE, "reason")}
    began = given["start"] is not None and stored["end"] is not None and given["start"] > stored["end"]
    goes_on = given["end"] is None and (began or given["state"] in _LIVE)
    if stored["state"] in _OUTCOMES:
        if began and given["state"] in _LIVE:
            return None
        if given["state"] is None or given["state"] not in _OUTCOMES:
            after["state"] = stored["state"]
            if began:
                after["start"] = stored["start"]
    elif goes_on and stored["end"] is not None:
        start = given["start"] if stored["start"] is None else stored["start"]
        after |= {"state": given["state"], "start": start, "end": None, "exit_code": None, "reason": ""}
    return after


def merge_lease(
    stored: Mapping[str, Any], state: str | None, given: Lease | None, now_ms: int
) -> dict[str, Any] | None:
    """Return the lease of a job after a record that leaves it in ``state``; None if another run has it.

    A lease in a record belongs to its owner from the first renewal on: a record may be delivered late.
    """
    if state != JobState.RUNNING:
        return {"lease_owner": "", "lease_ms": None, "lease_renewed": None}
    if given is None:
        return {name: stored[name] for name in LEASE}
    if is_leased(stored, now_ms) and stored["lease_owner"] not in {"", given.owner}:
        return None
    owner = given.owner if stored["lease_owner"] == given.owner else ""
    return {"lease_owner": owner, "lease_ms": given.seconds * SECOND, "lease_renewed": now_ms}


def is_leased(stored: Mapping[str, Any], now_ms: int) -> bool:
    """Return True if the lease of a job has not expired."""
    return stored["lease_renewed"] is not None and now_ms < int(stored["lease_renewed"] + stored["lease_ms"])


def join_changes(first: dict[str, Any] | None, then: dict[str, Any], plain: frozenset[str]) -> dict[str, Any]:
    """Join two successive changes of a row. None stands for a value that stays, except in ``plain`` parameters."""
    if first is None:
        return then
    return {name: first[name] if value is None and name not in plain else value for name, value in then.items()}


def find_job_state(row: Mapping[str, Any]) -> JobState:
    """Return the state of a job's values. A job without a record counts as running."""
    if row["state"] is not None:
        return JobState(row["state"])
    return JobState.QUEUED if row["last_sample"] is None and row["start"] is None else JobState.RUNNING


def _derive_state(after: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Return the job's state; an ended job without a known state gets the state of its exit status."""
    state: str | None = after["state"]
    if given["state"] is not None or after["end"] is None or state not in {None, JobState.UNKNOWN.value}:
        return state
    code = after["exit_code"]
    return (JobState.UNKNOWN if code is None else JobState.FAILED if code else JobState.SUCCEEDED).value


def merge_checkpoints(stored: str | None, given: Iterable[Checkpoint]) -> str:
    """Return the checkpoints as JSON; a given checkpoint replaces the stored one of the same id.

    Raises LimitExceededError if they are too many or too long.
    """
    merged = {one.id: one for one in (msgspec.json.decode(stored, type=list[Checkpoint]) if stored else ())}
    merged.update({one.id: one for one in given})
    if len(merged) > MAX_CHECKPOINTS:
        raise LimitExceededError(f"a job may have at most {MAX_CHECKPOINTS} checkpoints", "checkpoints")
    return encode_bounded(list(merged.values()), "checkpoints", MAX_CHECKPOINT_BYTES)


def _is_later(start: int | None, stored: Mapping[str, Any]) -> bool:
    ends = (stored[name] for name in ("end", "last_sample", "start"))
    last = next((time for time in ends if time is not None), None)
    return start is not None and last is not None and start > last
