"""Check that processes are found that begin and end between two samples."""

from collections.abc import Callable, Iterator
from pathlib import Path

from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.process_events.connector import Connector
from jobmeter.collect.process_events.counts import make_counts_file
from jobmeter.collect.process_events.netlink import EventSocket
from jobmeter.collect.process_events.taskstats import TaskStats
from jobmeter.model.time import format_iso

_ADVICE = "give the service CAP_NET_ADMIN (deploy/systemd/agent-events.conf), in the machine's own namespaces"


def check_events(
    spool: Path,
    begins: Callable[[], EventSocket] = lambda: Connector(ends=True),
    ends: Callable[[], EventSocket] = TaskStats,
) -> Iterator[Check]:
    """Check the kernel's events of processes. Add the processes that an agent with this spool has missed."""
    no_begins, no_ends = _problem(begins), _problem(ends)
    if no_begins:
        status, advice = SourceStatus.LIMITED, _ADVICE
        text = f"processes that begin and end between two samples are missed: their events cannot be read ({no_begins})"
    elif no_ends:
        status, advice = SourceStatus.LIMITED, _ADVICE
        text = f"short processes are found, but their last usage cannot be read ({no_ends})"
    else:
        status, advice = SourceStatus.OK, ""
        text = "the kernel reports processes that begin and end between two samples, with their usage"
    counts = make_counts_file(spool).load()
    if counts is not None:
        most = "at most " if counts.problem else ""
        text += f"; since {format_iso(counts.since_ms)} the agent has missed {most}{counts.missed:,} processes"
    yield Check("kernel", "events", status, text, advice)


def _problem(open_source: Callable[[], EventSocket]) -> str:
    try:
        open_source().close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
