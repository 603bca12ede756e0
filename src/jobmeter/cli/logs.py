"""``jobmeter logs``: what the processes of a job wrote."""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.named import in_milliseconds, known_parts
from jobmeter.cli.output import piped
from jobmeter.client.api import Api, JobSearch, LogEntry, LogSearch
from jobmeter.errors import UnavailableError
from jobmeter.model.time import SECOND, SystemClock, iso

_PAUSE = 1.0
_LATE_MS = 10 * SECOND
"""How much later than others a line may arrive and still be shown by --follow."""
_STATE_EVERY = 3
"""Looks between two questions whether the job still runs."""
_COLOURS = {"error": "31", "warning": "33", "debug": "2"}
_INTERRUPTED = 130
# Colours may reach a terminal; nothing else that it would act on.
_UNSAFE = re.compile(r"(\x1b\[[0-9;]*m)|([\x00-\x08\x0b-\x1f\x7f-\x9f])")


@click.command(short_help="Print a job's log lines.")
@click.argument("job", shell_complete=completion.jobs)
@click.option("--replica", "replicas", multiple=True, metavar="NAME", help="Only this replica.")
@click.option("--attempt", type=click.IntRange(0), metavar="N", help="Only this attempt of the replicas, from 0.")
@click.option("--stream", metavar="NAME", help="Only this stream: stdout or stderr.")
@click.option("--level", metavar="LEVEL", help="Only lines of this level or above: debug, info, warning, error.")
@click.option("--contains", metavar="TEXT", help="Only lines that hold this text, in any case.")
@click.option("--start", metavar="TIME", help="ISO 8601 or epoch milliseconds.")
@click.option("--end", metavar="TIME", help="The same, exclusive.")
@click.option("--since", metavar="LENGTH", help="Instead of --start: this long before the end or now, such as 1h.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the newest N lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the job has ended.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time in UTC.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects; with --follow an object a line.")
@local.connection_options
def command(
    job: str,
    tail: int | None,
    follow: bool,
    timestamps: bool,
    as_json: bool,
    connection: local.Connection,
    **options: object,
) -> None:
    """Print what the processes of JOB wrote, oldest first; of several replicas each line begins with its own."""
    if follow and options["end"] is not None:
        raise click.UsageError("--follow and --end exclude each other")
    for option in ("start", "end"):
        in_milliseconds(options[option], f"--{option}")
    api, job, project = connection.find(job)
    replicas = api.job(job, project).replicas
    search = LogSearch(project=project, **options)  # type: ignore[arg-type]
    known_parts(local.Found(api, job, project), search.replicas)
    several = len({replica.name for replica in replicas}) > 1 and len(search.replicas) != 1
    lines = _lines(api, job, search, tail)
    if follow:
        lines = _Follower(api, job, search).lines(lines, tail)
    with piped():
        with suppress(KeyboardInterrupt):
            if as_json:
                _write_json(lines, as_array=not follow)
            else:
                _write_text(lines, _Form(timestamps=timestamps, replica=several, terminal=sys.stdout.isatty()))
            return
        sys.exit(_INTERRUPTED)


def _lines(api: Api, job: str, search: LogSearch, tail: int | None) -> Iterator[LogEntry]:
    if tail is None:
        return api.logs(job, search)
    newest = list(api.logs(job, replace(search, order="desc", limit=tail))) if tail else []
    return iter(newest[::-1])


class _Follower:
    """Asks again and again for what is new; a line is told once."""

    def __init__(self, api: Api, job: str, search: LogSearch) -> None:
        self._api = api
        self._job = job
        self._search = search
        self._seen: dict[tuple[int, str, int, str, str], None] = {}
        self._newest_ms = 0
        self._floor_ns = 0

    def lines(self, first: Iterable[LogEntry], tail: int | None) -> Iterator[LogEntry]:
        """The lines there are, ``tail`` of them where that is given, then new ones until the job has ended."""
        if tail is not None:
            # What is older than the tail is not new.
            first = list(first)
            now_ms = SystemClock().now_ms()
            self._floor_ns = int(first[0].time_ns) if first else 0 if tail else now_ms * 1_000_000
            self._newest_ms = 0 if tail else now_ms
        yield from self._fresh(first)
        looks, ended = 0, False
        while not ended:
            # The last look comes after the job is known to have ended: what it wrote last has arrived by then.
            ended = looks % _STATE_EVERY == 0 and self._ended()
            time.sleep(_PAUSE)
            looks += 1
            with suppress(UnavailableError):
                yield from self._fresh(self._api.logs(self._job, self._next()))

    def _fresh(self, lines: Iterable[LogEntry]) -> Iterator[LogEntry]:
        for line in lines:
            key = (int(line.time_ns), line.replica, line.attempt, line.stream, line.text)
            if key not in self._seen and key[0] >= self._floor_ns:
                self._seen[key] = None
                self._newest_ms = max(self._newest_ms, line.time)
                yield line
        oldest = (self._newest_ms - _LATE_MS) * 1_000_000
        self._seen = {key: None for key in self._seen if key[0] >= oldest}

    def _next(self) -> LogSearch:
        if not self._newest_ms:
            return self._search
        return replace(self._search, start=max(self._newest_ms - _LATE_MS, 0), since=None)

    def _ended(self) -> bool:
        try:
            found = self._api.jobs(JobSearch(ids=(self._job,), project=self._search.project)).jobs
        except UnavailableError:
            return False
        return all(job.state.finished for job in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a line is shown."""

    timestamps: bool
    replica: bool
    terminal: bool

    def line(self, entry: LogEntry) -> str:
        """The line with what comes before it, without its end."""
        parts = []
        if self.timestamps:
            parts.append(f"{_moment(int(entry.time_ns))} ")
        if self.replica:
            attempt = f" attempt {entry.attempt}" if entry.attempt else ""
            parts.append(f"{entry.replica or '-'}{attempt} | ")
        if not self.terminal:
            return "".join((*parts, entry.text))
        text = _UNSAFE.sub(lambda found: found[1] or "\ufffd", entry.text)
        colour = _COLOURS.get(entry.level or "")
        if "\x1b" in text:
            text += "\x1b[0m"
        elif colour and not os.environ.get("NO_COLOR"):
            text = f"\x1b[{colour}m{text}\x1b[0m"
        return "".join((*parts, text))


def _moment(time_ns: int) -> str:
    second = iso(time_ns // 1_000_000_000 * SECOND).removesuffix("Z")
    return f"{second}.{time_ns % 1_000_000_000:09d}Z"


def _write_text(lines: Iterable[LogEntry], form: _Form) -> None:
    out = sys.stdout
    for entry in lines:
        out.buffer.write(form.line(entry).encode(errors="replace") + b"\n")
        if form.terminal:
            out.buffer.flush()
    out.buffer.flush()


def _write_json(lines: Iterable[LogEntry], *, as_array: bool) -> None:
    out = sys.stdout.buffer
    separator = b"[\n" if as_array else b""
    for entry in lines:
        out.write(separator + msgspec.json.encode(entry))
        separator = b",\n" if as_array else b""
        if not as_array:
            out.write(b"\n")
            out.flush()
    if as_array:
        out.write(b"\n]\n" if separator == b",\n" else b"[]\n")
    out.flush()
