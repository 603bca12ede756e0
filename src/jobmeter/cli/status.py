"""``jobmeter status``: shows the state of the server."""

from collections.abc import Iterator

import click

from jobmeter.cli import local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import (
    build_console,
    escape_cell,
    format_count,
    format_duration,
    format_time,
    print_hanging,
    print_json,
)
from jobmeter.model.answers import DamagedBody, SchedulerStatus, Status
from jobmeter.model.quantity import format_quantity


@define_verb("jobmeter status", "jobmeter status --json")
@click.option("--json", "as_json", is_flag=True, help="The server's answer, an object.")
@local.server_options
def command(as_json: bool, connection: local.LocalConnection) -> None:
    """Show the state of the server: sizes, active requests, damaged data, shards, replicas, schedulers of clusters."""
    api = connection.open()
    status = api.read_status()
    if as_json:
        print_json(status)
        return
    out = build_console()
    out.print(f"[bold]{escape_cell(api.transport.server)}[/]  Jobmeter {escape_cell(status.version)}")
    for name, text in list_facts(status):
        print_hanging(out, f"  {name:<13}", escape_cell(text), 15)


def list_facts(status: Status) -> Iterator[tuple[str, str]]:
    """Yield the lines of a status, (name, text)."""
    yield "uptime", format_duration(round(status.uptime_seconds) * 1000)
    yield "kernel", status.kernel
    yield "processes", "1" if status.processes == 1 else f"1 and {format_count(status.processes - 1, 'worker')}"
    for name, rows in status.rows.items():
        size = status.bytes.get(name)
        yield name, format_count(rows, "row") + ("" if size is None else f", {format_quantity(size, 'By')}")
    for name, size in status.bytes.items():
        if name not in status.rows:
            yield name, format_quantity(size, "By")
    yield "in memory", ", ".join(_in_memory(name, number) for name, number in status.window.items()) or "nothing"
    yield "queued", format_quantity(status.queue_bytes, "By")
    yield "active", ", ".join(f"{lane} {number}" for lane, number in status.work.items())
    yield "rolled up", "not yet" if status.rolled_until is None else f"until {format_time(status.rolled_until)} UTC"
    if status.role:
        yield "role", status.role
    for part in status.damaged:
        yield "damaged", _describe_damage(part)
    for name, up in status.shards.items():
        yield "shard", f"{name}: {'ok' if up else 'not reachable, its rows are missing above'}"
    for name, complete in status.replicas.items():
        yield "replica", f"{name}: {'ok' if complete else 'not reachable, or not repaired yet'}"
    for scheduler in status.schedulers:
        yield "scheduler", _scheduler(scheduler)


def _in_memory(name: str, number: int) -> str:
    """Format a figure of the samples in memory: ``series 553``, ``1.1 MiB``, ``2h``."""
    if name == "bytes":
        return format_quantity(number, "By")
    return format_duration(number * 1000) if name == "seconds" else f"{name} {number:,}"


def _scheduler(one: SchedulerStatus) -> str:
    name = f"{one.kind} of cluster {one.cluster}"
    if not one.problem:
        return f"{name}: ok, last report at {format_time(one.heard)} UTC"
    since = "" if one.since is None else f" since {format_time(one.since)} UTC"
    return f"{name}: jobs are not up to date{since}: {one.problem}"


def _describe_damage(part: DamagedBody) -> str:
    span = "" if part.start is None else f", {format_time(part.start)} to {format_time(part.end)}"
    rows = "" if part.rows is None else f", {'at most ' if part.at_most else ''}{format_count(part.rows, 'row')} lost"
    return f"{part.table}/{part.part}: {part.reason}{rows}{span}"
