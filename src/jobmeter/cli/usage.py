"""``jobmeter usage``: shows the calls of a month, the free part, and the cost of the rest."""

import csv
import sys

import click

from jobmeter.cli import local
from jobmeter.cli.listing import show_listing
from jobmeter.cli.options import examples, one_format
from jobmeter.cli.output import console, counted, piped, print_json
from jobmeter.model.answers import UsageBody, UsageRow

_COLUMNS = ("account", "api", "operation", "calls", "failed", "free left", "price", "cost")
_NUMBERS = ("calls", "failed", "free left", "price", "cost")


@click.command(epilog=examples("jobmeter usage", "jobmeter usage --month 2026-11 --output csv"))
@click.option("--month", metavar="YYYY-MM", help="The month, in the server's time zone. Default: the current month.")
@click.option(
    "--output",
    "form",
    type=click.Choice(("table", "json", "csv")),
    help="The format; a table by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
@local.connection_options
def command(month: str | None, form: str | None, as_json: bool, connection: local.LocalConnection) -> None:
    """Show the calls of a month by account, API and operation: total, failed, free, cost.

    An account is a project; --project shows only that one. JSON and CSV have exact amounts.
    """
    form = one_format("--output", form, as_json=as_json)
    report = connection.open().usage(month, connection.project)
    with piped():
        if form == "json":
            print_json(report)
        elif form == "csv":
            _csv(report)
        else:
            _table(report)


def _csv(report: UsageBody) -> None:
    names = UsageRow.__struct_fields__
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("month", *names))
    for line in report.usage:
        writer.writerow((report.month, *(getattr(line, name) for name in names)))


def _table(report: UsageBody) -> None:
    out = console()
    out.print(f"{report.month} in {report.time_zone}, in {report.currency}", markup=False)
    if not report.usage:
        out.print("Nothing was called.")
        return
    several = len({line.account for line in report.usage}) > 1
    columns = _COLUMNS if several else _COLUMNS[1:]
    rows = [_row(line)[0 if several else 1 :] for line in report.usage]
    show_listing(out, columns, rows, right=_NUMBERS, spare=("price", "failed", "api"))
    unpriced = sum(line.pricing == "unpriced" for line in report.usage)
    rest = f"; {counted(unpriced, 'operation')} without a price" if unpriced else ""
    out.print(
        f"{counted(report.calls, 'call')}, {report.failed:,} failed: {report.cost} {report.currency}{rest}",
        markup=False,
    )


def _row(line: UsageRow) -> tuple[str, ...]:
    free_left = "unlimited" if line.free_left is None else f"{line.free_left:,}" if line.free else "-"
    return (
        line.account,
        line.api,
        line.operation,
        f"{line.calls:,}",
        f"{line.failed:,}",
        free_left,
        line.unit_price or "-",
        "unpriced" if line.pricing == "unpriced" else line.cost or "-",
    )
