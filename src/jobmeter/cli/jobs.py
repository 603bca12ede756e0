"""``jobmeter jobs``: lists the jobs of the server, running jobs first."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.findings import format_summary
from jobmeter.cli.named import build_rule_option
from jobmeter.cli.options import build_choice, build_names_option, define_verb, make_since_option
from jobmeter.cli.output import build_console, format_count, format_duration, format_time, print_json, show_listing
from jobmeter.cli.resource_columns import ALTERNATIVES, find_start
from jobmeter.client.api import PAGE, Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.job import Job, JobState
from jobmeter.model.job_answers import JobSummary
from jobmeter.model.nearest import format_choices
from jobmeter.model.quantity import format_quantity
from jobmeter.model.time import SystemClock, parse_duration

SHOWN = 20
"""Default number of jobs in the table."""
_USED = ("mean cpu", "peak memory", "mean gpu")
_FINDING = "finding"
_SPARE = ("type", "start", "project", "user", "peak memory", "mean cpu", "size", "mean gpu", "name", "duration")
"""Columns that a narrow terminal drops, in this order."""
FIRST_STEP = "no jobs yet: `jobmeter demo` shows one; yours: `jobmeter run -- COMMAND`"

_SORTS = ("active", "created", "start", "end", "duration", "name", "user", "type", "state", "project")
_LATEST_FIRST = ("active", "created", "start", "end", "duration")
"""Sorts that begin with the newest or the longest job; the others are alphabetical."""
_GROUPS = {
    "Filters": (
        *("states", "types", "users", "name", "nodes", "tags"),
        *("resource_groups", "findings", "severities", "since", "project"),
    ),
    "Output": ("sort", "limit", "as_json"),
}


@define_verb("jobmeter jobs --state Running", "jobmeter jobs --since 7d --finding any --sort duration", groups=_GROUPS)
@click.option("--state", "states", multiple=True, type=build_choice(JobState), help="Only jobs in this state.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only jobs of this type, such as PyTorchJob.")
@build_names_option("--user", "users", complete=completion.users, help_text="Only jobs submitted by this user.")
@click.option("--name", default="", metavar="TEXT", help="Only jobs whose name or id contains this text.")
@build_names_option(
    "--node", "nodes", complete=completion.nodes, help_text="Only jobs with a replica or a device on this node."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only jobs with this tag; see `jobmeter tag`.")
@build_names_option(
    "--group",
    "--resource-group",
    "resource_groups",
    complete=completion.groups,
    help_text="Only jobs of this resource group.",
)
@build_rule_option("Only jobs with a finding of this rule, or with `any` finding.")
@click.option(
    "--severity", "severities", multiple=True, type=build_choice(Severity), help="Only findings of this severity."
)
@make_since_option("Only jobs created at most this long ago, such as 30m or 7d.")
@click.option(
    "--sort",
    type=click.Choice(_SORTS),
    default="active",
    show_default=True,
    help="Sort order: newest or longest first; names alphabetically.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"Show at most N jobs (default: {SHOWN}; with --json all)."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def command(
    since: str | None, sort: str, limit: int | None, as_json: bool, connection: local.LocalConnection, **options: object
) -> None:
    """List jobs: running, then queued, then the others, each newest first.

    CPU and memory are summed over the replicas; gpu is the mean of the devices. The size is the number of devices (or
    of replicas, in a job without devices) and of nodes. The finding is the worst one; for a running job, the worst open
    one.

    An option given several times matches any of its values.
    """
    created_from = SystemClock().now_ms() - parse_duration(since, "--since") if since else None
    given = {"project": connection.project, "created_from": created_from, **options}
    order = None if sort in _LATEST_FIRST else "asc"
    search = JobSearch(sort=sort, order=order, **given)  # type: ignore[arg-type]
    api = connection.open()
    jobs = list(api.iterate_jobs(search, limit or (sys.maxsize if as_json else SHOWN)))
    if not jobs:
        _check_filters(api, search)
    if as_json:
        print_json([{**msgspec.structs.asdict(job), "finding": found} for job, found in jobs])
        return
    if not jobs:
        is_filtered = search != JobSearch(sort=sort, order=order)
        build_console().print("no job matches" if is_filtered else FIRST_STEP, markup=False)
        return
    _show(api, jobs)
    total = api.list_jobs(replace(search, limit=1)).total if len(jobs) == (limit or SHOWN) else len(jobs)
    if total > len(jobs):
        build_console().print(
            f"{len(jobs)} of {total} jobs shown: use --limit {total} for all, or filter with --state, --user, --name"
        )


def _check_filters(api: Api, search: JobSearch) -> None:
    """Raise NotFoundError, with the existing names, for a filter by a name that no job has while others exist."""
    local.check_project(api, search.project)
    for kind, names in (("type", search.types), ("user", search.users), ("resource_group", search.resource_groups)):
        unused = [name for name in names if not api.list_jobs(_search_one(search, kind, name)).jobs]
        others = {getattr(job, kind) for job in api.list_jobs(JobSearch(project=search.project, limit=PAGE)).jobs} - {
            ""
        }
        if unused and others:
            text = f"no job has the {kind.replace('_', ' ')} {unused[0]!r}{format_choices(unused[0], others)}"
            raise NotFoundError(text, kind)
    existing = {node.name for node in api.list_nodes(search.project)} if search.nodes else set()
    unknown = [name for name in search.nodes if name not in existing]
    if unknown and existing:
        raise NotFoundError(f"there is no node {unknown[0]!r}{format_choices(unknown[0], existing)}", "node")


def _search_one(search: JobSearch, kind: str, name: str) -> JobSearch:
    return JobSearch(project=search.project, limit=1, **{f"{kind}s": (name,)})  # type: ignore[arg-type]


def _show(api: Api, jobs: Sequence[tuple[Job, FindingSummary | None]]) -> None:
    with ThreadPoolExecutor(4) as pool:
        summaries = list(pool.map(lambda one: _summary(api, one[0]), jobs))
    several = len({job.project for job, _ in jobs}) > 1
    rows = [
        (*_row(job, summary, project=job.project if several else ""), format_summary(found, job.state))
        for (job, found), summary in zip(jobs, summaries, strict=True)
    ]
    columns = ("id", "name", "type", "project", "state", "user", "start", "duration", "size", *_USED, _FINDING)
    optional, right = ("type", "project", "user", "size", *_USED, _FINDING), ("duration", *_USED)
    show_listing(build_console(), columns, rows, right=right, spare=_SPARE, folded=_FINDING, optional=optional)


def _summary(api: Api, job: Job) -> JobSummary:
    try:
        return api.read_job(job.id, job.project).usage
    except JobmeterError:
        # List a job even if it was deleted meanwhile or is too large to be summarised in time.
        return JobSummary()


def _row(job: Job, summary: JobSummary, *, project: str) -> tuple[str, ...]:
    return (
        job.id,
        job.name,
        job.type,
        project,
        str(job.state),
        job.user,
        format_time(find_start(job)),
        format_duration(summary.duration_ms),
        format_size(summary),
        _format_figure(summary, "cpu.usage", "job_mean"),
        _format_figure(summary, "memory.usage", "job_max"),
        _format_figure(summary, "gpu.utilization", "job_mean"),
    )


def format_size(summary: JobSummary) -> str:
    """Format the size of a job: ``64 devices, 8 nodes``; empty for one replica without devices."""
    parts = [(summary.devices, "device")] if summary.devices else [(summary.replicas, "replica")]
    if summary.nodes > 1:
        parts.append((summary.nodes, "node"))
    return ", ".join(format_count(*part) for part in parts) if summary.devices or summary.replicas > 1 else ""


def _format_figure(summary: JobSummary, metric: str, figure: str) -> str:
    found = summary.find(metric) or summary.find(ALTERNATIVES.get(metric, ""))
    return format_quantity(getattr(found, figure), found.unit) if found else "-"
