"""History of a job: its events, and for a failed job the last log lines."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from jobmeter.cli.listing import show_listing
from jobmeter.cli.output import cell, counted, moment
from jobmeter.client.api import Api
from jobmeter.client.searches import EventSearch, LogSearch
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Job, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobmeter.client.bodies import LogEntry

EVENTS = 8
"""Most events shown, newest kept."""
LINES = 10
"""Most log lines shown, last ones kept."""


def show_history(out: Console, api: Api, job: Job) -> None:
    """Print the events of a finished job and the changes of any job; for a failed one also the end of its log."""
    parts = [_course]
    if job.state.finished:
        parts.insert(0, _events)
    if job.state is JobState.FAILED:
        parts.append(_lines)
    for part in parts:
        # Servers of earlier releases have no such endpoint.
        with suppress(NotFoundError):
            part(out, api, job)


def _events(out: Console, api: Api, job: Job) -> None:
    events, total = api.newest_events(job.id, EventSearch(project=job.project), EVENTS)
    if not events:
        return
    more = "" if total <= EVENTS else f", the newest {EVENTS} of {counted(total, 'event')} (jobmeter events {job.id})"
    out.print(f"\nwhat happened{more}", markup=False, style="bold")
    rows = [(moment(event.time), event.replica, event.reason, event.message) for event in reversed(events)]
    show_listing(out, ("time", "replica", "reason", "message"), rows, spare=("replica",), folded="message")


def _course(out: Console, api: Api, job: Job) -> None:
    """Print the changes of a job: nodes, peaks of warnings, change points of its metrics."""
    moments = api.timeline(job.id, ("node", "peak", "metric"), EVENTS, job.project)
    if moments:
        out.print("\nwhat changed beside", markup=False, style="bold")
        rows = [(moment(one.time), one.node or one.replica, one.name, one.text) for one in moments]
        show_listing(out, ("time", "where", "what", "text"), rows, spare=("where",), folded="text")


def _lines(out: Console, api: Api, job: Job) -> None:
    search = LogSearch(project=job.project, order="desc", limit=LINES)
    errors: Sequence[LogEntry] = list(api.logs(job.id, replace(search, level="error")))
    found = errors or list(api.logs(job.id, search))
    if not found:
        return
    several = len({line.replica for line in found}) > 1
    out.print(f"\n{'last error lines' if errors else 'last lines'} of its log", markup=False, style="bold")
    for line in reversed(found):
        out.print(f"  {cell(f'{line.replica} | ' if several else '')}{cell(line.text)}")
    out.print(f"more: jobmeter logs {job.id}{' --level error' if errors else ''} --tail 100", markup=False)
