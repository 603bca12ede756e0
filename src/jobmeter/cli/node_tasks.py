"""Diagnostic tasks on the command line: create, wait for and show them."""

from threading import Event

import msgspec
from rich.console import Console

from jobmeter.cli.findings import print_finding
from jobmeter.cli.listing import show_listing
from jobmeter.cli.output import cell, console, moment, print_json
from jobmeter.client.api import Api
from jobmeter.model.task import CheckStatus, DiagnosticTask, NewTask, NodeAnswer, TaskState, Verdict
from jobmeter.model.time import SystemClock

_POLL_SECONDS = 0.5
_GRACE_MS = 30_000
"""How much longer than the task's own deadline its end is waited for."""
_LISTED = 100
_STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "yellow",
    CheckStatus.CRITICAL: "bold red",
    CheckStatus.UNAVAILABLE: "dim",
}
_VERDICTS = {Verdict.HEALTHY: "green", Verdict.FAULT: "bold red", Verdict.UNKNOWN: "yellow"}


def check_nodes(api: Api, nodes: list[str], cluster: str, project: str | None, back_ms: int) -> DiagnosticTask:
    """Create a task that checks nodes and wait for its end; its last state where the server does not end it."""
    now_ms = SystemClock().now_ms()
    task = api.create_task(NewTask(nodes=nodes, cluster=cluster, project=project, start=now_ms - back_ms, end=now_ms))
    clock, pause = SystemClock(), Event()
    give_up = clock.monotonic() + (task.deadline - task.created + _GRACE_MS) / 1000
    while task.state in {TaskState.WAITING, TaskState.RUNNING} and clock.monotonic() < give_up:
        pause.wait(_POLL_SECONDS)
        task = api.task(task.id)
    return task


def show_task(task: DiagnosticTask, *, as_json: bool) -> None:
    """Print a task: each node with its checks, the findings, the events that warn."""
    if as_json:
        print_json(msgspec.to_builtins(task))
        return
    out = console()
    verdict = f"[{_VERDICTS[task.verdict]}]{task.verdict}[/]" if task.verdict else cell(str(task.state))
    out.print(f"[bold]{cell(task.id)}[/]  {verdict}  {cell(task.message)}")
    out.print(f"range {moment(task.start)} to {moment(task.end)} UTC")
    for answer in task.answers:
        _print_answer(out, answer)
    for event in task.events:
        out.print(f"  {moment(event.time)} {cell(event.node)} {cell(event.reason)}: {cell(event.message)}")
    for one in task.findings:
        print_finding(out, one)
    if not task.findings:
        out.print("no rule found anything in the stored data", markup=False)


def list_tasks(api: Api, project: str | None, *, as_json: bool) -> None:
    """Print the newest tasks."""
    tasks = api.tasks(_LISTED, project)
    if as_json:
        print_json([msgspec.to_builtins(task) for task in tasks])
        return
    if not tasks:
        console().print("no diagnostic task yet: jobmeter diagnose --node NAME", markup=False)
        return
    columns = ("task", "type", "state", "verdict", "nodes", "created")
    rows = [
        (task.id, str(task.type), str(task.state), str(task.verdict or ""), ", ".join(task.nodes), moment(task.created))
        for task in tasks
    ]
    show_listing(console(), columns, rows, spare=("created", "type"), folded="nodes")


def _print_answer(out: Console, answer: NodeAnswer) -> None:
    said = f": {cell(answer.text)}" if answer.text else ""
    out.print(f"node {cell(answer.node)} is [{_VERDICTS[answer.verdict]}]{answer.verdict}[/]{said}")
    for check in answer.checks:
        out.print(f"  [{_STYLES[check.status]}]{check.status:<12}[/]{cell(check.name):<12}{cell(check.text)}")
