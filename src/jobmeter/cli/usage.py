"""``jobmeter usage``: shows the calls of a month, the free part, and the cost of the rest."""

import csv
import sys
from pathlib import Path
from typing import IO

import click
from rich.console import Console

from jobmeter.cli import local
from jobmeter.cli.options import FILE, choose_format, define_verb, format_of
from jobmeter.cli.output import build_console, format_count, handle_closed_pipe, print_json, show_listing
from jobmeter.cli.save import convert_write_errors
from jobmeter.model.answers import UsageBody, UsageRow

_COLUMNS = ("account", "api", "operation", "calls", "failed", "free left", "price", "cost")
_ENDINGS = {".csv": "csv", ".json": "json", ".txt": "table"}
_NUMBERS = ("calls", "failed", "free left", "price", "cost")


@define_verb("jobmeter usage", "jobmeter usage --month 2026-11 --format csv")
@click.option("--month", metavar="YYYY-MM", help="Month in the server's time zone (default: the current month).")
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "json", "csv")),
    help="Output format (default: by the extension of --output, else a table).",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file.")
@local.listing_options
def command(
    month: str | None, form: str | None, as_json: bool, output: Path | None, connection: local.LocalConnection
) -> None:
    """Show the API calls of a month and their cost, by account, API and operation.

    An account is a project; --project shows only that one. JSON and CSV have exact amounts.
    """
    form = format_of(choose_format(form, as_json=as_json), output, _ENDINGS)
    report = connection.open().read_usage(month, connection.project)
    if output is None:
        with handle_closed_pipe():
            _show(report, form, sys.stdout)
        return
    with convert_write_errors(output), output.open("w", encoding="utf-8") as file:
        _show(report, form, file)


def _show(report: UsageBody, form: str | None, file: IO[str]) -> None:
    if form == "json":
        print_json(report, file)
    elif form == "csv":
        _csv(report, file)
    else:
        _table(report, build_console(file))


def _csv(report: UsageBody, file: IO[str]) -> None:
    names = UsageRow.__struct_fields__
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("month", *names))
    for line in report.usage:
        writer.writerow((report.month, *(getattr(line, name) for name in names)))


def _table(report: UsageBody, out: Console) -> None:
    out.print(f"{report.month} in {report.time_zone}, in {report.currency}", markup=False)
    if not report.usage:
        out.print("no calls in this month")
        return
    several = len({line.account for line in report.usage}) > 1
    columns = _COLUMNS if several else _COLUMNS[1:]
    rows = [_row(line)[0 if several else 1 :] for line in report.usage]
    show_listing(out, columns, rows, right=_NUMBERS, spare=("price", "failed", "api"))
    unpriced = sum(line.pricing == "unpriced" for line in report.usage)
    rest = f"; {format_count(unpriced, 'operation')} without a price" if unpriced else ""
    out.print(
        f"{format_count(report.calls, 'call')}, {report.failed:,} failed: {report.cost} {report.currency}{rest}",
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
