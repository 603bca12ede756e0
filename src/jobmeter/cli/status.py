"""``jobmeter status``: shows the state of the server."""

from collections.abc import Iterator

import click

from jobmeter.cli import local
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import cell, console, duration, format_count, moment, print_hanging, print_json
from jobmeter.model.answers import DamagedBody, SchedulerStatus, Status
from jobmeter.model.quantity import quantity


@define_verb("jobmeter status", "jobmeter status --json")
@click.option("--json", "as_json", is_flag=True, help="The server's answer, an object.")
@local.server_options
def command(as_json: bool, connection: local.LocalConnection) -> None:
    """Show the state of the server: sizes, work, damaged data, shards, replicas, and schedulers of clusters."""
    api = connection.open()
    status = api.status()
    if as_json:
        print_json(status)
        return
    out = console()
    out.print(f"[bold]{cell(api.transport.server)}[/]  Jobmeter {cell(status.version)}")
    for name, text in facts(status):
        print_hanging(out, f"  {name:<13}", cell(text), 15)


def facts(status: Status) -> Iterator[tuple[str, str]]:
    """Yield each line of a state: its name and its text."""
    yield "up for", duration(round(status.uptime_seconds) * 1000)
    yield "kernel", status.kernel
    yield "processes", "1" if status.processes == 1 else f"1 and {format_count(status.processes - 1, 'worker')}"
    for name, rows in status.rows.items():
        size = status.bytes.get(name)
        yield name, format_count(rows, "row") + ("" if size is None else f", {quantity(size, 'By')}")
    for name, size in status.bytes.items():
        if name not in status.rows:
            yield name, quantity(size, "By")
    yield "in memory", ", ".join(_in_memory(name, number) for name, number in status.window.items()) or "nothing"
    yield "waiting", quantity(status.queue_bytes, "By")
    yield "under way", ", ".join(f"{lane} {number}" for lane, number in status.work.items())
    yield "rolled up", "not yet" if status.rolled_until is None else f"until {moment(status.rolled_until)} UTC"
    if status.role:
        yield "role", status.role
    for part in status.damaged:
        yield "damaged", _describe_damage(part)
    for name, up in status.shards.items():
        yield "shard", f"{name}: {'ok' if up else 'away, its rows are in no size above'}"
    for name, complete in status.replicas.items():
        yield "replica", f"{name}: {'ok' if complete else 'away, or not repaired yet'}"
    for scheduler in status.schedulers:
        yield "scheduler", _scheduler(scheduler)


def _in_memory(name: str, number: int) -> str:
    """Format a figure of the samples in memory: ``series 553``, ``1.1 MiB``, ``2h``."""
    if name == "bytes":
        return quantity(number, "By")
    return duration(number * 1000) if name == "seconds" else f"{name} {number:,}"


def _scheduler(one: SchedulerStatus) -> str:
    name = f"{one.kind} of cluster {one.cluster}"
    if not one.problem:
        return f"{name}: ok, last report at {moment(one.heard)} UTC"
    since = "" if one.since is None else f" since {moment(one.since)} UTC"
    return f"{name}: jobs are not up to date{since}: {one.problem}"


def _describe_damage(part: DamagedBody) -> str:
    span = "" if part.start is None else f", {moment(part.start)} to {moment(part.end)}"
    rows = "" if part.rows is None else f", {'at most ' if part.at_most else ''}{format_count(part.rows, 'row')} lost"
    return f"{part.table}/{part.part}: {part.reason}{rows}{span}"
