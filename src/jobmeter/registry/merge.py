"""What a record changes of what is known, as pure functions over the values of rows."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from jobmeter.errors import LimitExceededError
from jobmeter.model.job import Checkpoint, JobState
from jobmeter.model.record import MAX_CHECKPOINT_BYTES, MAX_CHECKPOINTS, MAX_EXTRA_BYTES

Extra = dict[str, dict[str, Any]]
_FINISHED = frozenset(state.value for state in JobState if state.finished)
_STANDING = ("state", "start", "end", "exit_code")


def life(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """State, start, end, exit code and error of a job after a record; an error of None stays what it is.

    A job that is said to run after it has finished was either started again, later than its end, or an old message was
    delivered once more; then what is known stands.
    """
    opening = known["state"] in _FINISHED and given["state"] is not None and given["state"] not in _FINISHED
    if opening and _later(given["start"], known):
        return {**{name: given[name] for name in _STANDING}, "error": given["error"] or ""}
    after = {name: known[name] if given[name] is None else given[name] for name in _STANDING}
    if opening:
        after["state"] = known["state"]
        after["start"] = given["start"] if known["start"] is None else known["start"]
    return {**after, "error": given["error"]}


def replica_state(known: str | None, given: str | None) -> str | None:
    """The state of a replica after a record: one that has ended is not revived by a late message."""
    if given is None or (known in _FINISHED and given not in _FINISHED):
        return known
    return given


def job_state(row: Mapping[str, Any]) -> JobState:
    """The state that a job's values mean; one that only samples tell of is running as far as records go."""
    if row["state"] is not None:
        return JobState(row["state"])
    if row["end"] is not None:
        return JobState.FAILED if row["exit_code"] else JobState.SUCCEEDED
    return JobState.QUEUED if row["last_sample"] is None and row["start"] is None else JobState.RUNNING


def merged_extra(known: str | None, given: Extra) -> str:
    """``extra`` as JSON with each given key of each dialect set, or taken back by None.

    Raises LimitExceededError when it gets too long.
    """
    merged: Extra = msgspec.json.decode(known) if known else {}
    for dialect, values in given.items():
        own = {**merged.get(dialect, {}), **values}
        merged[dialect] = {name: value for name, value in own.items() if value is not None}
    kept = {dialect: values for dialect, values in merged.items() if values}
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
