"""``jobmeter import``: imports samples and job records from files, as fast as the server accepts them."""

import importlib.util
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from jobmeter.cli import local
from jobmeter.cli.options import build_number_option, define_verb
from jobmeter.cli.output import build_console, format_count, format_duration, format_time, print_json
from jobmeter.client.api import Api
from jobmeter.errors import ConfigurationError, InvalidRequestError, JobmeterError
from jobmeter.model.time import SECOND

if TYPE_CHECKING:
    from jobmeter.cli.loading.load import ImportPlan, Tally
    from jobmeter.cli.loading.send import SentTotals

_REASONS = {
    "expired": "older than the project's retention; raise it with JOBMETER_RETENTION_RAW_DAYS at the server, or for a "
    "project with PUT /api/jobmeter/v1/projects/PROJECT/retention",
    "future": "further ahead of the server's clock than it allows; check the clock and that times are milliseconds",
}
_SECONDS = "the newest time is in 1970: are the times in seconds? Use milliseconds or ISO 8601"


@define_verb(
    "jobmeter import samples.csv",
    "jobmeter import --dry-run samples.parquet jobs.jsonl",
    groups={"Input": ("form", "batch_rows", "skip_bad", "dry_run")},
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "form",
    type=click.Choice(("csv", "jsonl", "parquet", "wandb")),
    help="Format of the files (default: by name or content).",
)
@build_number_option("--batch-rows", 1, 5_000_000, 500_000, "Largest number of rows in a request.")
@click.option("--skip-bad", is_flag=True, help="Skip rows that cannot be imported, and count them.")
@click.option("--dry-run", is_flag=True, help="Read and check everything, but send nothing.")
@click.option("--json", "as_json", is_flag=True, help="The result as a JSON object.")
@local.writing_options
def command(
    files: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    connection: local.LocalConnection,
    **how: Any,  # noqa: ANN401 - further fields of a plan
) -> None:
    """Import samples and job records from CSV, JSON lines, Parquet or offline files of W&B; - is standard input.

    Columns: job_id, replica, node, device, metric, time, value and optionally cluster and project. time is ISO 8601 or
    epoch milliseconds; value is in the metric's unit, see `jobmeter catalog`. A JSON line may also be a job record: an
    object with job_id and no metric. Repeating an import changes nothing. The exit status is 1 if the server
    accepted no row.
    """
    if not all(importlib.util.find_spec(name) for name in ("numpy", "pyarrow", "zstandard")):
        raise ConfigurationError("importing needs the server extra: pip install 'jobmeter[server]'")
    from jobmeter.cli.loading.load import ImportPlan, Tally, iterate_bodies
    from jobmeter.cli.loading.send import SentTotals

    _check_files(files)
    plan, tally, totals = ImportPlan(files=files, project=connection.project or "", **how), Tally(), SentTotals()
    began = time.monotonic()
    with _progress(files) as (progress, note):
        try:
            if dry_run:
                deque(iterate_bodies(plan, tally, progress), maxlen=0)
            else:
                totals = _send(plan, tally, connection.open(), progress, note)
        except OSError as error:
            raise InvalidRequestError(
                f"{error.filename or 'a file'} cannot be read: {error.strerror or error}"
            ) from error
    result = _result(tally, totals, time.monotonic() - began)
    if as_json:
        print_json(result)
    else:
        _show(result, dry_run)
    if totals.rejected and not totals.accepted:
        sys.exit(1)


def _check_files(files: Sequence[str]) -> None:
    for name in files:
        if name != "-" and not Path(name).exists():
            raise InvalidRequestError(f"no such file: {name}", "file")
        if name != "-" and Path(name).is_dir():
            raise InvalidRequestError(f"{name} is a folder: name the files in it", "file")
    if list(files).count("-") > 1:
        raise InvalidRequestError("standard input can be read only once", "file")


def _send(
    plan: "ImportPlan", tally: "Tally", api: Api, progress: Callable[[int], None], note: Callable[[str], None]
) -> "SentTotals":
    from jobmeter.cli.loading.load import iterate_bodies
    from jobmeter.cli.loading.send import Sender

    near = urlsplit(api.transport.server).hostname in local.LOOPBACK
    plan = replace(plan, compress=not near)
    sender = Sender(api, note)
    try:
        with sender:
            for body, chunk in iterate_bodies(plan, tally, progress):
                sender.send(body, chunk)
            sender.finish()
    except JobmeterError as error:
        error.message += f" ({format_count(sender.totals.accepted, 'row')} imported before)"
        error.args = (error.message,)
        raise
    return sender.totals


def _result(tally: "Tally", totals: "SentTotals", seconds: float) -> dict[str, Any]:
    return {
        "rows": tally.rows,
        "accepted": totals.accepted,
        "records": tally.records,
        "jobs": len(tally.jobs),
        "first": tally.first_ms,
        "last": tally.last_ms,
        "skipped": tally.skipped,
        "rejected": totals.rejected,
        "seconds": round(seconds, 3),
        "rows_per_second": round(tally.rows / seconds) if seconds else 0,
    }


def _show(result: Mapping[str, Any], dry_run: bool) -> None:
    amounts = {"row": result["rows" if dry_run else "accepted"], "job record": result["records"]}
    named = [format_count(amount, what) for what, amount in amounts.items() if amount]
    counts = f"{' and '.join(named) or '0 rows'} of {format_count(result['jobs'], 'job')}"
    out = build_console()
    if dry_run:
        span = f", from {format_time(result['first'])} to {format_time(result['last'])} UTC" if result["rows"] else ""
        out.print(f"would import {counts}{span}", markup=False)
    else:
        # An import has many samples and few records, so the rate of samples alone describes its speed.
        what, total = ("rows", result["rows"]) if result["rows"] else ("records", result["records"])
        pace = (
            f"in {format_duration(round(result['seconds'] * 1000))} "
            f"({total / max(result['seconds'], 0.001):,.0f} {what}/s)"
        )
        out.print(f"imported {counts} {pace}", markup=False)
    if result["skipped"]:
        out.print(f"skipped {format_count(result['skipped'], 'bad row')}", markup=False)
    for reason, count in result["rejected"].items():
        explanation = _SECONDS if result["last"] is not None and result["last"] < SECOND * SECOND * 10_000 else ""
        explanation = explanation or _REASONS.get(reason, "see the server")
        out.print(f"rejected {format_count(count, 'row')}: {reason}: {explanation}", markup=False)


@contextmanager
def _progress(files: Sequence[str]) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Show progress: a bar on a terminal; elsewhere only the reason why a request waits."""
    if not sys.stderr.isatty():
        yield (lambda size: None), (lambda text: click.echo(f"jobmeter: {text}", err=True))  # noqa: ARG005
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    total = None if "-" in files else sum(Path(name).stat().st_size for name in files)
    columns = (TextColumn("importing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=build_console(sys.stderr), transient=True) as bar:
        task = bar.add_task("import", total=total)
        yield (lambda size: bar.advance(task, size)), (lambda text: bar.console.print(text, markup=False))
