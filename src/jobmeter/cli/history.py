"""History of a job: its events, and for a failed job the last log lines."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from jobmeter.cli.output import escape_cell, format_count, format_time, show_listing
from jobmeter.client.api import Api
from jobmeter.client.searches import EventSearch, LogSearch
from jobmeter.errors import NotFoundError
from jobmeter.model.event import EventType
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobmeter.client.bodies import LogEntry, TimelineMoment

EVENTS = 8
"""Most events shown, newest kept."""
_READ = 200
"""Most changes that are read to show the newest ones."""
LINES = 10
"""Most log lines shown, last ones kept."""
TRACEBACK_LINES = 30
"""Most log lines shown with the frames of tracebacks, last ones kept."""
_SEARCHED = 500
"""Most lines of a replica that are searched for the frames of its tracebacks."""
_TRACEBACK = "Traceback (most recent call last):"


def show_history(out: Console, api: Api, job: Job) -> None:
    """Print the events of a finished job and the changes of any job; for a failed one also the end of its log."""
    parts = [_print_changes]
    if job.state.finished:
        parts.insert(0, _events)
    if job.state is JobState.FAILED:
        parts.append(_lines)
    for part in parts:
        # Servers of earlier releases have no such endpoint.
        with suppress(NotFoundError):
            part(out, api, job)


_EVENTS = [str(one) for one in EventType if one is not EventType.FINDING]
"""Types of the shown events. Findings are a part of their own."""


def _events(out: Console, api: Api, job: Job) -> None:
    events, total = api.read_newest_events(job.id, EventSearch(project=job.project, types=_EVENTS), EVENTS)
    if not events:
        return
    more = (
        "" if total <= EVENTS else f", the newest {EVENTS} of {format_count(total, 'event')} (jobmeter events {job.id})"
    )
    out.print(f"\nwhat happened{more}", markup=False, style="bold")
    rows = [(format_time(event.time), event.replica, event.reason, event.message) for event in reversed(events)]
    show_listing(out, ("time", "replica", "reason", "message"), rows, spare=("replica",), folded="message")


def _print_changes(out: Console, api: Api, job: Job) -> None:
    """Print the changes of a job: nodes, peaks of warnings, change points of its metrics."""
    moments = api.read_timeline(job.id, ("node", "peak", "metric"), _READ, job.project)
    rows = build_change_rows(moments)[-EVENTS:]
    if rows:
        out.print("\nwhat changed on its nodes and in its metrics", markup=False, style="bold")
        show_listing(out, ("time", "where", "what", "text"), rows, spare=("where",), folded="text")


def build_change_rows(moments: "Iterable[TimelineMoment]") -> list[tuple[str, str, str, str]]:
    """Build a row for each change: time, place, name, text. A change of several nodes in one second has one row."""
    places = group_pairs(
        ((format_time(one.time), one.name, one.text, bool(one.node)), one.node or one.replica) for one in moments
    )
    return [
        (time, found[0] if len(found) == 1 else format_count(len(found), "node" if on_nodes else "replica"), name, text)
        for (time, name, text, on_nodes), found in places.items()
    ]


def _lines(out: Console, api: Api, job: Job) -> None:
    search = LogSearch(project=job.project, order="desc", limit=LINES)
    errors: Sequence[LogEntry] = list(api.stream_logs(job.id, replace(search, level="error")))
    found = _add_frames(api, job, errors[::-1]) if errors else list(api.stream_logs(job.id, search))[::-1]
    if not found:
        return
    several = len({line.replica for line in found}) > 1
    out.print(f"\n{'last error lines' if errors else 'last lines'} of its log", markup=False, style="bold")
    for line in found[-TRACEBACK_LINES:]:
        out.print(f"  {escape_cell(f'{line.replica} | ' if several else '')}{escape_cell(line.text)}")
    out.print(f"more: jobmeter logs {job.id}{' --level error' if errors else ''} --tail 100", markup=False)


def _add_frames(api: Api, job: Job, errors: "Sequence[LogEntry]") -> "list[LogEntry]":
    """Add the frames of tracebacks to error lines; frames state no level. Both oldest first."""
    found: list[LogEntry] = []
    for replica in dict.fromkeys(line.replica for line in errors):
        own = [line for line in errors if line.replica == replica]
        search = LogSearch(project=job.project, order="desc", limit=_SEARCHED, end=own[-1].time + 1)
        near = list(api.stream_logs(job.id, replace(search, start=own[0].time, replicas=(replica,) if replica else ())))
        found += select_error_blocks([line for line in near[::-1] if line.replica == replica], own)
    return sorted(found, key=lambda line: line.time)


def select_error_blocks(lines: "Iterable[LogEntry]", errors: "Sequence[LogEntry]") -> "list[LogEntry]":
    """Select, from the lines of one replica, the error lines and the indented lines below each.

    A traceback ends with its first line that is not indented. Lines may begin with a header such as ``[rank0]: ``.
    Error lines that are not among the lines come first.
    """
    wanted = {(line.time_ns, line.text) for line in errors}
    found: list[LogEntry] = []
    header, is_open, in_traceback = "", False, False
    for line in lines:
        before, mark, _ = line.text.partition(_TRACEBACK)
        is_error = (line.time_ns, line.text) in wanted
        if mark:
            header, is_open, in_traceback = before, True, True
        elif line.text.startswith(header) and line.text[len(header) :].startswith((" ", "\t")):
            is_open = is_open or is_error
        elif is_error:
            is_open, in_traceback = True, False
        else:
            is_open, in_traceback = in_traceback and line.text.startswith(header), False
        if is_open:
            found.append(line)
    read = {(line.time_ns, line.text) for line in found}
    return [line for line in errors if (line.time_ns, line.text) not in read] + found
