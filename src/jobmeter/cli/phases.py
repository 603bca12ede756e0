"""The phases of a job, and the causes of a difference between jobs, as tables of the terminal."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from rich.console import Console

from jobmeter.cli.output import escape_cell, format_duration, print_hanging, show_listing
from jobmeter.errors import LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.grouping import group_pairs
from jobmeter.model.phase import JobPhases, Phase, PhaseDifference

R = TypeVar("R")


def answer_or_none(answer: Callable[[], R]) -> R | None:
    """Return an answer; None from a server without that operation, and for a job that is too large for one query."""
    with suppress(NotFoundError, LimitExceededError, QueryTimeoutError):
        return answer()
    return None


def show_phases(out: Console, phases: JobPhases | None) -> None:
    """Print how long each phase of a job took, and how often it had it; nothing where no phase can be separated."""
    if phases is None or phases.totals.keys() <= {Phase.UNATTRIBUTED.value}:
        return
    whole = sum(phases.totals.values())
    rows = [
        (phase.label, format_duration(length), f"{length / whole:.0%}", str(len(phases.select(phase))))
        for phase in Phase
        if (length := phases.totals.get(phase.value))
    ]
    out.print()
    show_listing(out, ("phase", "length", "share", "times"), rows, right=("length", "share", "times"))


def show_sentence(out: Console, difference: PhaseDifference) -> None:
    """Print the difference and its largest causes as a sentence."""
    print_hanging(out, "", f"[bold]{escape_cell(difference.sentence)}[/]", 2)


def show_causes(out: Console, difference: PhaseDifference) -> None:
    """Print the difference by causes, and causes that were not measured in both jobs."""
    a, b = difference.labels
    rows = [
        (part.cause.label, _length(part.a), _length(part.b), _format_signed(part.difference), part.text)
        for part in difference.parts
    ]
    rows.append(
        (
            "whole",
            format_duration(difference.a_ms),
            format_duration(difference.b_ms),
            _format_signed(difference.difference_ms),
            "",
        )
    )
    out.print()
    columns = ("cause", a, b, "difference", "figures")
    show_listing(out, columns, rows, right=columns[1:4], spare=("figures",), folded="figures")
    by_reason = group_pairs((reason, name.replace("_", " ")) for name, reason in difference.unknown.items())
    for reason, names in by_reason.items():
        print_hanging(out, "", f"unknown: {escape_cell(', '.join(names))} ({escape_cell(reason)})", 2)


def _length(length_ms: int) -> str:
    return format_duration(length_ms) if length_ms else "0s"


def _format_signed(length_ms: int) -> str:
    return "-" if not length_ms else f"{'+' if length_ms > 0 else '-'}{format_duration(abs(length_ms))}"
