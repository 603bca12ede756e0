"""``jobmeter diagnose``: why a job is slow, or why it died."""

from collections.abc import Sequence

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.findings import headline, print_finding
from jobmeter.cli.node_tasks import check_nodes, list_tasks, show_task
from jobmeter.cli.output import console, print_json
from jobmeter.model.time import parse_duration

__all__ = ["command", "headline"]


@click.command(short_help="Tell why a job is slow, or why it died.")
@click.argument("job", required=False, shell_complete=completion.jobs)
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Check this node instead; may be repeated.")
@click.option("--cluster", default="", metavar="NAME", help="The cluster of the nodes.")
@click.option("--since", default="1h", show_default=True, help="How far back to read stored data of nodes.")
@click.option("--task", metavar="ID", help="Show a diagnostic task that was made before.")
@click.option("--tasks", "listed", is_flag=True, help="List the newest diagnostic tasks.")
@click.option("--json", "as_json", is_flag=True, help="An array of findings; of nodes and tasks the whole task.")
@local.connection_options
def command(
    *,
    job: str | None,
    nodes: Sequence[str],
    cluster: str,
    since: str,
    task: str | None,
    listed: bool,
    as_json: bool,
    connection: local.Connection,
) -> None:
    """Show what the diagnostic rules find in JOB: worst first, with evidence and advice.

    With --node the agents of those nodes check them (disks, links, GPUs, clock, waiting processes, memory), and rules
    evaluate what is stored of them.
    """
    if sum((job is not None, bool(nodes), task is not None, listed)) != 1:
        raise click.UsageError("give one of JOB, --node, --task and --tasks")
    if job is None:
        api = connection.open()
        if listed:
            list_tasks(api, connection.project, as_json=as_json)
        elif task is not None:
            show_task(api.task(task), as_json=as_json)
        else:
            back_ms = parse_duration(since, "--since")
            show_task(check_nodes(api, list(nodes), cluster, connection.project, back_ms), as_json=as_json)
        return
    named = connection.find(job)
    findings = named.api.findings(named.id, named.project)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in findings])
        return
    out = console()
    if not findings:
        out.print("no rule found anything", markup=False)
    for one in findings:
        print_finding(out, one)
