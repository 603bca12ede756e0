"""``jobmeter utilization``: shows allocated, used and idle device hours by project or user over time."""

import csv
import sys
from collections.abc import Iterator

import click
from rich.console import Console

from jobmeter.cli import local
from jobmeter.cli.options import choose_format, define_verb, make_since_option
from jobmeter.cli.output import build_console, format_count, format_time, handle_closed_pipe, print_json, show_listing
from jobmeter.client.searches import HoursSearch
from jobmeter.model.answers import DeviceHoursBody, DeviceHoursBucket, DeviceHoursGroup
from jobmeter.model.time import DAY, HOUR, SECOND

_NUMBERS = ("allocated", "used", "idle", "idle cost")
_EVERY = ("1h", "1d", "7d")


@define_verb("jobmeter utilization --by user", "jobmeter utilization --every 1d --since 7d --format csv")
@click.option(
    "--by",
    type=click.Choice(("project", "user")),
    default="project",
    show_default=True,
    help="Group the hours by project or by user.",
)
@click.option(
    "--every", type=click.Choice(_EVERY), help="Show each hour, day or week of each group (default: only the sums)."
)
@make_since_option("Length of the range before now, such as 12h or 7d (default: 30d).")
@click.option("--format", "form", type=click.Choice(("table", "json", "csv")), help="Output format (default: a table).")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@local.listing_options
def command(
    by: str, every: str | None, since: str | None, form: str | None, as_json: bool, connection: local.LocalConnection
) -> None:
    """Show allocated, used and idle device hours by project or user, and the cost of the idle hours.

    A device is idle after 15 minutes at 1 % or less. Groups with the most idle hours come first. JSON and CSV have
    device seconds.
    """
    form = choose_format(form, as_json=as_json)
    search = HoursSearch(by=by, every=every, since=since, project=connection.project)
    api = connection.open()
    found = api.read_device_hours(search)
    if not found.groups:
        local.check_project(api, connection.project)
    if form == "json":
        print_json(found)
        return
    with handle_closed_pipe():
        if form == "csv":
            _csv(found, every is not None)
        else:
            _table(found, every is not None, build_console())


def _rows(found: DeviceHoursBody, buckets: bool) -> Iterator[tuple[DeviceHoursGroup, str, DeviceHoursBucket]]:
    """Yield each group with its name and its buckets, or with its total."""
    for one in found.groups:
        for bucket in one.buckets if buckets else [one.total]:
            yield one, one.name, bucket
    if found.others is not None:
        for bucket in found.others.buckets if buckets else [found.others.total]:
            yield found.others, f"{found.combined} others", bucket


def _csv(found: DeviceHoursBody, buckets: bool) -> None:
    names = DeviceHoursBucket.__struct_fields__
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((found.by, *names))
    for _, name, bucket in _rows(found, buckets):
        writer.writerow((name, *(getattr(bucket, field) for field in names)))


def _table(found: DeviceHoursBody, buckets: bool, out: Console) -> None:
    out.print(f"device hours from {format_time(found.start)} to {format_time(found.end)} UTC", markup=False)
    if not found.groups:
        out.print("no job had devices in this range", markup=False)
        return
    rows = [
        (name or "-", str(one.jobs), _start(bucket, found.every), *_numbers(bucket, found.currency))
        for one, name, bucket in _rows(found, buckets)
        if bucket.allocated
    ]
    columns = (found.by, "jobs", "from", *_NUMBERS)
    shown = [0, 2, 3, 4, 5, 6] if buckets else [0, 1, 3, 4, 5, 6]
    table = [[row[at] for at in shown] for row in rows]
    show_listing(out, [columns[at] for at in shown], table, right=("jobs", *_NUMBERS), spare=("jobs", "used"))
    unpriced = sum(bucket.unpriced for _, _, bucket in _rows(found, False))
    if unpriced:
        out.print(f"{_hours(unpriced)} idle hours have no price", markup=False)
    if found.others is not None:
        out.print(f"{format_count(found.combined, found.by)} with fewer idle hours are summed as others", markup=False)


def _start(bucket: DeviceHoursBucket, every_ms: int) -> str:
    return format_time(bucket.start)[: 10 if every_ms >= DAY else 16]


def _numbers(bucket: DeviceHoursBucket, currency: str) -> tuple[str, ...]:
    cost = "-" if bucket.cost is None else f"{bucket.cost:,.2f} {currency}"
    return _hours(bucket.allocated), _hours(bucket.used), _hours(bucket.idle), cost


def _hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * SECOND / HOUR:,.2f}"
