"""Numbers that the program of a job reported, for ``jobmeter show``."""

from rich.console import Console

from jobmeter.cli.output import Curve, compute_sparkline_width, draw_sparkline, show_listing
from jobmeter.cli.phases import answer_or_none
from jobmeter.client.api import Api
from jobmeter.client.searches import MetricSearch
from jobmeter.model.job import Job
from jobmeter.model.quantity import format_quantity

_PREFIX = "app."
_STEPS = ("app.step", "app.global_step", "app.iteration")
MOST_NUMBERS = 16
"""Most metrics in the table."""


def show_reported(out: Console, api: Api, job: Job) -> None:
    """Print the last values of what the program reported, with the last step; nothing without reports."""
    names = answer_or_none(lambda: api.list_metric_names(job.id, job.project)) or []
    reported = [name for name in names if name.startswith(_PREFIX)]
    if not reported:
        return
    steps = [name for name in _STEPS if name in reported][:1]
    shown = [name for name in reported if name not in steps]
    search = MetricSearch(metrics=[*steps, *shown[:MOST_NUMBERS]], by="job", statistic="last", project=job.project)
    answer = answer_or_none(lambda: api.read_metrics(job.id, search))
    if answer is None:
        return
    last = {line.metric: line.points[-1][1] for line in answer.lines if line.points}
    at = "".join(f", the last at step {last[name]:,.10g}" for name in steps if name in last)
    more = f" ({len(shown) - MOST_NUMBERS} more)" if len(shown) > MOST_NUMBERS else ""
    out.print(f"\n[bold]numbers of the program[/]{more}{at}")
    width = compute_sparkline_width(out)
    rows = [
        (
            line.metric,
            format_quantity(last[line.metric], line.unit),
            draw_sparkline(Curve(line.points, answer.start, answer.end, answer.step), width),
        )
        for line in answer.lines
        if line.metric in last and line.metric not in steps
    ]
    show_listing(out, ("metric", "last", "over its life"), rows, right=("last",))
