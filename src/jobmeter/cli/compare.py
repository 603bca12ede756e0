"""``jobmeter compare``: jobs side by side, each from its own start."""

from collections.abc import Callable, Sequence

import click
import msgspec
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.findings import format_summary
from jobmeter.cli.named import build_metric_option
from jobmeter.cli.options import define_verb
from jobmeter.cli.output import (
    Curve,
    build_console,
    draw_chart,
    escape_cell,
    format_duration,
    format_time,
    print_hanging,
    print_json,
    show_listing,
)
from jobmeter.cli.phases import show_causes, show_sentence
from jobmeter.cli.resource_columns import find_start
from jobmeter.client.api import Api
from jobmeter.errors import LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.job_answers import ComparedJob, Comparison
from jobmeter.model.phase import PhaseDifference
from jobmeter.model.quantity import format_quantity

_MOST = 10
_ABSOLUTE = {"1": (100, "points"), "Cel": (1, "°C")}
"""Units whose differences are amounts, with factor and name; others are relative."""
_TIMES = 3.0
"""Ratio from which a difference is a multiple and not a percentage."""


@define_verb("jobmeter compare train-1 train-2", "jobmeter compare train-1 last --metric gpu.utilization")
@click.argument("jobs", metavar="JOB JOB...", nargs=-1, required=True, shell_complete=completion.complete_jobs)
@build_metric_option("Also draw this metric over time.")
@click.option("--step", metavar="DURATION", help="Length of a bucket, such as 1m.")
@click.option(
    "--per",
    type=click.Choice(("job", "device")),
    default="job",
    show_default=True,
    help="Usage of the whole job, or of one device (or replica): for jobs of different sizes.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="An object: jobs, step, lines (times from each job's start), settings, differences.",
)
@local.connection_options
def command(
    jobs: Sequence[str],
    metrics: Sequence[str],
    step: str | None,
    per: str,
    as_json: bool,
    connection: local.LocalConnection,
) -> None:
    """Compare two or more jobs side by side: their durations and why these differ, mean and peak of their usage.

    The first sentence says how much longer each job took than the first one, and why: queue, start, input,
    communication, computing, a lower clock, checkpoints, restarts. The parts sum to the whole difference. Time without
    a cause is unattributed, and causes that were not measured in both jobs are named. Settings that differ (command,
    type, user, labels, limits) follow, then the worst finding of each job, and the usage of each job with its
    difference from the first one. With --metric, values over time are drawn on one scale, from the start of each job.
    """
    found = connection.find_each(jobs)
    if not 2 <= len(found) <= _MOST:
        raise click.UsageError(f"name 2 to {_MOST} different jobs, got {len(found)}")
    api, ids = found[0].api, [one.id for one in found]
    answer = api.compare(ids, metrics, step, connection.project, None if per == "job" else per)
    differences, problem = _differences(api, ids, connection.project)
    if as_json:
        print_json({**msgspec.structs.asdict(answer), "differences": differences})
        return
    out = build_console()
    for one in differences:
        show_sentence(out, one)
    if problem:
        print_hanging(out, "", f"no explanation of the difference: {escape_cell(problem)}", 2)
    _columns(out, answer)
    _findings(out, answer)
    for one in differences:
        show_causes(out, one)
    _print_use(out, answer, per)
    for name in metrics:
        _curves(out, answer, name)


def _differences(api: Api, ids: Sequence[str], project: str | None) -> tuple[list[PhaseDifference], str]:
    """Return the explanations of the server, and why it gives none."""
    try:
        return api.read_causes(ids, project), ""
    except NotFoundError:  # a server of an older release
        return [], ""
    except (LimitExceededError, QueryTimeoutError) as error:
        return [], error.message


def _columns(out: Console, answer: Comparison) -> None:
    columns: list[tuple[str, Callable[[ComparedJob], str]]] = [
        ("name", lambda one: one.job.name),
        ("state", lambda one: str(one.job.state)),
        ("start", lambda one: format_time(find_start(one.job))),
        ("duration", lambda one: format_duration(one.summary.duration_ms)),
        ("replicas", lambda one: str(one.summary.replicas)),
        ("devices", lambda one: str(one.summary.devices)),
        ("nodes", lambda one: str(one.summary.nodes)),
        ("error", lambda one: one.job.error),
    ]
    for at, one in enumerate(answer.jobs):
        out.print(f"[bold]{_letter(at)}[/]  {escape_cell(one.job.id)}")
    rows = [(name, *(pick(one) for one in answer.jobs)) for name, pick in columns]
    filled = [row for row in rows if any(text not in {"", "-", "0"} for text in row[1:])]
    out.print()
    show_listing(out, ("", *_letters(answer)), filled)
    _settings(out, answer)


def _findings(out: Console, answer: Comparison) -> None:
    """Print the worst finding of each job, and the rules of all findings."""
    if not any(one.findings for one in answer.jobs):
        return
    out.print("\nfindings", style="bold")
    for at, one in enumerate(answer.jobs):
        found = one.findings
        rules = f" [dim]({escape_cell(', '.join(found.rules))})[/]" if found and found.count > 1 else ""
        print_hanging(
            out, f"  {_letter(at)}  ", f"{escape_cell(format_summary(found, one.job.state) or 'none')}{rules}", 5
        )


def _settings(out: Console, answer: Comparison) -> None:
    """Print each setting in which the jobs differ, and the names of those that are equal."""
    equal = []
    for one in answer.settings:
        if one.equal:
            equal.append(one.name)
            continue
        out.print(f"\n{escape_cell(one.name)} differs", style="bold")
        for at, text in enumerate(one.texts):
            print_hanging(out, f"  {_letter(at)}  ", escape_cell(text or "-"), 5)
    if equal:
        out.print()
        print_hanging(out, "", f"equal settings: {escape_cell(', '.join(equal))}", 2)


def _print_use(out: Console, answer: Comparison, per: str) -> None:
    figures = ("job_mean", "job_max") if per == "job" else ("mean", "max")
    names = dict.fromkeys(metric.metric for one in answer.jobs for metric in one.summary.metrics)
    letters = _letters(answer)
    differences = [f"{letter} to A" for letter in letters[1:]]
    rows = []
    for name in names:
        for figure, text in zip(figures, ("mean", "peak"), strict=True):
            found = [one.summary.find(name) for one in answer.jobs]
            unit = next(one.unit for one in found if one is not None)
            values = [None if one is None else getattr(one, figure) for one in found]
            cells = [format_quantity(value, unit) for value in values]
            rows.append((f"{name} {text}", *cells, *(change(values[0], value, unit) for value in values[1:])))
    if rows:
        out.print()
        columns = ("used" if per == "job" else "used per device", *letters, *differences)
        show_listing(out, columns, rows, right=columns[1:], spare=differences[:0:-1])


def change(before: float | None, after: float | None, unit: str) -> str:
    """Format a difference: ``+12%``, ``x 3.4``; of a ratio in percentage points, of a temperature in degrees.

    A dash if a value is missing or nothing can be said.
    """
    if before is None or after is None:
        return "-"
    if unit in _ABSOLUTE:
        factor, name = _ABSOLUTE[unit]
        difference = round((after - before) * factor, 1)
        return f"{difference:+.1f} {name}" if difference else f"0 {name}"
    if before <= 0 or after < 0:
        return "-"
    ratio = after / before
    if ratio >= _TIMES:
        return f"x {ratio:,.1f}"
    percent = round((ratio - 1) * 100)
    return f"{percent:+d}%" if percent else "0%"


def _curves(out: Console, answer: Comparison, metric: str) -> None:
    lines = [line for line in answer.lines if line.metric == metric]
    if not lines:
        out.print(f"\n{metric}: not measured for any of these jobs", markup=False)
        return
    end = max(line.points[-1][0] for line in lines) + answer.step
    highest = max(value for line in lines for _, value in line.points)
    out.print(f"\n{metric} from each start, step {format_duration(answer.step)}", markup=False, style="bold")
    order = [one.job.id for one in answer.jobs]
    for line in lines:
        curve = Curve(line.points, 0, end, answer.step)
        drawn = draw_chart(
            curve, line.unit, height=4, room=out.width, highest=highest, ends=("0s", format_duration(end))
        )
        out.print(f"{_letter(order.index(line.job))}\n{drawn}", markup=False)


def _letter(at: int) -> str:
    return chr(ord("A") + at)


def _letters(answer: Comparison) -> list[str]:
    return [_letter(at) for at in range(len(answer.jobs))]
