"""``jobmeter diagnose``: finds out why a job is slow or failed."""

from collections.abc import Sequence
from threading import Event

import click
from click.core import ParameterSource
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.findings import print_finding
from jobmeter.cli.options import build_names_option, define_verb, make_since_option
from jobmeter.cli.output import (
    build_console,
    escape_cell,
    format_count,
    format_state,
    format_time,
    print_json,
    show_listing,
)
from jobmeter.cli.process_table import print_processes
from jobmeter.cli.stacks import print_stacks
from jobmeter.client.api import Api
from jobmeter.model.task import CheckStatus, DiagnosticTask, NewTask, NodeAnswer, TaskState, TaskType, Verdict
from jobmeter.model.time import SECOND, SystemClock, parse_duration

_POLL_SECONDS = 0.5
_GRACE_MS = 30_000
"""Time after the task's own deadline, in milliseconds, at which waiting for it ends."""
_LISTED = 100
_STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "yellow",
    CheckStatus.CRITICAL: "bold red",
    CheckStatus.UNAVAILABLE: "dim",
}
_VERDICTS = {Verdict.HEALTHY: "green", Verdict.FAULT: "bold red", Verdict.UNKNOWN: "yellow"}


_GROUPS = {
    "Nodes": ("nodes", "cluster", "since"),
    "Diagnostic tasks": ("stacks", "processes", "task", "listed"),
}


@define_verb("jobmeter diagnose last", "jobmeter diagnose --node node-1 --since 2h", groups=_GROUPS)
@click.argument("job", required=False, shell_complete=completion.complete_jobs)
@build_names_option("--node", "nodes", complete=completion.nodes, help_text="Check this node; may be repeated.")
@click.option("--cluster", default="", metavar="NAME", help="The cluster of the nodes.")
@make_since_option("With --node: how far back stored data is read, such as 1h.", default="1h", show_default=True)
@click.option("--stacks", is_flag=True, help="Collect the stacks of the ranks of JOB now, and compare them.")
@click.option("--processes", is_flag=True, help="List the busiest processes of JOB or of the nodes now.")
@click.option("--task", metavar="ID", help="Show an earlier diagnostic task.")
@click.option("--tasks", "listed", is_flag=True, help="List the newest diagnostic tasks.")
@click.option(
    "--json", "as_json", is_flag=True, help="An array of findings; for nodes, stacks and tasks the whole task."
)
@local.connection_options
def command(  # noqa: PLR0913 - one for each option
    *,
    job: str | None,
    nodes: Sequence[str],
    cluster: str,
    since: str,
    stacks: bool,
    processes: bool,
    task: str | None,
    listed: bool,
    as_json: bool,
    connection: local.LocalConnection,
) -> None:
    """Show the findings of the diagnostic rules about JOB, the worst first, with evidence and advice.

    With --node, agents check the nodes (disks, links, GPUs, clock, blocked processes, memory), and rules evaluate the
    nodes' stored data. With --stacks, the agents of the running JOB, or its `jobmeter run`, collect the stacks and
    states of its ranks, and the answer names the rank that the others wait for. No process is stopped. With
    --processes, they list the ten processes with the most processor time, memory and storage traffic. These three need
    a key with the role writer.
    """
    if sum((job is not None, bool(nodes), task is not None, listed)) != 1:
        raise click.UsageError("give one of JOB, --node, --task and --tasks")
    _check_options(job, nodes, stacks=stacks, processes=processes)
    kind = TaskType.PROCESSES if processes else TaskType.STACKS if stacks else TaskType.NODE
    if job is None:
        api, project, end = connection.open(), connection.project, SystemClock().now_ms()
        if listed:
            _list_tasks(api, project, as_json=as_json)
        elif task is not None:
            _show_task(api.read_task(task), as_json=as_json)
        else:
            start = end - parse_duration(since, "--since")
            about = NewTask(type=kind, nodes=list(nodes), cluster=cluster, project=project, start=start, end=end)
            _run_task(api, about, as_json=as_json)
        return
    named = connection.find(job)
    if stacks or processes:
        _run_task(named.api, NewTask(type=kind, job=named.id, project=named.project), as_json=as_json)
        return
    findings = named.api.list_findings(named.id, named.project)
    if as_json:
        print_json(findings)
        return
    out = build_console()
    if not findings:
        out.print("no rule found anything", markup=False)
    for one in findings:
        print_finding(out, one)


