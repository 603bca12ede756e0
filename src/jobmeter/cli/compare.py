"""``jobmeter compare``: jobs side by side, each from its own start."""

from collections.abc import Callable, Sequence

import click
import msgspec
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.listing import show_listing
from jobmeter.cli.named import metric_option
from jobmeter.cli.options import examples
from jobmeter.cli.output import TrendColumn, cell, chart, console, duration, moment, print_json
from jobmeter.cli.phases import show_causes, show_sentence
from jobmeter.cli.resource_columns import began
from jobmeter.client.api import Api
from jobmeter.client.bodies import ComparedJob, Comparison
from jobmeter.errors import LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.phase import PhaseDifference
from jobmeter.model.quantity import quantity

_MOST = 10


@click.command(
    epilog=examples("jobmeter compare train-1 train-2", "jobmeter compare train-1 last --metric gpu.utilization")
)
@click.argument("jobs", metavar="JOB JOB...", nargs=-1, required=True, shell_complete=completion.jobs)
@metric_option("Also draw this metric over time.")
@click.option("--step", metavar="DURATION", help="Length of a bucket, such as 1m.")
@click.option("--json", "as_json", is_flag=True, help="jobs, step, lines (times from each job's start), differences.")
@local.connection_options
def command(
    jobs: Sequence[str], metrics: Sequence[str], step: str | None, as_json: bool, connection: local.LocalConnection
) -> None:
    """Compare two or more jobs side by side: their duration and why it differs, mean and peak of their usage.

    The first sentence says how much longer each took than the first one, and by what: queue, start, input,
    communication, computing, a lower clock, checkpoints, restarts. The parts sum to the whole difference. Time without
    a cause is unattributed, and a cause that was not measured in both jobs is named. With --metric, their values over
    time are drawn on one scale, each from the job's own start.
    """
    found = connection.find_each(jobs)
    if not 2 <= len(found) <= _MOST:
        raise click.UsageError(f"name 2 to {_MOST} different jobs, got {len(found)}")
    api, ids = found[0].api, [one.id for one in found]
    answer = api.compare(ids, metrics, step, connection.project)
    differences, problem = _differences(api, ids, connection.project)
    if as_json:
        print_json({**msgspec.structs.asdict(answer), "differences": differences})
        return
    out = console()
    for one in differences:
        show_sentence(out, one)
    if problem:
        out.print(f"no explanation of the difference: {cell(problem)}")
    _columns(out, answer)
    for one in differences:
        show_causes(out, one)
    _used(out, answer)
    for name in metrics:
        _curves(out, answer, name)


def _differences(api: Api, ids: Sequence[str], project: str | None) -> tuple[list[PhaseDifference], str]:
    """Return the explanations of the server, and why it gives none."""
    try:
        return api.causes(ids, project), ""
    except NotFoundError:  # a server of an older release
        return [], ""
    except (LimitExceededError, QueryTimeoutError) as error:
        return [], error.message


def _columns(out: Console, answer: Comparison) -> None:
    columns: list[tuple[str, Callable[[ComparedJob], str]]] = [
        ("name", lambda one: one.job.name),
        ("state", lambda one: str(one.job.state)),
        ("start", lambda one: moment(began(one.job))),
        ("duration", lambda one: duration(one.summary.duration_ms)),
        ("replicas", lambda one: str(one.summary.replicas)),
        ("devices", lambda one: str(one.summary.devices)),
        ("error", lambda one: one.job.error),
    ]
    for at, one in enumerate(answer.jobs):
        out.print(f"[bold]{_letter(at)}[/]  {cell(one.job.id)}")
    rows = [(name, *(pick(one) for one in answer.jobs)) for name, pick in columns]
    filled = [row for row in rows if any(text not in {"", "-", "0"} for text in row[1:])]
    out.print()
    show_listing(out, ("", *_letters(answer)), filled)


def _used(out: Console, answer: Comparison) -> None:
    names = dict.fromkeys(metric.metric for one in answer.jobs for metric in one.summary.metrics)
    rows = []
    for name in names:
        for figure, text in (("job_mean", "mean"), ("job_max", "peak")):
            found = [one.summary.find(name) for one in answer.jobs]
            cells = ["-" if one is None else quantity(getattr(one, figure), one.unit) for one in found]
            rows.append((f"{name} {text}", *cells))
    if rows:
        out.print()
        show_listing(out, ("used", *_letters(answer)), rows, right=_letters(answer))


def _curves(out: Console, answer: Comparison, metric: str) -> None:
    lines = [line for line in answer.lines if line.metric == metric]
    if not lines:
        out.print(f"\n{metric}: not measured for any of these jobs", markup=False)
        return
    end = max(line.points[-1][0] for line in lines) + answer.step
    highest = max(value for line in lines for _, value in line.points)
    out.print(f"\n{metric} from each start, step {duration(answer.step)}", markup=False, style="bold")
    order = [one.job.id for one in answer.jobs]
    for line in lines:
        course = TrendColumn(line.points, 0, end, answer.step)
        drawn = chart(course, line.unit, height=4, room=out.width, highest=highest, ends=("0s", duration(end)))
        out.print(f"{_letter(order.index(line.job))}\n{drawn}", markup=False)


def _letter(at: int) -> str:
    return chr(ord("A") + at)


def _letters(answer: Comparison) -> list[str]:
    return [_letter(at) for at in range(len(answer.jobs))]
