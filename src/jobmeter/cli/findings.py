"""Findings as text on a terminal."""

from collections.abc import Sequence

from rich.console import Console

from jobmeter.cli.output import cell, moment
from jobmeter.model.finding import Finding, FindingSummary, Severity

STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def headline(one: Finding) -> str:
    """Format a finding in one line, as markup."""
    style = STYLES[one.severity]
    text = one.sentence or one.message  # servers of earlier releases send no sentences
    since = f", since {moment(one.start)} UTC" if one.start < one.end else f" at {moment(one.start)} UTC"
    return f"[{style}]{one.severity}[/] {cell(text)}{since} [dim]({cell(one.rule)}, {one.role})[/]"


def named_replicas(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the places of the replicas that findings mark: a finding about fewer replicas first, then the worse one.

    A finding about most of a job says little about one of its replicas.
    """
    order = sorted(findings, key=lambda one: len(one.replicas))
    return {name: at for at, name in enumerate(dict.fromkeys(name for one in order for name in one.replicas))}


def summary_line(one: FindingSummary | None) -> str:
    """The worst finding of a job in a listing, as text; empty for none. Older servers give its rule alone."""
    if one is None:
        return ""
    more = f" (+{one.count - 1})" if one.count > 1 else ""
    return f"{one.severity}: {one.sentence or ', '.join(one.rules[:1])}{more}"


def details(one: Finding) -> list[tuple[str, str]]:
    """List time, further evidence and advice of a finding, each with its label."""
    span = moment(one.start) if one.start == one.end else f"{moment(one.start)} to {moment(one.end)}"
    first = one.sentence or one.message
    evidence = ((evidence.kind, evidence.text) for evidence in one.evidence if evidence.text not in first)
    return [("when", f"{span} UTC, confidence {one.confidence:.0%}"), *evidence, ("advice", one.advice)]


def print_finding(out: Console, one: Finding) -> None:
    """Print a finding with its evidence and advice."""
    out.print(headline(one))
    for name, text in (*details(one), ("rule from", one.source)):
        out.print(f"  {cell(name):<12}{cell(text)}")
    out.print()
