"""``jobmeter show``: shows a job, its replicas and devices, and its usage."""

from collections.abc import Iterator
from contextlib import suppress

import click
import msgspec
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.findings import format_headline, format_origin
from jobmeter.cli.history import show_history
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import (
    Curve,
    build_console,
    compute_sparkline_width,
    draw_sparkline,
    escape_cell,
    format_count,
    format_duration,
    format_state,
    format_time,
    print_hanging,
    print_json,
    show_listing,
)
from jobmeter.cli.phases import answer_or_none, show_phases
from jobmeter.cli.reported import show_reported
from jobmeter.cli.resource_columns import find_end, find_start
from jobmeter.client.api import Api
from jobmeter.errors import NotFoundError
from jobmeter.model.annotation import Annotations
from jobmeter.model.answers import MetricSummary
from jobmeter.model.job import Job, JobState
from jobmeter.model.job_answers import JobDetail, JobSummary
from jobmeter.model.phase import JobPhases
from jobmeter.model.quality import JobQuality
from jobmeter.model.quantity import format_quantity

_OF_ONE = ("mean of one", "peak of one")
MOST_ROWS = 32
"""Most replicas or devices in a table; with more only their number is shown."""
MOST_SENTENCES = 3
"""Most sentences about the quality of a job's data."""


@define_verb("jobmeter show last", "jobmeter show train-1 --json")
@click.argument("job", shell_complete=completion.complete_jobs)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="An object: job, replicas, allocations, devices, nodes, summary, quality, phases, annotations.",
)
@local.connection_options
def command(job: str, as_json: bool, connection: local.LocalConnection) -> None:
    """Show JOB: its record, its problems, its replicas and devices, and its usage over its life.

    Usage is the sum over the replicas or devices; ratios and temperatures are means. With several replicas or
    devices, mean and peak of a single one are shown too. Sparklines begin at 0. The phases of the job (queue, start,
    training, checkpoints, restarts, end) are shown where they can be separated, and the numbers that the program
    reported. If samples are missing or late, or a clock was wrong, up to three lines report it (--json shows all). For
    a finished job the events follow, for a failed one also the end of its log.
    """
    named = connection.find(job)
    detail = named.api.read_job(named.id, named.project)
    quality = answer_or_none(lambda: named.api.read_quality(named.id, detail.job.project))
    phases = answer_or_none(lambda: named.api.read_phases(named.id, detail.job.project))
    annotations = answer_or_none(lambda: named.api.read_annotations(named.id, detail.job.project))
    if as_json:
        print_json({**_document(detail, quality, phases), "annotations": annotations})
        return
    out = build_console()
    _head(out, detail.job, detail.usage)
    _annotations(out, annotations)
    _print_missing(out, quality)
    _findings(out, named.api, detail.job)
    show_phases(out, phases)
    _replicas(out, detail)
    _devices(out, detail)
    if detail.usage.metrics:
        print_summary(out, detail.usage)
        out.print(
            f"\nover time: jobmeter metrics {detail.job.id} --metric {detail.usage.metrics[0].metric}", markup=False
        )
    else:
        out.print("no measurements yet")
    show_reported(out, named.api, detail.job)
    show_history(out, named.api, detail.job)


def _annotations(out: Console, found: Annotations | None) -> None:
    """Print the tags, and the newest notes."""
    if found is None:
        return
    if found.tags:
        out.print(f"  {'tags':<15}{escape_cell(', '.join(one.tag for one in found.tags))}")
    if len(found.notes) > MOST_SENTENCES:
        out.print(f"  {'notes':<15}{len(found.notes)}, the newest {MOST_SENTENCES}:")
    for one in found.notes[-MOST_SENTENCES:]:
        about = "" if one.time is None else f"{format_time(one.time)} UTC: "
        writer = one.author or one.by
        print_hanging(out, f"  {'note':<15}", escape_cell(f"{about}{one.text}" + f" ({writer})" * bool(writer)), 17)


def _print_missing(out: Console, quality: JobQuality | None) -> None:
    sentences = quality.sentences if quality else []
    for at, sentence in enumerate(sentences[:MOST_SENTENCES]):
        print_hanging(out, f"  {'' if at else 'data quality':<15}", escape_cell(sentence), 17)


def _findings(out: Console, api: Api, job: Job) -> None:
    """Print the findings, and a line if there are none."""
    if job.state is JobState.QUEUED:
        return
    with suppress(NotFoundError):  # servers of earlier releases have no such endpoint
        found = api.list_findings(job.id, job.project)
        if not found:
            out.print(f"  {'findings':<15}none: no rule found anything")
            return
        out.print(f"\n[bold]findings[/] (jobmeter diagnose {escape_cell(job.id)})")
        for one in found:
            print_hanging(out, "  ", format_headline(one), 4, tail=format_origin(one))


