"""``jobmeter jobs``: lists the jobs of the server, running jobs first."""

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
from jobmeter.cli.options import choice, examples, since_option
from jobmeter.cli.output import console, duration, moment, print_json
from jobmeter.cli.resource_columns import began
from jobmeter.client.api import PAGE, Api
from jobmeter.client.bodies import JobSummary
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.job import Job, JobState
from jobmeter.model.nearest import choices
from jobmeter.model.quantity import quantity
from jobmeter.model.time import SystemClock, parse_duration

SHOWN = 20
"""Default number of jobs in the table."""
_USED = ("mean cpu", "peak memory", "mean gpu")
_FINDING = "finding"
_SPARE = ("user", "type", "start", "peak memory", "mean cpu", "mean gpu", "name", "duration")
"""Columns that a narrow terminal drops, in this order."""
FIRST_STEP = "no jobs yet: `jobmeter demo` shows one; yours: `jobmeter run -- COMMAND`"

_GROUPS = {
    "Filters": ("states", "types", "users", "name", "findings", "severities", "since", "project"),
    "Output": ("limit", "as_json"),
    "Connection": WHICH_SERVER,
}


@click.command(
    cls=GroupedCommand,
    groups=_GROUPS,
    epilog=examples("jobmeter jobs --state Running", "jobmeter jobs --since 7d --finding any"),
)
@click.option("--state", "states", multiple=True, type=choice(JobState), help="Only jobs in this state.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only jobs of this type, such as PyTorchJob.")
@click.option("--user", "users", multiple=True, metavar="NAME", help="Only jobs submitted by this user.")
@click.option("--name", default="", metavar="TEXT", help="Only jobs whose name or id contains this text.")
@click.option(
    "--finding",
    "findings",
    multiple=True,
    metavar="RULE",
    shell_complete=completion.rules,
    help="Only jobs with a finding of this rule, or with `any` finding.",
)
@click.option("--severity", "severities", multiple=True, type=choice(Severity), help="Only findings of this severity.")
@since_option("Created at most this long ago, such as 30m or 7d.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"Show at most N jobs (default: {SHOWN}; with --json all)."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.connection_options
def command(
    since: str | None, limit: int | None, as_json: bool, connection: local.LocalConnection, **options: object
) -> None:
    """List jobs: running, then queued, then the others, each newest first.

    Usage covers all replicas of a job; gpu is the mean of its devices. Its finding is the worst one; for a running job
    the worst open one.

    An option given several times matches any of its values.
    """
    created_from = SystemClock().now_ms() - parse_duration(since, "--since") if since else None
    given = {"project": connection.project, "created_from": created_from, **options}
    search = JobSearch(sort="active", **given)  # type: ignore[arg-type]
    api = connection.open()
    jobs = list(api.every_job(search, limit or (sys.maxsize if as_json else SHOWN)))
    if not jobs:
        _check_filters(api, search)
    if as_json:
        print_json([{**msgspec.structs.asdict(job), "finding": found} for job, found in jobs])
        return
    if not jobs:
        console().print(FIRST_STEP if search == JobSearch(sort="active") else "no job matches", markup=False)
        return
    _show(api, jobs)
    total = api.jobs(replace(search, limit=1)).total if len(jobs) == (limit or SHOWN) else len(jobs)
    if total > len(jobs):
        console().print(
            f"{len(jobs)} of {total} jobs shown: use --limit {total} for all, or filter with --state, --user, --name"
        )


def _check_filters(api: Api, search: JobSearch) -> None:
    """Raise NotFoundError, with the existing names, for a project, type or user without jobs while others have some."""
    if search.project:
        local.project_of(api, search.project)
    for kind, names in (("type", search.types), ("user", search.users)):
        unused = [name for name in names if not api.jobs(_only(search, kind, name)).jobs]
        others = {getattr(job, kind) for job in api.jobs(JobSearch(project=search.project, limit=PAGE)).jobs} - {""}
        if unused and others:
            raise NotFoundError(f"no job has the {kind} {unused[0]!r}{choices(unused[0], others)}", kind)


def _only(search: JobSearch, kind: str, name: str) -> JobSearch:
    return JobSearch(project=search.project, limit=1, **{f"{kind}s": (name,)})  # type: ignore[arg-type]


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
        # List a job even if it was deleted meanwhile or is too large to be summarised in time.
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
