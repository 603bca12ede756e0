"""``jobmeter metrics``: usage of a job over time, as a table with charts or as data."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import click
from click.core import ParameterSource
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.named import build_metric_option, check_metrics, check_milliseconds, check_parts
from jobmeter.cli.options import FILE, build_names_option, choose_format, define_verb, format_of, make_since_option
from jobmeter.cli.output import (
    Curve,
    build_console,
    compute_sparkline_width,
    draw_chart,
    draw_sparkline,
    format_duration,
    format_time,
    print_json,
    show_listing,
)
from jobmeter.cli.save import convert_write_errors, save
from jobmeter.client.bodies import MetricAnswer, MetricLine
from jobmeter.client.searches import MetricSearch
from jobmeter.model.quantity import format_quantity

_ENDINGS = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "table"}
WHOLE = "whole"
CHARTED = 4
"""Most lines that get a chart each; with more, each row gets a sparkline."""


_GROUPS = {
    "Values": ("metrics", "start", "end", "since", "step", "statistic"),
    "Replicas and devices": ("by", "aggregate", "replicas", "devices"),
}


@define_verb(
    "jobmeter metrics last --metric gpu.utilization",
    "jobmeter metrics train-1 --metric cpu.usage --since 1h --format csv",
    groups=_GROUPS,
)
@click.argument("job", shell_complete=completion.complete_jobs)
@build_metric_option("A name of `jobmeter catalog`.")
@click.option("--start", metavar="TIME", help="Start: ISO 8601 or epoch milliseconds (default: the job's start).")
@click.option("--end", metavar="TIME", help="End, exclusive (default: the job's end, or now).")
@make_since_option("Instead of --start: duration before the end, such as 30m or 2h.")
@click.option(
    "--step", metavar="DURATION", help="Length of a bucket, such as 15s or 5m (default: at most 240 buckets)."
)
@click.option(
    "--by",
    type=click.Choice(("replica", "device", "job")),
    default="replica",
    show_default=True,
    help="One series per replica, device or job.",
)
@build_names_option("--replica", "replicas", complete=completion.replicas, help_text="Only this replica.")
@build_names_option("--device", "devices", complete=completion.devices, help_text="Only this device, such as gpu0.")
@click.option(
    "--aggregate",
    type=click.Choice(("mean", "sum", "min", "max", WHOLE)),
    help="How replicas or devices are combined (default: mean; with --by job the sum of bytes, cores, watts).",
)
@click.option(
    "--statistic",
    type=click.Choice(("mean", "min", "max", "sum", "count", "first", "last", "increase")),
    help="Statistic of the samples in a bucket (default: mean; of a counter its rate).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "json", "csv", "parquet")),
    help="Output format (default: by the extension of --output, else a table with charts).",
)
@click.option("--raw", is_flag=True, help="Every stored sample, neither combined nor converted (default format: CSV).")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json: an array with one object per point.")
@click.option("--output", type=FILE, metavar="FILE", help="Write to this file.")
@local.connection_options
def command(
    job: str,
    metrics: tuple[str, ...],
    form: str | None,
    as_json: bool,
    raw: bool,
    output: Path | None,
    connection: local.LocalConnection,
    **options: object,
) -> None:
    """Print metrics of JOB: one series per replica, or --by device or job.

    --format csv has the columns time (epoch milliseconds), replica, device and value, one row per point; with several
    metrics the first column is metric. With --raw it has a row per stored sample, with the columns node, attempt and
    labels added if needed, and --format json prints one object per line.
    """
    form = format_of(choose_format(form, as_json=as_json), output, _ENDINGS)
    if raw:
        _check_raw(form)
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("--format parquet cannot be shown on a terminal: add --output FILE")
    check_milliseconds(options)
    named = connection.find(job)
    if not metrics:
        raise click.UsageError(_name_choices(named))
    search = _search(metrics, named.project, options)
    if raw:
        form = form or "csv"
        save(
            _check_pieces(named, search, form, named.api.stream_samples(named.id, replace(search, by=None), form)),
            output,
        )
    elif form in {"csv", "parquet"}:
        save(_check_pieces(named, search, form, iter((named.api.export(named.id, search, form),))), output)
    else:
        answer = named.api.read_metrics(named.id, search)
        missing = [metric for metric in metrics if metric not in {line.metric for line in answer.lines}]
        if not answer.lines:
            check_parts(named, search.replicas, search.devices)
            check_metrics(named, metrics)
        elif missing:
            click.echo(f"jobmeter: no samples of {', '.join(missing)}", err=True)
        _put(answer, form or "table", output)


def _check_pieces(named: local.NamedJob, search: MetricSearch, form: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a file; at its end check that the job has the metrics if the file may have no rows."""
    lines = 0
    for piece in pieces:
        lines += piece.count(b"\n")
        yield piece
    if form == "parquet" or lines <= (form == "csv"):
        check_metrics(named, search.metrics)


