"""Table on a terminal of the processes that use most."""

from rich.console import Console

from jobmeter.cli.output import escape_cell, show_listing
from jobmeter.model.task import CheckStatus, DiagnosticTask, NodeAnswer, ProcessUse

_MIB = 2**20


def print_processes(out: Console, task: DiagnosticTask) -> None:
    """Print a table of the processes of all answers, by processor time, and a line for each node without a table."""
    rows: list[tuple[str, ProcessUse]] = []
    for answer in sorted(task.answers, key=lambda one: one.node):
        found = {use.pid: use for check in answer.checks for use in check.processes}
        rows += [(answer.node, use) for use in found.values()]
        if not found:
            out.print(f"node {escape_cell(answer.node)}: {escape_cell(_reason(answer))}")
    if not rows:
        return
    rows.sort(key=lambda row: (-(row[1].cores or 0.0), -row[1].memory, row[0], row[1].pid))
    figures = ("cores", "memory MiB", "storage MiB/s")
    columns = ("node", "pid", "program", "job", "replica", "rank", *figures)
    cells = [
        (
            *(node, str(use.pid), use.name, use.job, use.replica, "" if use.rank is None else str(use.rank)),
            "" if use.cores is None else f"{use.cores:.2f}",
            f"{use.memory / _MIB:,.1f}",
            "" if use.traffic is None else f"{use.traffic / _MIB:,.1f}",
        )
        for node, use in rows
    ]
    show_listing(out, columns, cells, right=figures, spare=("rank", "storage MiB/s"))


def _reason(answer: NodeAnswer) -> str:
    """Return why an answer has no processes."""
    if answer.time is None:
        return "no answer from the agent"
    if any(check.status is CheckStatus.OK for check in answer.checks):
        return "its agent sends no table of processes: update it"
    return "; ".join(check.text for check in answer.checks) or "no process can be read"
