"""Text on a terminal about where the ranks of a job are."""

from rich.console import Console

from jobmeter.cli.output import escape_cell, format_time
from jobmeter.diagnose.places import describe_place
from jobmeter.model.stacks import RankEvidence
from jobmeter.model.task import DiagnosticTask, Verdict


def print_stacks(out: Console, task: DiagnosticTask) -> None:
    """Print the result of a comparison of ranks, what is missing, and the stack of every thread of each rank."""
    sentence, *notes = task.message.splitlines() or [f"no result yet, the task is {task.state}"]
    style = "bold red" if task.verdict is Verdict.FAULT else "yellow"
    out.print(f"[{style}]{escape_cell(sentence)}[/]")
    out.print(f"  {'when':<12}{format_time(task.created)} UTC, task {escape_cell(task.id)}")
    for note in notes:
        out.print(f"  {'note':<12}{escape_cell(note)}")
    for answer in task.answers:
        for rank in answer.stacks.ranks if answer.stacks else ():
            out.print()
            _print_rank(out, answer.node, rank)


def _print_rank(out: Console, node: str, rank: RankEvidence) -> None:
    number = "" if rank.rank is None else f" rank {rank.rank}"
    out.print(
        f"[bold]{escape_cell(rank.replica)}[/]{number} ({escape_cell(node)}, pid {rank.pid}) "
        f"{escape_cell(describe_place(rank))}"
    )
    for name, text in _facts(rank):
        out.print(f"  {name:<12}{escape_cell(text)}")
    for thread in rank.threads:
        out.print(f"  thread {thread.id} {escape_cell(thread.name)}")
        for frame in thread.frames:
            out.print(f"    {escape_cell(frame.function)} ({escape_cell(frame.file)}:{frame.line})")


def _facts(rank: RankEvidence) -> list[tuple[str, str]]:
    """Return what the kernel and PyTorch's flight recorder say, where they say something."""
    kernel = ", ".join(filter(None, (f"state {rank.state}", rank.call, rank.target, rank.wait and f"in {rank.wait}")))
    found = [("kernel", kernel), ("in kernel", " < ".join(rank.kernel))]
    found += [
        ("group", f"{one.group} {one.description}: {one.operation} {one.enqueued}, completed {one.completed}")
        for one in rank.groups
    ]
    return [(name, text) for name, text in found if text]
