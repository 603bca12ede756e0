"""Shell completion of jobs, metrics and rules from a running server, with a short timeout.

Starts no server and shows no errors.
"""

import click
from click.shell_completion import CompletionItem

from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch
from jobmeter.errors import JobmeterError
from jobmeter.model import catalog

MOST = 50
"""Most jobs that are offered, newest first."""
_PATIENCE_SECONDS = 1.0


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete ids and names of jobs, and ``last``; the help is a job's name and state."""
    found = [CompletionItem("last", help="the newest job")] if "last".startswith(incomplete) else []
    try:
        search = JobSearch(name=incomplete, project=context.params.get("project"), limit=MOST)
        for job in _api(context).jobs(search).jobs:
            names = dict.fromkeys((job.id, job.name))
            help_text = f"{job.name} {job.state}".strip()
            found += [CompletionItem(name, help=help_text) for name in names if name.startswith(incomplete) and name]
    except JobmeterError:
        pass
    return found


def metrics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete names of metrics: of the job if it has any, else of the catalogue."""
    measured = _measured(context)
    return [
        CompletionItem(name, help=metric.text if (metric := catalog.find(name)) else None)
        for name in (measured or catalog.CATALOG)
        if name.startswith(incomplete)
    ]


def rules(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Complete names of diagnostic rules, and ``any``; the help is the rule's purpose."""
    try:
        found = [CompletionItem(rule.name, help=rule.sees) for rule in _api(context).rules()]
    except JobmeterError:
        return []
    offered = (CompletionItem("any", help="whatever rule"), *found)
    return [item for item in offered if str(item.value).startswith(incomplete)]


def _measured(context: click.Context) -> list[str]:
    # While an option's value is completed, click does not tell which word is the job.
    named = context.params.get("job") or next(iter(context.args), None)
    if not named:
        return []
    try:
        api = _api(context)
        job = api.find(named, context.params.get("project"))
        return [metric.metric for metric in api.job(job.id, job.project).summary.metrics]
    except JobmeterError:
        return []


def _api(context: click.Context) -> Api:
    from jobmeter.cli.local import connect

    given = context.params
    found = connect(given.get("server"), given.get("key"), given.get("data"), start=False, ca_file=given.get("ca_file"))
    return Api(found.with_timeout(_PATIENCE_SECONDS))