def _name_choices(named: local.NamedJob) -> str:
    """Build the error for a missing --metric, with the metrics that the job has."""
    measured = [metric.metric for metric in named.api.read_job(named.id, named.project).usage.metrics]
    if not measured:
        return f"Missing option '--metric'; {named.id} has no measurements yet."
    return f"Missing option '--metric'. {named.id} has: {', '.join(measured)}"


def _put(answer: MetricAnswer, form: str, output: Path | None) -> None:
    if output is None:
        _show(answer, form, sys.stdout)
        return
    with convert_write_errors(output), output.open("w", encoding="utf-8") as file:
        _show(answer, form, file)


def _search(metrics: tuple[str, ...], project: str | None, options: Mapping[str, Any]) -> MetricSearch:
    if options["by"] == "job" and options["aggregate"] is None:
        options = {**options, "aggregate": WHOLE}
    return MetricSearch(metrics=metrics, project=project, **options)


def _check_raw(form: str | None) -> None:
    if form == "table":
        raise click.UsageError("--raw cannot print a table: use --format csv, json or parquet")
    context = click.get_current_context()
    for name in ("step", "by", "aggregate", "statistic"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--raw cannot be used with --{name}: raw samples are not combined")


def _show(answer: MetricAnswer, form: str, file: IO[str]) -> None:
    if form == "json":
        print_json(list_points(answer), file)
        return
    out = build_console(file)
    if not answer.lines:
        out.print(f"no samples between {format_time(answer.start)} and {format_time(answer.end)}", markup=False)
        return
    for metric in dict.fromkeys(line.metric for line in answer.lines):
        lines = [line for line in answer.lines if line.metric == metric]
        span = f"{format_time(answer.start)} to {format_time(answer.end)} UTC"
        out.print(f"{metric} of {answer.job}, {span}, step {format_duration(answer.step)}", markup=False, style="bold")
        _print_table(out, answer, lines)
        if len(lines) <= CHARTED:
            highest = max(value for line in lines for _, value in line.points) if len(lines) > 1 else None
            for line in lines:
                drawn = draw_chart(_curve(answer, line), line.unit, room=out.width, highest=highest)
                out.print(f"\n{line.title}\n{drawn}", markup=False)
        out.print()


def list_points(answer: MetricAnswer) -> list[dict[str, Any]]:
    """List the points as objects: metric, unit, time (epoch ms), replica, node, device, rank, value."""
    return [
        {
            "metric": line.metric,
            "unit": line.unit,
            "time": time,
            "replica": line.replica,
            "node": line.node,
            "device": line.device,
            "rank": line.rank,
            "value": value,
        }
        for line in answer.lines
        for time, value in line.points
    ]


def _print_table(out: Console, answer: MetricAnswer, lines: Sequence[MetricLine]) -> None:
    charted = len(lines) <= CHARTED
    columns = ("line", "points", "mean", "min", "max", "last") + (() if charted else ("over time",))
    width, curves = compute_sparkline_width(out), [_curve(answer, line) for line in lines]
    highest = max((mean for one in curves for mean in one.average(width) if mean is not None), default=0.0)
    rows = []
    for line, curve in zip(lines, curves, strict=True):
        values = [value for _, value in line.points]
        numbers = (sum(values) / len(values), min(values), max(values), values[-1])
        row = (line.title, str(len(values)), *(format_quantity(number, line.unit) for number in numbers))
        rows.append(row if charted else (*row, draw_sparkline(curve, width, highest)))
    show_listing(out, columns, rows, right=columns[1:6], spare=("points", "last", "min", "mean"))


def _curve(answer: MetricAnswer, line: MetricLine) -> Curve:
    return Curve(line.points, answer.start, answer.end, answer.step)
