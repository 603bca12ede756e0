"""What a record changes of what is known, as pure functions over the values of rows."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.model.job import LOST, Checkpoint, JobState
from jobmeter.model.record import MAX_CHECKPOINT_BYTES, MAX_CHECKPOINTS, MAX_EXTRA_BYTES, Lease
from jobmeter.model.time import SECOND

Extra = dict[str, dict[str, Any]]
_OUTCOMES = frozenset(state.value for state in JobState if state.outcome)
_LIVE = frozenset({JobState.QUEUED.value, JobState.RUNNING.value})
_ENDS = ("end", "exit_code")
LIFE = ("state", "start", "end", "exit_code")
LEASE = ("lease_owner", "lease_ms", "lease_renewed")


def life(known: Mapping[str, Any], given: Mapping[str, Any], *, restart: bool = False) -> dict[str, Any]:
    """State, start, end, exit code, creation, error and loss of a job after a record; an error of None stays.

    A job that is said to run after it has ended was either started again, later than its end, or an old message was
    delivered once more; then what is known stands. A job that was started again keeps its first start and creation;
    ``restart`` says that the record tells of such a later attempt. A job that was taken for lost, or whose end nobody
    saw, becomes what a record says.
    """
    if known["lost"] is not None and (given["state"] is not None or given["end"] is not None):
        found = {**known, "state": JobState.RUNNING.value, "end": None, "exit_code": None, "lost": None}
        return life(found, {**given, "error": given["error"] or ""}, restart=restart)
    after = {name: known[name] if given[name] is None else given[name] for name in LIFE}
    after |= {"created": given["created"], "error": given["error"], "lost": known["lost"]}
    if known["state"] in _OUTCOMES and given["state"] in {*_LIVE, JobState.UNKNOWN.value}:
        if given["state"] in _LIVE and _later(given["start"], known):
            after |= {"state": given["state"], "end": None, "exit_code": None, "error": given["error"] or ""}
            restart = True
        else:
            after |= {name: known[name] for name in ("state", *_ENDS)}
            after["start"] = given["start"] if known["start"] is None else known["start"]
    elif known["state"] == JobState.UNKNOWN.value and given["state"] in _LIVE:
        after |= {"end": given["end"], "exit_code": given["exit_code"]}
        restart = True
    if restart and known["start"] is not None:
        after |= {"start": known["start"], "created": None}
    after["state"] = _implied(after, given)
    return after


def replica_life(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """State, start, end, exit code and reason of a replica after a record.

    One that has ended is not revived by a late message, and a replica that starts again after an end that somebody saw
    is its next attempt: None. One that was taken for lost, or whose end nobody saw, goes on with its first start.
    """
    if known["reason"] == LOST and known["state"] == JobState.FAILED and (given["state"] or given["end"] is not None):
        known = {**known, "state": JobState.RUNNING.value, "end": None, "exit_code": None, "reason": ""}
    after = {name: known[name] if given[name] is None else given[name] for name in (*LIFE, "reason")}
    began = given["start"] is not None and known["end"] is not None and given["start"] > known["end"]
    goes_on = given["end"] is None and (began or given["state"] in _LIVE)
    if known["state"] in _OUTCOMES:
        if began and given["state"] in _LIVE:
            return None
        if given["state"] is None or given["state"] not in _OUTCOMES:
            after["state"] = known["state"]
            if began:
                after["start"] = known["start"]
    elif goes_on and known["end"] is not None:
        start = given["start"] if known["start"] is None else known["start"]
        after |= {"state": given["state"], "start": start, "end": None, "exit_code": None, "reason": ""}
    return after


def lease(known: Mapping[str, Any], state: str | None, given: Lease | None, now_ms: int) -> dict[str, Any] | None:
    """The lease of a job after a record that leaves it in ``state``; None where another run holds it.

    A lease that a record brings is its owner's once that renews it: a record may be delivered long after it was made.
    """
    if state != JobState.RUNNING:
        return {"lease_owner": "", "lease_ms": None, "lease_renewed": None}
    if given is None:
        return {name: known[name] for name in LEASE}
    if holds(known, now_ms) and known["lease_owner"] not in {"", given.owner}:
        return None
    owner = given.owner if known["lease_owner"] == given.owner else ""
    return {"lease_owner": owner, "lease_ms": given.seconds * SECOND, "lease_renewed": now_ms}


def holds(known: Mapping[str, Any], now_ms: int) -> bool:
    """Whether the lease of a job has not ended."""
    return known["lease_renewed"] is not None and now_ms < int(known["lease_renewed"] + known["lease_ms"])


def joined(first: dict[str, Any] | None, then: dict[str, Any], plain: frozenset[str]) -> dict[str, Any]:
    """One change of a row for two, one after the other: a None stands for what stays, but in ``plain`` parameters."""
    if first is None:
        return then
    return {name: first[name] if value is None and name not in plain else value for name, value in then.items()}


def job_state(row: Mapping[str, Any]) -> JobState:
    """The state that a job's values mean; one that only samples tell of is running as far as records go."""
    if row["state"] is not None:
        return JobState(row["state"])
    return JobState.QUEUED if row["last_sample"] is None and row["start"] is None else JobState.RUNNING


def _implied(after: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """The state, where a record gives an end or an exit status and nobody a state."""
    state: str | None = after["state"]
    if given["state"] is not None or after["end"] is None or state not in {None, JobState.UNKNOWN.value}:
        return state
    code = after["exit_code"]
    return (JobState.UNKNOWN if code is None else JobState.FAILED if code else JobState.SUCCEEDED).value


def merged_extra(known: str | None, given: Iterable[Extra]) -> str:
    """``extra`` as JSON with each key of each dialect set as it was given last, or taken back by None.

    Raises LimitExceededError when it gets too long.
    """
    merged: Extra = msgspec.json.decode(known) if known else {}
    for one in given:
        for dialect, values in one.items():
            merged.setdefault(dialect, {}).update(values)
    kept = {
        dialect: told
        for dialect, values in merged.items()
        if (told := {name: value for name, value in values.items() if value is not None})
    }
    return _bounded(kept, "extra", MAX_EXTRA_BYTES)


def merged_checkpoints(known: str | None, given: Iterable[Checkpoint]) -> str:
    """The checkpoints as JSON, given ones in the place of those of the same id.

    Raises LimitExceededError when they are too many or too long.
    """
    merged = {one.id: one for one in (msgspec.json.decode(known, type=list[Checkpoint]) if known else ())}
    merged.update({one.id: one for one in given})
    if len(merged) > MAX_CHECKPOINTS:
        raise LimitExceededError(f"a job may have {MAX_CHECKPOINTS} checkpoints", "checkpoints")
    return _bounded(list(merged.values()), "checkpoints", MAX_CHECKPOINT_BYTES)


def _later(start: int | None, known: Mapping[str, Any]) -> bool:
    ends = (known[name] for name in ("end", "last_sample", "start"))
    last = next((time for time in ends if time is not None), None)
    return start is not None and last is not None and start > last


def _bounded(value: object, field: str, most: int) -> str:
    encoded = msgspec.json.encode(value)
    if len(encoded) > most:
        raise LimitExceededError(f"{field} may have {most} bytes as JSON, with this record {len(encoded)}", field)
    return encoded.decode()
