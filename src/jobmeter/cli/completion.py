"""Shell completion of names from a running server, with a short timeout.

Starts no server and shows no errors.
"""

from collections.abc import Callable, Iterable, Sequence

import click
from click.shell_completion import CompletionItem

from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError
from jobmeter.model import catalog
from jobmeter.model.job import Job
from jobmeter.model.job_answers import JobDetail
from jobmeter.model.order import make_natural_key

MOST = 50
"""Most jobs that are offered, newest first."""
_SEARCHED = 1_000
"""Newest jobs whose users, projects and resource groups are offered."""
_PATIENCE_SECONDS = 1.0


def complete_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete ids and names of jobs, and ``last``; the help is a job's name and state."""
    found = [CompletionItem("last", help="the newest job")] if "last".startswith(incomplete) else []
    try:
        search = JobSearch(name=incomplete, project=_project(context), limit=MOST)
        for job in _api(context).list_jobs(search).jobs:
            names = dict.fromkeys((job.id, job.name))
            help_text = f"{job.name} {job.state}".strip()
            found += [CompletionItem(name, help=help_text) for name in names if name.startswith(incomplete) and name]
    except JobmeterError:
        pass
    return found


def complete_metrics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete names of metrics: of the job if it has any, else of the catalogue."""
    measured = _list_measured_metrics(context)
    return [
        CompletionItem(name, help=metric.text if (metric := catalog.find(name)) else None)
        for name in (measured or catalog.CATALOG)
        if name.startswith(incomplete)
    ]


def complete_rules(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete names of diagnostic rules, and ``any``; the help is the rule's purpose."""
    try:
        found = [CompletionItem(rule.name, help=rule.sees) for rule in _api(context).list_rules()]
    except JobmeterError:
        return []
    offered = (CompletionItem("any", help="any rule"), *found)
    return [item for item in offered if str(item.value).startswith(incomplete)]


def _completer(
    names: Callable[[Api, click.Context], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Build a completer that offers each distinct name with the typed beginning, in natural order."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = set(names(_api(context), context))
        except JobmeterError:
            return []
        return [
            CompletionItem(name) for name in sorted(found, key=make_natural_key) if name and name.startswith(incomplete)
        ]

    return complete


users = _completer(lambda api, context: (job.user for job in _list_newest_jobs(api, _project(context))))
"""Users of the newest jobs."""
projects = _completer(lambda api, _: (job.project for job in _list_newest_jobs(api, None)))
"""Projects of the newest jobs."""
groups = _completer(
    lambda api, context: (
        *(node.resource_group for node in api.list_nodes(_project(context))),
        *(job.resource_group for job in _list_newest_jobs(api, _project(context))),
    )
)
"""Resource groups of nodes and of the newest jobs."""
nodes = _completer(lambda api, context: (node.name for node in api.list_nodes(_project(context))))
"""Nodes of the server."""
replicas = _completer(lambda api, context: (one.name for one in _parts(api, context).replicas))
"""Replicas of the job."""
devices = _completer(lambda api, context: (one.device for one in _parts(api, context).devices))
"""Devices of the job."""


def _list_newest_jobs(api: Api, project: str | None) -> Sequence[Job]:
    return api.list_jobs(JobSearch(project=project, limit=_SEARCHED)).jobs


def _parts(api: Api, context: click.Context) -> JobDetail:
    job = api.find(_job_of(context), _project(context))
    return api.read_job(job.id, job.project, summary=False)


def _project(context: click.Context) -> str | None:
    return context.params.get("project")


def _job_of(context: click.Context) -> str:
    # While an option's value is completed, click does not tell which word is the job.
    return context.params.get("job") or next(iter(context.args), "")


def _list_measured_metrics(context: click.Context) -> list[str]:
    named = _job_of(context)
    if not named:
        return []
    try:
        api = _api(context)
        job = api.find(named, _project(context))
        return [metric.metric for metric in api.read_job(job.id, job.project).usage.metrics]
    except JobmeterError:
        return []


def _api(context: click.Context) -> Api:
    from jobmeter.cli.local import connect

    given = context.params
    found = connect(given.get("server"), given.get("key"), given.get("data"), start=False, ca_file=given.get("ca_file"))
    return Api(found.with_timeout(_PATIENCE_SECONDS))