def _check_options(job: str | None, nodes: Sequence[str], *, stacks: bool, processes: bool) -> None:
    """Raise UsageError for options that do not fit what is diagnosed."""
    if stacks and job is None:
        raise click.UsageError("--stacks needs a JOB")
    if processes and (stacks or not (job or nodes)):
        raise click.UsageError("--processes needs a JOB or --node, and no --stacks")
    given = click.get_current_context().get_parameter_source("since")
    if not nodes and given is not ParameterSource.DEFAULT:
        raise click.UsageError("--since needs --node: the findings of a job cover its whole life")


def _run_task(api: Api, new_task: NewTask, *, as_json: bool) -> None:
    """Create a task, wait for its end, and print it; unfinished if the server does not finish it."""
    task = api.create_task(new_task)
    seconds = (task.deadline - task.created) // SECOND
    click.echo(f"waiting at most {seconds} s for the agents of {format_count(len(task.nodes), 'node')}", err=True)
    clock, pause = SystemClock(), Event()
    give_up = clock.monotonic() + (task.deadline - task.created + _GRACE_MS) / 1000
    while task.state in {TaskState.WAITING, TaskState.RUNNING} and clock.monotonic() < give_up:
        pause.wait(_POLL_SECONDS)
        task = api.read_task(task.id)
    _show_task(task, as_json=as_json)


def _show_task(task: DiagnosticTask, *, as_json: bool) -> None:
    """Print a task: each node with its checks, the findings, and warning events."""
    if as_json:
        print_json(task)
        return
    out = build_console()
    if task.type is TaskType.STACKS:
        print_stacks(out, task)
        return
    if task.type is TaskType.PROCESSES:
        print_processes(out, task)
        return
    verdict = f"[{_VERDICTS[task.verdict]}]{task.verdict}[/]" if task.verdict else format_state(str(task.state))
    out.print(f"[bold]{escape_cell(task.id)}[/]  {verdict}  {escape_cell(task.message)}")
    out.print(f"range {format_time(task.start)} to {format_time(task.end)} UTC")
    for answer in task.answers:
        _print_answer(out, answer)
    for event in task.events:
        out.print(
            f"  {format_time(event.time)} {escape_cell(event.node)} {escape_cell(event.reason)}: "
            f"{escape_cell(event.message)}"
        )
    for one in task.findings:
        print_finding(out, one)
    if not task.findings:
        out.print("no rule found anything in the stored data", markup=False)


def _list_tasks(api: Api, project: str | None, *, as_json: bool) -> None:
    """Print the newest tasks."""
    tasks = api.list_tasks(_LISTED, project)
    if as_json:
        print_json(tasks)
        return
    columns = ("task", "type", "state", "verdict", "nodes", "created")
    rows = [
        (one.id, one.type, one.state, one.verdict or "", ", ".join(one.nodes), format_time(one.created))
        for one in tasks
    ]
    empty = "no diagnostic tasks yet: jobmeter diagnose --node NAME"
    show_listing(build_console(), columns, rows, spare=("created", "type"), folded="nodes", empty=empty)


def _print_answer(out: Console, answer: NodeAnswer) -> None:
    said = f": {escape_cell(answer.text)}" if answer.text else ""
    out.print(f"node {escape_cell(answer.node)} is [{_VERDICTS[answer.verdict]}]{answer.verdict}[/]{said}")
    for check in answer.checks:
        out.print(
            f"  [{_STYLES[check.status]}]{check.status:<12}[/]{escape_cell(check.name):<12}{escape_cell(check.text)}"
        )
