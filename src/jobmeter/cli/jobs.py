"""``jobmeter jobs``: the jobs of the server, those that run first."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.findings import summary_line
from jobmeter.cli.grouped import WHICH_SERVER, GroupedCommand
from jobmeter.cli.listing import show_listing
from jobmeter.cli.options import choice
from jobmeter.cli.output import console, duration, moment, print_json
from jobmeter.cli.use import began
from jobmeter.client.api import Api
from jobmeter.client.bodies import JobSummary
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.job import Job, JobState
from jobmeter.model.quantity import quantity
from jobmeter.model.time import SystemClock, parse_duration

SHOWN = 20
"""Jobs in the table when nobody says how many."""
_USED = ("mean cpu", "peak memory", "mean gpu")
_FINDING = "finding"
_SPARE = ("user", "type", "start", "peak memory", "mean cpu", "mean gpu", "name", "duration")
"""What a narrow terminal shows no column of, in this order."""
FIRST_STEP = "no jobs yet: jobmeter run -- python train.py"

_GROUPS = {
    "Which jobs": ("states", "types", "users", "name", "findings", "severities", "since", "project"),
    "How they are shown": ("limit", "as_json"),
    "Which server": WHICH_SERVER,
}


@click.command(short_help="List jobs.", cls=GroupedCommand, groups=_GROUPS)
@click.option("--state", "states", multiple=True, type=choice(JobState), help="Only jobs in this state.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Such as PyTorchJob.")
@click.option("--user", "users", multiple=True, metavar="NAME", help="Who submitted it.")
@click.option("--name", default="", metavar="TEXT", help="A part of the name or the id, in any case.")
@click.option(
    "--finding",
    "findings",
    multiple=True,
    metavar="RULE",
    shell_complete=completion.rules,
    help="Only jobs with a finding of this rule, or of any rule: any.",
)
@click.option("--severity", "severities", multiple=True, type=choice(Severity), help="Only findings of this severity.")
@click.option("--since", metavar="LENGTH", help="Created at most this long ago, such as 30m or 7d.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"At most this many; {SHOWN} by default, all with --json."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.connection_options
def command(
    since: str | None, limit: int | None, as_json: bool, connection: local.Connection, **options: object
) -> None:
    """List jobs: those that run, those that wait, then the others, each newest first.

    What a job used is that of its replicas together, gpu the mean of its devices. Its finding is the worst one, of a
    job that runs the worst that is open.

    An option that is given several times means any of them.
    """
    created_from = SystemClock().now_ms() - parse_duration(since, "--since") if since else None
    given = {"project": connection.project, "created_from": created_from, **options}
    search = JobSearch(sort="active", **given)  # type: ignore[arg-type]
    api = connection.open()
    if as_json:
        every = api.every_job(search, limit or sys.maxsize)
        print_json([{**msgspec.structs.asdict(job), "finding": found} for job, found in every])
        return
    jobs = list(api.every_job(search, limit or SHOWN))
    if not jobs:
        if connection.project:
            local.project_of(api, connection.project)
        console().print(FIRST_STEP if search == JobSearch(sort="active") else "no job matches", markup=False)
        return
    _show(api, jobs)
    total = api.jobs(replace(search, limit=1)).total if len(jobs) == (limit or SHOWN) else len(jobs)
    if total > len(jobs):
        console().print(
            f"{len(jobs)} of {total} jobs: --limit {total} shows all, --state, --user, --name narrow it down"
        )


def _show(api: Api, jobs: Sequence[tuple[Job, FindingSummary | None]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        summaries = list(pool.map(lambda one: _summary(api, one[0]), jobs))
    found = [summary_line(one) for _, one in jobs]
    rows: list[tuple[str, ...]] = [
        (*_row(job, summary), text) for (job, _), summary, text in zip(jobs, summaries, found, strict=True)
    ]
    columns = ("id", "name", "type", "state", "user", "start", "duration", *_USED, _FINDING)
    empty = {at for at in (-1, -2) if all(row[at] in {"-", ""} for row in rows)}
    left = [at for at in range(len(columns)) if at - len(columns) not in empty]
    shown = [[row[at] for at in left] for row in rows]
    right = ("duration", *_USED)
    show_listing(console(), [columns[at] for at in left], shown, right=right, spare=_SPARE, folded=_FINDING)


def _summary(api: Api, job: Job) -> JobSummary:
    try:
        return api.job(job.id, job.project).summary
    except JobmeterError:
        # A job that was deleted meanwhile, or one too large to sum up in time, is still listed.
        return JobSummary()


def _row(job: Job, summary: JobSummary) -> tuple[str, ...]:
    return (
        job.id,
        job.name,
        job.type,
        str(job.state),
        job.user,
        moment(began(job)),
        duration(summary.duration_ms),
        _used(summary, "cpu.usage", "job_mean"),
        _used(summary, "memory.usage", "job_max"),
        _used(summary, "gpu.utilization", "job_mean"),
    )


def _used(summary: JobSummary, metric: str, figure: str) -> str:
    found = summary.find(metric)
    return quantity(getattr(found, figure), found.unit) if found else "-"