def _document(detail: JobDetail, quality: JobQuality | None, phases: JobPhases | None) -> dict[str, object]:
    return {
        "job": msgspec.structs.asdict(detail.job),
        "replicas": [msgspec.structs.asdict(replica) for replica in detail.replicas],
        "allocations": [msgspec.structs.asdict(allocation) for allocation in detail.allocations],
        "devices": detail.devices,
        "nodes": detail.nodes,
        "summary": detail.summary,
        "quality": quality,
        "phases": phases,
    }


def _head(out: Console, job: Job, summary: JobSummary) -> None:
    out.print(f"[bold]{escape_cell(job.id)}[/]  {format_state(str(job.state))}")
    length = "waiting" if job.state is JobState.QUEUED else "duration"
    facts = {
        "name": job.name,
        "type": job.type,
        "project": job.project,
        "user": job.user,
        "resource group": job.resource_group,
        "workspace": job.workspace,
        "created": _time(job.created),
        "started": _time(find_start(job)),
        "ended": _time(find_end(job) if job.state.finished else None),
        length: "" if summary.duration_ms is None else format_duration(summary.duration_ms),
        "command": job.command,
        "exit status": "" if job.exit_code is None else str(job.exit_code),
        "error": job.error,
        "state": "" if job.recorded else "not recorded, derived from the samples",
    }
    for name, value in facts.items():
        if value:
            print_hanging(out, f"  {name:<15}", escape_cell(value), 17)


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else f"{format_time(time_ms)} UTC"


def _replicas(out: Console, detail: JobDetail) -> None:
    replicas = detail.replicas
    if not replicas:
        return
    if len(replicas) > MOST_ROWS:
        nodes = f" on {format_count(len(detail.nodes), 'node')}" if detail.nodes else ""
        out.print(f"\n{format_count(len(replicas), 'replica')}{nodes} (--json lists them)")
        return
    rows = [
        (
            replica.name,
            str(replica.attempt),
            "-" if replica.rank is None else str(replica.rank),
            replica.node,
            replica.pod,
            "" if replica.state is None else str(replica.state),
            format_time(replica.start),
            "-" if replica.start is None or replica.end is None else format_duration(replica.end - replica.start),
            "-" if replica.exit_code is None else str(replica.exit_code),
            replica.reason,
        )
        for replica in replicas
    ]
    columns = ("replica", "attempt", "rank", "node", "pod", "state", "start", "duration", "exit", "reason")
    spare = ("attempt", "rank", "exit", "start", "duration", "node", "pod")
    right = ("attempt", "rank", "duration", "exit")
    out.print()
    show_listing(out, columns, rows, right=right, spare=spare, folded="reason", optional=columns)


def _devices(out: Console, detail: JobDetail) -> None:
    if not detail.devices:
        return
    if len(detail.devices) > MOST_ROWS:
        out.print(f"\n{format_count(len(detail.devices), 'device')} (--json lists them)")
        return
    rows = [
        (device.device, device.node, device.replica, "-" if device.rank is None else str(device.rank))
        for device in detail.devices
    ]
    columns = ("device", "node", "replica", "rank")
    out.print()
    show_listing(out, columns, rows, right=("rank",), spare=("rank",), optional=columns)


def print_summary(out: Console, summary: JobSummary) -> None:
    """Print the usage of a job: mean, highest, total, and a sparkline of each metric."""
    out.print()
    several = max(summary.replicas, summary.devices) > 1
    columns = ("metric", "mean", "peak", "total", *(_OF_ONE if several else ()), "over its life")
    rows = list(_rows(summary, compute_sparkline_width(out), several=several))
    show_listing(out, columns, rows, right=columns[1:-1], spare=(_OF_ONE[0], "total", _OF_ONE[1]))
    if several:
        out.print("mean, peak and total are sums over all replicas or devices of the job; ratios are averaged")
    if summary.gpu_energy_joules is not None:
        out.print(f"energy of the GPUs: {format_quantity(summary.gpu_energy_joules / 3600, 'Wh')}")


def _rows(summary: JobSummary, width: int, *, several: bool) -> Iterator[tuple[str, ...]]:
    for metric in summary.metrics:
        total = "" if metric.total is None else format_quantity(metric.total, metric.total_unit)
        of_job = (format_quantity(metric.job_mean, metric.unit), format_quantity(metric.job_max, metric.unit), total)
        of_one = (
            (format_quantity(metric.mean, metric.unit), format_quantity(metric.max, metric.unit)) if several else ()
        )
        yield (metric.metric, *of_job, *of_one, draw_sparkline(_curve(metric, summary), width))


def _curve(metric: MetricSummary, summary: JobSummary) -> Curve:
    start, step = summary.start_ms, summary.step_ms
    points = [(start + at * step, value) for at, value in enumerate(metric.points) if value is not None]
    return Curve(points, start, start + len(metric.points) * step, step)
