"""Findings as text on a terminal."""

from rich.console import Console

from jobmeter.cli.output import cell, moment
from jobmeter.model.finding import Finding, Severity

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def headline(one: Finding) -> str:
    """A finding in one line, as markup."""
    style = _STYLES[one.severity]
    text = f": {cell(one.evidence[0].text)}" if one.evidence else ""
    whom = f"{cell(one.subject.kind)} {cell(one.subject.name)}"
    return f"[{style}]{one.severity}[/] {cell(one.rule)} ({one.role}, {whom}){text}"


def print_finding(out: Console, one: Finding) -> None:
    """Print a finding with its evidence and advice."""
    out.print(headline(one))
    span = moment(one.start) if one.start == one.end else f"{moment(one.start)} to {moment(one.end)}"
    out.print(f"  {'when':<12}{span} UTC, confidence {one.confidence:.0%}")
    for evidence in one.evidence[1:]:
        out.print(f"  {cell(evidence.kind):<12}{cell(evidence.text)}")
    out.print(f"  {'advice':<12}{cell(one.advice)}")
    out.print(f"  {'rule from':<12}{cell(one.source)}\n")
