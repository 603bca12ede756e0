"""``jobmeter logs``: output of a job's processes, and system logs of nodes."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.named import check_milliseconds, check_parts
from jobmeter.cli.options import build_names_option, define_verb, make_since_option
from jobmeter.cli.output import handle_closed_pipe
from jobmeter.cli.terminal import make_colours_printable, make_json_printable, make_printable
from jobmeter.client.bodies import LogEntry
from jobmeter.client.searches import JobSearch, LogSearch
from jobmeter.errors import UnavailableError
from jobmeter.model.syslog import SEVERITIES
from jobmeter.model.time import SECOND, SystemClock, format_iso

_PAUSE = 1.0
_LATE_MS = 10 * SECOND
"""Largest delay in milliseconds of a line that --follow still shows."""
_STATE_EVERY = 3
"""Polls between two checks of the job's state."""
_COLOURS = {"error": "31", "warning": "33", "debug": "2"}
_INTERRUPTED = 130
_GROUPS = {
    "Filters": (
        *("node", "replicas", "attempt", "stream", "query", "contains", "level", "severity"),
        *("start", "end", "since", "tail", "project"),
    ),
    "Output": ("follow", "timestamps", "as_json"),
}


@define_verb("jobmeter logs last --follow", "jobmeter logs train-1 --level error --tail 50", groups=_GROUPS)
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@click.option(
    "--node",
    metavar="NAME",
    shell_complete=completion.nodes,
    help="With JOB: only lines from this node. Without JOB: the node's system log.",
)
@click.option(
    "--query", metavar="QUERY", help="Only lines that match: words, phrases, err*, a | b, NOT a, tag:sshd, severity>=4."
)
@click.option("--severity", metavar="NAME", help="Only lines of this severity or worse: err, warning, info.")
@build_names_option("--replica", "replicas", complete=completion.replicas, help_text="Only this replica.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only this attempt of the replicas, from 0.")
@click.option("--stream", metavar="NAME", help="Only this stream: stdout or stderr.")
@click.option("--level", metavar="LEVEL", help="Only lines of this level or above: debug, info, warning, error.")
@click.option("--contains", metavar="TEXT", help="Only lines that contain this text, ignoring case.")
@click.option("--start", metavar="TIME", help="Only lines from this time on: ISO 8601 or epoch milliseconds.")
@click.option("--end", metavar="TIME", help="Only lines before this time, in the same forms.")
@make_since_option("Instead of --start: duration before the end or now, such as 1h.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the newest N lines.")
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until the job has ended.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time in UTC.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects; with --follow one object per line.")
@local.connection_options
def command(
    job: str | None,
    tail: int | None,
    follow: bool,
    timestamps: bool,
    as_json: bool,
    connection: local.LocalConnection,
    **options: object,
) -> None:
    """Print the output of JOB's processes, oldest first; with several replicas, each line begins with its replica.

    Without JOB, --node prints the node's system log: the kernel, the journal and the files that its agent reads.
    """
    if follow and options["end"] is not None:
        raise click.UsageError("give --follow or --end, not both")
    check_milliseconds(options)
    search = LogSearch(**options)  # type: ignore[arg-type]
    if job is not None:
        source, several = _open_job_lines(connection, job, search)
    else:
        source, several = _open_node_lines(connection, search), False
    lines = source.read_first(tail)
    if follow:
        lines = _Follower(source).read_lines(lines, tail)
    form = _Form(timestamps=timestamps, replica=several, terminal=sys.stdout.isatty(), system=job is None)
    with handle_closed_pipe():
        with suppress(KeyboardInterrupt):
            if as_json:
                _write_json(lines, as_array=not follow)
            elif not _write_text(lines, form) and form.terminal:
                click.echo("no log line matches", err=True)
            return
        sys.exit(_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Source:
    """Source of lines: ``read`` returns the lines of a search, ``ended`` is true when no more will come."""

    read: Callable[[LogSearch], Iterator[LogEntry]]
    ended: Callable[[], bool]
    search: LogSearch

    def read_first(self, tail: int | None) -> Iterator[LogEntry]:
        """Return the existing lines, or the newest ``tail`` of them, oldest first."""
        if tail is None:
            return self.read(self.search)
        newest = list(self.read(replace(self.search, order="desc", limit=tail))) if tail else []
        return iter(newest[::-1])


def _open_job_lines(connection: local.LocalConnection, text: str, search: LogSearch) -> tuple[_Source, bool]:
    """Find the lines of a job. The flag is True if it has several replicas."""
    named = connection.find(text)
    api, job, project = named
    search = replace(search, project=project)
    check_parts(named, search.replicas)
    replicas = {replica.name for replica in api.read_job(job, project).replicas}

    def ended() -> bool:
        try:
            found = api.list_jobs(JobSearch(ids=(job,), project=project)).jobs
        except UnavailableError:
            return False
        return all(one.state.finished for one in found)

    return _Source(lambda one: api.stream_logs(job, one), ended, search), len(replicas) > 1 and len(
        search.replicas
    ) != 1


def _open_node_lines(connection: local.LocalConnection, search: LogSearch) -> _Source:
    node = search.node
    if not node:
        raise click.UsageError("name a JOB, or a node with --node")
    if search.replicas or search.attempt is not None:
        raise click.UsageError("--replica and --attempt need a JOB")
    api = connection.open()
    node_search = replace(search, node=None, project=connection.project)
    return _Source(lambda one: api.stream_node_logs(node, one), lambda: False, node_search)


class _Follower:
    """Poll for new lines and yield each once."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._search = source.search
        self._printed: dict[tuple[int, str, int, str, str], None] = {}
        self._newest_ms = 0
        self._floor_ns = 0

    def read_lines(self, first: Iterable[LogEntry], tail: int | None) -> Iterator[LogEntry]:
        """Yield the stored lines (the last ``tail``, if given), then new ones until the job has ended."""
        if tail is not None:
            # Lines before the tail are not new.
            first = list(first)
            now_ms = SystemClock().now_ms()
            self._floor_ns = int(first[0].time_ns) if first else 0 if tail else now_ms * 1_000_000
            self._newest_ms = 0 if tail else now_ms
        yield from self._skip_repeated(first)
        looks, ended = 0, False
        while not ended:
            # Poll once more after the job's end was seen: its last lines have arrived by then.
            ended = looks % _STATE_EVERY == 0 and self._source.ended()
            time.sleep(_PAUSE)
            looks += 1
            with suppress(UnavailableError):
                yield from self._skip_repeated(self._source.read(self._build_next_search()))

    def _skip_repeated(self, lines: Iterable[LogEntry]) -> Iterator[LogEntry]:
        for line in lines:
            key = (int(line.time_ns), line.replica, line.attempt, line.stream, line.text)
            if key not in self._printed and key[0] >= self._floor_ns:
                self._printed[key] = None
                self._newest_ms = max(self._newest_ms, line.time)
                yield line
        oldest = (self._newest_ms - _LATE_MS) * 1_000_000
        self._printed = {key: None for key in self._printed if key[0] >= oldest}

    def _build_next_search(self) -> LogSearch:
        if not self._newest_ms:
            return self._search
        return replace(self._search, start=max(self._newest_ms - _LATE_MS, 0), since=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Format of a line."""

    timestamps: bool
    replica: bool
    terminal: bool
    system: bool = False

    def format_line(self, entry: LogEntry) -> str:
        """Format a line with its prefix, without a line end."""
        parts = []
        if self.timestamps:
            parts.append(f"{_moment(int(entry.time_ns))} ")
        if self.replica:
            attempt = f" attempt {entry.attempt}" if entry.attempt else ""
            parts.append(f"{entry.replica or '-'}{attempt} | ")
        if self.system:
            severity = f".{SEVERITIES[entry.severity]}" if entry.severity is not None else ""
            tag = f" {make_printable(entry.tag)}" if entry.tag else ""
            parts.append(f"{entry.stream} {entry.facility}{severity}{tag}: ")
        if not self.terminal:
            return "".join((*parts, entry.text))
        text = make_colours_printable(entry.text)
        colour = _COLOURS.get(entry.level or "")
        if "\x1b" in text:
            text += "\x1b[0m"
        elif colour and not os.environ.get("NO_COLOR"):
            text = f"\x1b[{colour}m{text}\x1b[0m"
        return "".join((*map(make_printable, parts), text))


def _moment(time_ns: int) -> str:
    second = format_iso(time_ns // 1_000_000_000 * SECOND).removesuffix("Z")
    return f"{second}.{time_ns % 1_000_000_000:09d}Z"


def _write_text(lines: Iterable[LogEntry], form: _Form) -> int:
    """Write the lines, and return their number."""
    out, number = sys.stdout, 0
    for number, entry in enumerate(lines, 1):  # noqa: B007 - the last number is that of all lines
        out.buffer.write(form.format_line(entry).encode(errors="replace") + b"\n")
        if form.terminal:
            out.buffer.flush()
    out.buffer.flush()
    return number


def _write_json(lines: Iterable[LogEntry], *, as_array: bool) -> None:
    out, terminal = sys.stdout.buffer, sys.stdout.isatty()
    separator = b"[\n" if as_array else b""
    for entry in lines:
        encoded = msgspec.json.encode(entry)
        out.write(separator + (make_json_printable(encoded.decode()).encode() if terminal else encoded))
        separator = b",\n" if as_array else b""
        if not as_array:
            out.write(b"\n")
            out.flush()
    if as_array:
        out.write(b"\n]\n" if separator == b",\n" else b"[]\n")
    out.flush()
